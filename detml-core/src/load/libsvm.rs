use ndarray::{Array1, Array2};

use super::{Text, shown};
use crate::{Dataset, Error, Result};

/// Elements of a dense table for each value that stands in the file, and for any file.
const DENSE_PER_VALUE: usize = 4096;
const DENSE_ALWAYS: usize = 1 << 26;

pub(super) fn parse(mut text: Text<'_>) -> Result<Dataset> {
    let mut targets: Vec<f32> = Vec::new();
    let mut groups: Vec<u32> = Vec::new();
    let mut values: Vec<(u32, f32)> = Vec::new();
    let mut ends = Vec::new();
    let mut width = 0;
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        if !text.append_line(&mut bytes)? {
            break;
        }
        let refuse = |expected: &str, got: &str| text.refuse(text.line, expected, shown(got));
        let line = std::str::from_utf8(&bytes)
            .map_err(|_| refuse("UTF-8", &String::from_utf8_lossy(&bytes)))?;
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_ascii_whitespace();
        let Some(first) = words.next() else {
            continue;
        };
        targets.push(
            first
                .parse()
                .map_err(|_| refuse("a target (a number)", first))?,
        );
        let mut last = 0;
        let mut begun = false;
        for word in words {
            let Some((key, value)) = word.split_once(':') else {
                return Err(refuse("`column:value`", word));
            };
            if key == "qid" && !begun {
                groups.push(
                    value
                        .parse()
                        .map_err(|_| refuse("a group number after `qid:`", word))?,
                );
                begun = true;
                continue;
            }
            begun = true;
            let column: u32 = key.parse().map_err(|_| refuse("a column number", word))?;
            if column <= last {
                return Err(refuse("columns from 1, ascending", word));
            }
            last = column;
            let value = value
                .parse()
                .map_err(|_| refuse("a number after `:`", word))?;
            values.push((column - 1, value));
        }
        width = width.max(last as usize);
        ends.push(values.len());
        if !groups.is_empty() && groups.len() != targets.len() {
            return Err(refuse("`qid:` on every line or on none", line.trim()));
        }
    }

    let rows = targets.len();
    if rows == 0 {
        return Err(Error::empty(format!("{} (rows)", text.origin)));
    }
    let limit = (values.len() + rows)
        .saturating_mul(DENSE_PER_VALUE)
        .max(DENSE_ALWAYS);
    let size = rows
        .checked_mul(width)
        .filter(|&size| size <= limit)
        .ok_or_else(|| Error::OutOfMemory {
            device: format!("cpu ({rows} x {width} table of {})", text.origin),
            requested: (rows as u64).saturating_mul(width as u64).saturating_mul(4),
        })?;
    let mut dense = vec![0.0; size];
    let mut begin = 0;
    for (row, &end) in ends.iter().enumerate() {
        for &(column, value) in &values[begin..end] {
            dense[row * width + column as usize] = value;
        }
        begin = end;
    }
    let features = Array2::from_shape_vec((rows, width), dense)
        .map_err(|error| Error::internal(format!("table of {}: {error}", text.origin)))?;
    let data = Dataset::from_arrays(features, Array1::from(targets))?;
    if groups.is_empty() {
        Ok(data)
    } else {
        data.with_groups(groups)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;
    use proptest::prelude::*;

    fn read(text: impl AsRef<[u8]>) -> Result<Dataset> {
        parse(Text::new(text.as_ref(), "test")?)
    }

    #[test]
    fn absent_columns_are_zero() {
        let data = read("1 1:0.5 3:-2 # note\n\n-1 2:1e3\n+1\n").unwrap();
        assert_eq!(
            data.features(),
            array![[0.5, 0.0, -2.0], [0.0, 1000.0, 0.0], [0.0, 0.0, 0.0]]
        );
        assert_eq!(data.labels().unwrap(), array![1.0, -1.0, 1.0]);
        assert_eq!(data.groups(), None);
        let ranked = read("2 qid:10 1:1\n0 qid:10\n1 qid:11 1:3\n").unwrap();
        assert_eq!(ranked.groups().unwrap(), [10, 10, 11]);
    }

    #[test]
    fn faults_name_the_line() {
        for (text, line, part) in [
            ("1 1:1\nx 1:1\n", 2, "a target"),
            ("1 1\n", 1, "`column:value`"),
            ("1 0:1\n", 1, "from 1, ascending"),
            ("1 2:1 2:1\n", 1, "from 1, ascending"),
            ("1 4294967296:1\n", 1, "a column number"),
            ("1 1:one\n", 1, "a number after `:`"),
            ("1 1:1\n1 qid:1 1:1\n", 2, "on every line"),
            ("1 qid:1 1:1\n1 1:1\n", 2, "on every line"),
            ("1 qid:-1\n", 1, "a group number"),
        ] {
            let error = read(text).unwrap_err();
            assert!(
                matches!(error, Error::Parse { line: l, .. } if l == line)
                    && error.to_string().contains(part),
                "{text:?}: {error}"
            );
        }
        assert!(matches!(read("# nothing\n"), Err(Error::Empty { .. })));
    }

    #[test]
    fn a_claimed_column_does_not_claim_memory() {
        let error = read("1 4294967295:1\n").unwrap_err();
        assert!(
            matches!(error, Error::OutOfMemory { requested, .. } if requested == 4 * 0xffff_ffff),
            "{error}"
        );
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
        }

        #[test]
        fn any_words_are_read_or_refused(text in "([0-9]{1,3}|[0-9]{1,3}:|qid:|[-.e# \n]){0,40}") {
            let _ = read(&text);
        }
    }
}
