//! `SUPPORT_MATRIX.md`: what is proved of which column at which layer, made from the evidence that
//! is committed and nothing else.

use crate::lanes::lanes;
use crate::proofs::{Layer, Record, Records, texts_of};
use crate::table::{Column, Table};
use detml_core::{Error, NUMERIC_PROFILE, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

/// The file, below the root of the repository.
pub const FILE: &str = "SUPPORT_MATRIX.md";

/// The layers of each kind of column that detml means to prove, in the order of the page. What is
/// committed of others is added.
const PROMISED: [(&str, &[Layer]); 18] = [
    ("cpu-x86_64-plain", &[Layer::Executed]),
    ("cpu-x86_64-avx2", &[Layer::Executed]),
    ("cpu-x86_64-avx512", &[Layer::Executed]),
    ("cpu-aarch64-plain", &[Layer::Executed, Layer::Emulated]),
    ("cpu-aarch64-neon", &[Layer::Executed, Layer::Emulated]),
    ("vulkan", &[Layer::Text]),
    ("vulkan-lavapipe", &[Layer::Executed]),
    ("vulkan-swiftshader", &[Layer::Executed]),
    ("vulkan-nvidia", &[Layer::Executed]),
    ("cuda", &[Layer::Text]),
    ("cuda-sm80", &[Layer::Text, Layer::Machine, Layer::Executed]),
    ("cuda-sm90", &[Layer::Text, Layer::Machine, Layer::Executed]),
    (
        "cuda-sm100",
        &[Layer::Text, Layer::Machine, Layer::Executed],
    ),
    ("hip", &[Layer::Text, Layer::Executed]),
    ("hip-gfx90a", &[Layer::Text, Layer::Machine]),
    ("hip-gfx942", &[Layer::Text, Layer::Machine]),
    ("hip-gfx1100", &[Layer::Text, Layer::Machine]),
    ("metal", &[Layer::Text, Layer::Executed]),
];

/// Columns whose text stands in the manifest, with its languages there.
const TEXTS: [(&str, &[&str]); 4] = [
    ("vulkan", &["SpirV", "Wgsl"]),
    ("cuda", &["Cuda"]),
    ("hip", &["Hip"]),
    ("metal", &["Metal"]),
];

/// The evidence that is committed.
#[derive(Clone, Debug)]
pub struct Sources {
    table: Table,
    manifest: String,
    records: Records,
}

impl Sources {
    /// Reads it below the root of the repository.
    ///
    /// # Errors
    /// `Io`; `Parse` if a file is damaged.
    pub fn load(root: &Path) -> Result<Self> {
        let fixtures = root.join("fixtures");
        let manifest = fixtures.join("codegen/manifest.tsv");
        Ok(Self {
            table: Table::load(&fixtures.join("reference.tsv"))?,
            manifest: std::fs::read_to_string(&manifest).map_err(|e| Error::io(&manifest, &e))?,
            records: Records::load_folder(&fixtures.join("proofs"))?,
        })
    }

    /// The text of the page.
    pub fn page(&self) -> String {
        let cells = self.cells();
        let mut page = self.head();
        page.push_str("| column |");
        for layer in Layer::ALL {
            let _ = write!(page, " {} |", title(layer));
        }
        page.push_str("\n|---|---|---|---|---|\n");
        let columns = columns(&cells);
        for column in &columns {
            let _ = write!(page, "| {column} |");
            for layer in Layer::ALL {
                let cell = cells.get(&(column.clone(), layer));
                let _ = write!(page, " {} |", cell.map_or("", |cell| cell.count.as_str()));
            }
            page.push('\n');
        }
        page.push_str(
            "\n## Evidence\n\n| column | layer | count | date | device | toolchain |\n\
             |---|---|---|---|---|---|\n",
        );
        for column in &columns {
            for layer in Layer::ALL {
                let Some(cell) = cells.get(&(column.clone(), layer)) else {
                    continue;
                };
                let _ = writeln!(
                    page,
                    "| {column} | {} | {} | {} | {} | {} |",
                    title(layer),
                    cell.count,
                    cell.date,
                    cell.device,
                    cell.toolchain
                );
            }
        }
        page
    }

    fn head(&self) -> String {
        let lanes = lanes();
        let host = lanes.iter().filter(|lane| lane.host).count();
        format!(
            "# Support matrix\n\n\
             Made by `cargo run -p detml-verify -- matrix` from `fixtures/reference.tsv`, \
             `fixtures/codegen/manifest.tsv` and `fixtures/proofs/`; not written by hand. \
             [docs/verification.md](docs/verification.md) says what each layer means, \
             [docs/verify-on-your-hardware.md](docs/verify-on-your-hardware.md) how a device of yours \
             closes a cell that is owed.\n\n\
             Contract `{NUMERIC_PROFILE}`, version {}. The reference holds {} results of {} lanes, of \
             which {host} are computed by the host whatever the device: only columns of CPUs witness \
             them. *Owed*: nothing was run. Empty: there is nothing to check at that layer, or no \
             means. Kernels are counted as proved while their text is the one that was proved.\n\n",
            self.table.version,
            self.table.entries.len(),
            lanes.len(),
        )
    }

    fn cells(&self) -> BTreeMap<(String, Layer), Cell> {
        let mut cells = BTreeMap::new();
        for (column, layers) in PROMISED {
            for layer in layers {
                cells.insert((column.to_owned(), *layer), Cell::owed());
            }
        }
        for (column, languages) in TEXTS {
            let counts: Vec<String> = languages
                .iter()
                .filter_map(|language| {
                    let count = texts_of(&self.manifest, language).len();
                    (count > 0).then(|| format!("{count} {}", spelled(language)))
                })
                .collect();
            let cell = Cell {
                count: format!("{} texts", counts.join(", ")),
                date: "each commit".into(),
                device: "none".into(),
                toolchain: "lint of the representation, hash of the text".into(),
            };
            cells.insert((column.to_owned(), Layer::Text), cell);
        }
        for column in &self.table.columns {
            let Some(evidence) = &column.evidence else {
                continue;
            };
            let emulated = column.name.contains("emulated") || evidence.device.starts_with("QEMU");
            let layer = if emulated {
                Layer::Emulated
            } else {
                Layer::Executed
            };
            let cell = Cell {
                count: self.witnessed(column),
                date: evidence.date.clone(),
                device: evidence.device.clone(),
                toolchain: evidence.toolchain.clone(),
            };
            cells.insert((column.name.clone(), layer), cell);
        }
        for record in self.records.iter() {
            let cell = self.recorded(record);
            cells.insert((record.column.clone(), record.layer), cell);
        }
        cells
    }

    /// How many lanes and results a column has witnessed.
    fn witnessed(&self, column: &Column) -> String {
        let entries = self.table.entries.iter();
        let seen: Vec<_> = entries
            .filter(|(_, entry)| entry.witnesses.contains(column.letter))
            .map(|(key, _)| key.lane.as_str())
            .collect();
        let lanes: BTreeSet<_> = seen.iter().collect();
        let all: BTreeSet<_> = self.table.entries.keys().map(|key| &key.lane).collect();
        format!(
            "{} of {} lanes, {} of {} results",
            lanes.len(),
            all.len(),
            seen.len(),
            self.table.entries.len()
        )
    }

    fn recorded(&self, record: &Record) -> Cell {
        let (proved, of) = record.count(&self.manifest);
        Cell {
            count: format!("{proved} of {of} kernels"),
            date: record.date.clone(),
            device: "none".into(),
            toolchain: record.toolchain.clone(),
        }
    }
}

/// What is known of a column at a layer.
struct Cell {
    count: String,
    date: String,
    device: String,
    toolchain: String,
}

impl Cell {
    fn owed() -> Self {
        Self {
            count: "*Owed*".into(),
            date: String::new(),
            device: String::new(),
            toolchain: String::new(),
        }
    }
}

/// The promised columns in their order, each with those after it that its name begins.
fn columns(cells: &BTreeMap<(String, Layer), Cell>) -> Vec<String> {
    let mut columns: Vec<String> = PROMISED.iter().map(|(name, _)| (*name).into()).collect();
    let others: BTreeSet<&String> = cells
        .keys()
        .map(|(column, _)| column)
        .filter(|column| !columns.contains(column))
        .collect();
    for other in others {
        let family = |column: &String| {
            let of = |name: &str| name.split('-').next().unwrap_or_default().to_owned();
            of(column) == of(other)
        };
        let at = columns.iter().rposition(family);
        columns.insert(at.map_or(columns.len(), |at| at + 1), other.clone());
    }
    columns
}

fn title(layer: Layer) -> &'static str {
    match layer {
        Layer::Text => "emitted code checked",
        Layer::Machine => "machine code checked",
        Layer::Executed => "executed",
        Layer::Emulated => "executed by emulation",
    }
}

