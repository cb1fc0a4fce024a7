use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::io::Read;
use std::path::Path;

use ndarray::Array2;

use super::{Text, open, shown};
use crate::dataset::list;
use crate::{Dataset, Error, Result};

/// How to read a CSV file.
///
/// ```
/// use detml_core::CsvOptions;
///
/// let text = "size;colour\n1.5;red\n;blue\n2;NA\n";
/// let data = CsvOptions::new()
///     .delimiter(b';')
///     .categorical("colour")
///     .read(text.as_bytes(), "example")?;
/// assert_eq!(data.n_rows(), 3);
/// // Codes follow the order of the texts, not of the rows.
/// assert_eq!(data.categories("colour").unwrap(), ["blue", "red"]);
/// assert_eq!(data.features()[[0, 1]], 1.0);
/// assert!(data.features()[[2, 1]].is_nan());
/// # Ok::<(), detml_core::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct CsvOptions {
    delimiter: u8,
    categorical: Vec<String>,
    known: BTreeMap<String, Vec<String>>,
    ignored: Vec<String>,
}

impl Default for CsvOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl CsvOptions {
    /// Commas between cells, numbers in all columns.
    pub fn new() -> Self {
        Self {
            delimiter: b',',
            categorical: Vec::new(),
            known: BTreeMap::new(),
            ignored: Vec::new(),
        }
    }

    /// The byte between cells (default `,`).
    pub fn delimiter(mut self, delimiter: u8) -> Self {
        self.delimiter = delimiter;
        self
    }

    /// Reads the column as texts: its distinct texts, sorted by their bytes, become the codes
    /// 0, 1 and so on; a missing cell becomes NaN.
    pub fn categorical(mut self, column: impl Into<String>) -> Self {
        self.categorical.push(column.into());
        self
    }

    /// Reads text columns with the codes of another data set, as a test set must be read. A
    /// text which that one doesn't have becomes NaN.
    pub fn categories_of(mut self, data: &Dataset) -> Self {
        self.known.extend(data.all_categories().clone());
        self
    }

    /// Leaves the column out, whatever stands in it.
    pub fn ignore(mut self, column: impl Into<String>) -> Self {
        self.ignored.push(column.into());
        self
    }

    /// Reads a file, plain or gzip.
    ///
    /// # Errors
    /// As [`Dataset::from_csv`]; [`Error::MissingColumn`] if a column named in the options
    /// isn't there.
    pub fn load(&self, path: impl AsRef<Path>) -> Result<Dataset> {
        self.parse(open(path.as_ref())?)
    }

