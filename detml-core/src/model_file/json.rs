use serde_json::Value;

/// Writes JSON in one way only: keys sorted by bytes, no spaces, integers in decimal, other
/// numbers as the shortest decimal that reads back to the same f64, without exponent.
///
/// Doesn't depend on which optional features of `serde_json` a program happens to turn on.
pub(super) fn write(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => {
            if let Some(integer) = number.as_u64() {
                out.push_str(&integer.to_string());
            } else if let Some(integer) = number.as_i64() {
                out.push_str(&integer.to_string());
            } else {
                let text = number.as_f64().unwrap_or(0.0).to_string();
                out.push_str(&text);
                if !text.contains('.') {
                    out.push_str(".0");
                }
            }
        }
        Value::String(text) => string(text, out),
        Value::Array(values) => {
            out.push('[');
            for (i, value) in values.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                write(value, out);
            }
            out.push(']');
        }
        Value::Object(map) => {
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_unstable_by_key(|(key, _)| *key);
            out.push('{');
            for (i, (key, value)) in entries.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                string(key, out);
                out.push(':');
                write(value, out);
            }
            out.push('}');
        }
    }
}

/// A JSON string: the two escapes that JSON asks for and `\u00XX` for control characters.
pub(super) fn string(text: &str, out: &mut String) {
    out.push('"');
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            control if control < ' ' => {
                out.push_str(&format!("\\u{:04x}", u32::from(control)));
            }
            other => out.push(other),
        }
    }
    out.push('"');
}