/// A language of the manifest as it is written.
fn spelled(language: &str) -> &str {
    match language {
        "SpirV" => "SPIR-V",
        "Wgsl" => "WGSL",
        "Cuda" => "CUDA C++",
        "Hip" => "HIP C++",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
    }

    #[test]
    fn the_page_is_what_the_evidence_says() {
        let page = Sources::load(root()).unwrap().page();
        let committed = std::fs::read_to_string(root().join(FILE)).unwrap();
        assert!(
            page == committed,
            "{FILE} is not what the evidence says: cargo run -p detml-verify -- matrix"
        );
    }

    #[test]
    fn records_and_witnesses_show_and_nothing_else() {
        let mut sources = Sources::load(root()).unwrap();
        sources.records = Records::default();
        for column in &mut sources.table.columns {
            column.evidence = None;
        }
        let cells = sources.cells();
        for ((column, layer), cell) in &cells {
            let text = TEXTS.iter().any(|(name, _)| name == column) && *layer == Layer::Text;
            assert_eq!(cell.count == "*Owed*", !text, "{column} {layer}");
        }
        let hash = texts_of(&sources.manifest, "Hip")[0].hash.to_owned();
        let proved = [hash, "0".repeat(32)].into();
        let record = Record::new(
            "hip-gfx950",
            Layer::Text,
            "clang",
            "Hip",
            &["emulated"],
            proved,
        );
        let (_, of) = record.count(&sources.manifest);
        sources.records.add(record);
        let page = sources.page();
        let rows: Vec<_> = page
            .lines()
            .filter(|line| line.starts_with("| hip-gfx950 |"))
            .collect();
        assert_eq!(rows.len(), 2, "{page}");
        // The text that is gone does not count.
        assert!(
            rows[0].contains(&format!("1 of {of} kernels |")),
            "{}",
            rows[0]
        );
    }
}