    /// Reads a text, plain or gzip; `origin` names it in errors.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn read(&self, source: impl Read, origin: &str) -> Result<Dataset> {
        self.parse(Text::new(source, origin)?)
    }

    fn parse(&self, text: Text<'_>) -> Result<Dataset> {
        if matches!(self.delimiter, b'"' | b'\n' | b'\r') {
            return Err(Error::parameter(
                "delimiter",
                "a byte other than a quote or a line end",
                self.delimiter.escape_ascii(),
            ));
        }
        let mut rows = Rows::new(text, self.delimiter);
        if !rows.read()? {
            return Err(Error::empty(format!("{} (header)", rows.text.origin)));
        }
        let mut columns = self.columns(&rows)?;
        let width = columns
            .iter()
            .filter(|column| !matches!(column.kind, Kind::Ignored))
            .count();
        let mut values = Vec::new();
        let mut n_rows = 0;
        while rows.read()? {
            if rows.len() != columns.len() {
                let expected = format!("{} cells, as in the header", columns.len());
                return Err(rows.refuse(expected, rows.len()));
            }
            for (index, column) in columns.iter_mut().enumerate() {
                if let Some(value) = column.read(&rows, index)? {
                    values.push(value);
                }
            }
            n_rows += 1;
        }
        let origin = &rows.text.origin;
        if n_rows == 0 {
            return Err(Error::empty(format!("{origin} (rows below the header)")));
        }

        let mut names = Vec::with_capacity(width);
        let mut categories = BTreeMap::new();
        for column in columns {
            let index = names.len();
            match column.kind {
                Kind::Ignored => continue,
                Kind::Number => {}
                Kind::Known(codes) => {
                    categories.insert(column.name.clone(), by_code(&codes));
                }
                Kind::Text(codes) => {
                    // From codes in order of appearance to codes in order of the texts.
                    let mut sorted = vec![0.0; codes.len()];
                    for (code, &seen) in codes.values().enumerate() {
                        sorted[seen] = code as f32;
                    }
                    for value in values.iter_mut().skip(index).step_by(width) {
                        if !f32::is_nan(*value) {
                            *value = sorted[*value as usize];
                        }
                    }
                    categories.insert(column.name.clone(), codes.into_keys().collect());
                }
            }
            names.push(column.name);
        }
        let features = Array2::from_shape_vec((n_rows, width), values)
            .map_err(|error| Error::internal(format!("table of {origin}: {error}")))?;
        Dataset::from_table(features, names, categories)
    }

    fn columns(&self, header: &Rows<'_>) -> Result<Vec<Column>> {
        let mut columns: Vec<Column> = Vec::with_capacity(header.len());
        let mut names = BTreeSet::new();
        for index in 0..header.len() {
            // A byte order mark before the first name belongs to no name.
            let name = match header.cell(index)? {
                cell if index == 0 => cell.trim_start_matches('\u{feff}').trim(),
                cell => cell,
            };
            if !names.insert(name) {
                let got = format!("{} twice", shown(name));
                return Err(header.refuse("distinct column names", got));
            }
            let kind = if self.ignored.iter().any(|other| other == name) {
                Kind::Ignored
            } else if let Some(texts) = self.known.get(name) {
                Kind::Known(texts.iter().cloned().zip(0..).collect())
            } else if self.categorical.iter().any(|other| other == name) {
                Kind::Text(BTreeMap::new())
            } else {
                Kind::Number
            };
            columns.push(Column {
                name: name.into(),
                kind,
            });
        }
        for wanted in self.categorical.iter().chain(&self.ignored) {
            if !names.contains(wanted.as_str()) {
                let available: Vec<String> = columns.into_iter().map(|c| c.name).collect();
                return Err(Error::MissingColumn {
                    what: header.text.origin.clone(),
                    name: wanted.clone(),
                    available: list(&available),
                });
            }
        }
        Ok(columns)
    }
}

struct Column {
    name: String,
    kind: Kind,
}

enum Kind {
    Ignored,
    Number,
    /// Texts with their codes, in order of appearance.
    Text(BTreeMap<String, usize>),
    /// Texts with the codes of another data set.
    Known(BTreeMap<String, usize>),
}

/// Codes are held in `f32`, which counts no further.
const MAX_CATEGORIES: usize = 1 << 24;

impl Column {
    fn read(&mut self, rows: &Rows<'_>, index: usize) -> Result<Option<f32>> {
        if matches!(self.kind, Kind::Ignored) {
            return Ok(None);
        }
        let cell = rows.cell(index)?;
        if matches!(cell, "" | "NA" | "N/A" | "NaN" | "nan" | "null") {
            return Ok(Some(f32::NAN));
        }
        let code = match &mut self.kind {
            Kind::Ignored => None,
            Kind::Number => {
                return cell.parse().map(Some).map_err(|_| {
                    let expected = format!(
                        "a number in column {} (texts need `CsvOptions::categorical`)",
                        shown(&self.name)
                    );
                    rows.refuse(expected, shown(cell))
                });
            }
            Kind::Known(codes) => codes.get(cell).copied(),
            Kind::Text(codes) => match codes.get(cell) {
                Some(&code) => Some(code),
                None if codes.len() < MAX_CATEGORIES => {
                    let code = codes.len();
                    codes.insert(cell.into(), code);
                    Some(code)
                }
                None => {
                    let expected = format!(
                        "at most {MAX_CATEGORIES} texts in column {}",
                        shown(&self.name)
                    );
                    return Err(rows.refuse(expected, "more"));
                }
            },
        };
        Ok(Some(code.map_or(f32::NAN, |code| code as f32)))
    }
}

fn by_code(codes: &BTreeMap<String, usize>) -> Vec<String> {
    let mut texts: Vec<(&String, usize)> = codes.iter().map(|(text, &code)| (text, code)).collect();
    texts.sort_unstable_by_key(|&(_, code)| code);
    texts.into_iter().map(|(text, _)| text.clone()).collect()
}

/// The rows of a CSV text (RFC 4180), one at a time. Blank lines are skipped.
struct Rows<'a> {
    text: Text<'a>,
    delimiter: u8,
    raw: Vec<u8>,
    /// The cells of the current row, one after the other, unquoted.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// Line on which the current row begins.
    line: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Start,
    Plain,
    Quoted,
    /// After a quote inside quotes: the end of the cell, or the first half of a quote.
    Closed,
}

impl<'a> Rows<'a> {
    fn new(text: Text<'a>, delimiter: u8) -> Self {
        Self {
            text,
            delimiter,
            raw: Vec::new(),
            bytes: Vec::new(),
            ends: Vec::new(),
            line: 0,
        }
    }

    /// Moves to the next row; false at the end.
    fn read(&mut self) -> Result<bool> {
        loop {
            self.raw.clear();
            if !self.text.append_line(&mut self.raw)? {
                return Ok(false);
            }
            if !matches!(self.raw[..], [b'\n'] | [b'\r', b'\n']) {
                break;
            }
        }
        self.line = self.text.line;
        self.bytes.clear();
        self.ends.clear();
        let mut state = State::Start;
        let mut at = 0;
        loop {
            while at < self.raw.len() {
                let byte = self.raw[at];
                at += 1;
                let ends_line = byte == b'\n' || (byte == b'\r' && self.raw[at..] == *b"\n");
                state = match state {
                    State::Quoted if byte == b'"' => State::Closed,
                    State::Quoted => self.push(byte, State::Quoted),
                    State::Closed if byte == b'"' => self.push(byte, State::Quoted),
                    _ if byte == self.delimiter => {
                        self.ends.push(self.bytes.len());
                        State::Start
                    }
                    state if ends_line => state,
                    State::Start if byte == b'"' => State::Quoted,
                    State::Start | State::Plain => self.push(byte, State::Plain),
                    State::Closed => {
                        let got = shown(&char::from(byte).to_string());
                        return Err(self.refuse("a separator after a quoted cell", got));
                    }
                };
            }
            if state != State::Quoted {
                break;
            }
            // The row goes on in the next line.
            if !self.text.append_line(&mut self.raw)? {
                return Err(self.refuse("a closing quote", "the end"));
            }
        }
        self.ends.push(self.bytes.len());
        Ok(true)
    }

    fn push(&mut self, byte: u8, state: State) -> State {
        self.bytes.push(byte);
        state
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    /// A cell without the spaces around it.
    fn cell(&self, index: usize) -> Result<&str> {
        let begin = if index == 0 { 0 } else { self.ends[index - 1] };
        let bytes = &self.bytes[begin..self.ends[index]];
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.trim()),
            Err(_) => {
                let got = shown(&String::from_utf8_lossy(bytes));
                Err(self.refuse(format!("UTF-8 in cell {}", index + 1), got))
            }
        }
    }

    fn refuse(&self, expected: impl Display, got: impl Display) -> Error {
        self.text.refuse(self.line, expected, got)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::BitHashed;
    use proptest::prelude::*;

    fn read(text: impl AsRef<[u8]>) -> Result<Dataset> {
        CsvOptions::new().read(text.as_ref(), "test")
    }

    #[test]
    fn numbers_round_once_and_missing_cells_are_nan() {
        let data = read(
            "\u{feff}a, b ,c\r\n1,-0,0.1\n,NA,nan\n1e-45,1e39,\" 16777217 \"\n\
             7.0385307e-26,inf,8388608.5000000001\n",
        )
        .unwrap();
        assert_eq!(data.feature_names(), ["a", "b", "c"]);
        let bits: Vec<u32> = data
            .features()
            .iter()
            .map(|value| value.to_bits())
            .collect();
        let expected = [
            1.0,
            -0.0,
            0.1,
            f32::NAN,
            f32::NAN,
            f32::NAN,
            f32::from_bits(1),
            f32::INFINITY,
            16_777_216.0,
            7.038_530_7e-26,
            f32::INFINITY,
            8_388_609.0,
        ];
        assert_eq!(bits, expected.map(f32::to_bits));
    }

    #[test]
    fn faults_name_line_and_column() {
        for (text, expected) in [
            (
                &b"a,b\n1,2\n3,x\n"[..],
                "test, line 3: expected a number in column `b` \
                 (texts need `CsvOptions::categorical`), got `x`",
            ),
            (
                b"a,b\n1,2\n\n3\n",
                "test, line 4: expected 2 cells, as in the header, got 1",
            ),
            (
                b"a,b,a\n1,2,3\n",
                "test, line 1: expected distinct column names, got `a` twice",
            ),
            (
                b"a,b\n1,\xff\n",
                "test, line 2: expected UTF-8 in cell 2, got `\u{fffd}`",
            ),
            (
                b"a,b\n",
                "test (rows below the header) is empty; at least one element is needed",
            ),
            (
                b"\n",
                "test (header) is empty; at least one element is needed",
            ),
            (
                b"a\n\"1\n\"2\n",
                "test, line 2: expected a separator after a quoted cell, got `2`",
            ),
            (
                b"a\n1\n\"2\n",
                "test, line 3: expected a closing quote, got the end",
            ),
        ] {
            assert_eq!(read(text).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn quotes_hold_separators_quotes_and_line_ends() {
        let data = CsvOptions::new()
            .categorical("a\nb")
            .read(
                &b"\"a\nb\",\"c\"\r\n\"x,\"\"y\"\"\",1\r\n\r\n in\"side ,\"2\"\r\nz,3"[..],
                "t",
            )
            .unwrap();
        assert_eq!(data.feature_names(), ["a\nb", "c"]);
        assert_eq!(
            data.categories("a\nb").unwrap(),
            ["in\"side", "x,\"y\"", "z"]
        );
        assert_eq!(data.column("c").unwrap().to_vec(), [1.0, 2.0, 3.0]);
    }

    #[test]
    fn codes_do_not_depend_on_row_order_and_carry_over() {
        let options = CsvOptions::new().categorical("c").ignore("note");
        let data = options
            .read(&b"note,c,n\nx,b,1\ny,a,2\nz,NA,3\n,b,4\n"[..], "t")
            .unwrap();
        assert_eq!(data.feature_names(), ["c", "n"]);
        assert_eq!(data.categories("c").unwrap(), ["a", "b"]);
        let codes = data.column("c").unwrap();
        assert_eq!(codes.to_vec()[..2], [1.0, 0.0]);
        assert!(codes[2].is_nan());

        let test = CsvOptions::new()
            .categories_of(&data)
            .read(&b"c,n\nb,1\nnew,2\n"[..], "t")
            .unwrap();
        assert_eq!(test.features()[[0, 0]], 1.0);
        assert!(test.features()[[1, 0]].is_nan());
        assert_eq!(test.categories("c"), data.categories("c"));

        let data = data.target("c").unwrap();
        assert_eq!(data.class_names().unwrap(), ["a", "b"]);

        let missing = CsvOptions::new().ignore("q").read(&b"a\n1\n"[..], "t");
        assert!(matches!(missing, Err(Error::MissingColumn { .. })));
    }

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(text).unwrap();
        packed.finish().unwrap()
    }

    #[test]
    fn gzip_is_seen_by_its_bytes_also_in_several_members() {
        let plain = read("a\n1\n2\n").unwrap();
        let packed = [gzip(b"a\n1"), gzip(b"\n2\n")].concat();
        assert_eq!(read(&packed).unwrap().bit_hash(), plain.bit_hash());
        let broken = read(&packed[..packed.len() - 9]).unwrap_err();
        assert!(matches!(broken, Error::Io { .. }), "{broken}");
    }

    #[test]
    fn an_endless_line_in_a_small_gzip_is_refused() {
        let packed = gzip(&vec![b'1'; 70 << 20]);
        assert!(packed.len() < 1 << 20);
        let error = read(&packed).unwrap_err().to_string();
        assert!(error.contains("at most 67108864 bytes in a row"), "{error}");
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&bytes);
            let options = CsvOptions::new().delimiter(b'a').categorical("");
            let _ = options.read(&bytes[..], "t");
            prop_assert!(options.delimiter(b'\n').read(&bytes[..], "t").is_err());
        }

        #[test]
        fn any_cells_are_read_or_refused(text in "[-+.eE0-9a,\"\n\r ]{0,80}") {
            let _ = read(format!("a,b\n{text}"));
        }

        #[test]
        fn any_f32_written_in_decimal_comes_back(bits in prop::collection::vec(any::<u32>(), 1..20)) {
            let values: Vec<f32> = bits.into_iter().map(f32::from_bits).collect();
            let lines: Vec<String> = values.iter().map(f32::to_string).collect();
            let data = read(format!("a\n{}\n", lines.join("\n"))).unwrap();
            for (read, value) in data.features().iter().zip(values) {
                let same = read.to_bits() == value.to_bits();
                prop_assert!(same || (read.is_nan() && value.is_nan()));
            }
        }
    }
}
