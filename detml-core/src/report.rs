use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Backend;

/// One operation's share of an [`ExecutionReport`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReportEntry {
    /// The operation's name, e.g. `gemm`.
    pub operation: Cow<'static, str>,
    /// The backend that ran it.
    pub backend: Backend,
    /// The device's own name, e.g. `NVIDIA H200`.
    pub device: Cow<'static, str>,
    /// Why it ran here rather than where it was asked to; `None` if it ran where asked.
    pub fallback: Option<Cow<'static, str>>,
    /// How often it ran.
    pub calls: u64,
    /// Wall-clock seconds over all calls. Never part of a hash.
    pub seconds: f64,
}

/// Where the operations of a fit or a prediction ran, and what they took.
///
/// Entries stand in order of first use. Calls of one operation on the same device for the
/// same reason share an entry.
///
/// ```
/// use detml_core::{Backend, ExecutionReport};
///
/// let mut report = ExecutionReport::new();
/// report.record("histogram", Backend::Cuda(0), "NVIDIA H200", None, 0.25);
/// report.record("histogram", Backend::Cuda(0), "NVIDIA H200", None, 0.50);
/// report.record("sort", Backend::Cpu, "cpu", Some("fewer than 64 rows"), 0.01);
/// assert_eq!(report.entries()[0].calls, 2);
/// assert_eq!(report.seconds(), 0.76);
/// assert!(!report.ran_only_on(Backend::Cuda(0)));
/// println!("{report}");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExecutionReport {
    entries: Vec<ReportEntry>,
}

impl ExecutionReport {
    /// A report of nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one call of `operation` which took `seconds` on `device`.
    pub fn record(
        &mut self,
        operation: impl Into<Cow<'static, str>>,
        backend: Backend,
        device: impl Into<Cow<'static, str>>,
        fallback: Option<&str>,
        seconds: f64,
    ) {
        self.add(ReportEntry {
            operation: operation.into(),
            backend,
            device: device.into(),
            fallback: fallback.map(|reason| Cow::Owned(reason.to_owned())),
            calls: 1,
            seconds,
        });
    }

    /// Adds an entry; one of the same operation, device and reason takes it in.
    pub fn add(&mut self, entry: ReportEntry) {
        let same = |other: &&mut ReportEntry| {
            other.operation == entry.operation
                && other.backend == entry.backend
                && other.device == entry.device
                && other.fallback == entry.fallback
        };
        match self.entries.iter_mut().find(same) {
            Some(old) => {
                old.calls = old.calls.saturating_add(entry.calls);
                old.seconds += entry.seconds;
            }
            None => self.entries.push(entry),
        }
    }

    /// Takes in another report, entry by entry.
    pub fn merge(&mut self, other: &Self) {
        for entry in &other.entries {
            self.add(entry.clone());
        }
    }

    /// The entries in order of first use.
    #[must_use]
    pub fn entries(&self) -> &[ReportEntry] {
        &self.entries
    }

    /// The entries that ran elsewhere than they were asked to.
    pub fn fallbacks(&self) -> impl Iterator<Item = &ReportEntry> {
        self.entries.iter().filter(|entry| entry.fallback.is_some())
    }

    /// True if every operation ran on `backend` (and if there was none).
    #[must_use]
    pub fn ran_only_on(&self, backend: Backend) -> bool {
        self.entries.iter().all(|entry| entry.backend == backend)
    }

    /// Seconds over all entries.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.entries.iter().map(|entry| entry.seconds).sum()
    }

    /// True if nothing was recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl fmt::Display for ExecutionReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.entries.is_empty() {
            return f.write_str("nothing ran");
        }
        let width = |cell: fn(&ReportEntry) -> usize, head: &str| {
            self.entries
                .iter()
                .map(cell)
                .max()
                .unwrap_or(0)
                .max(head.len())
        };
        let operation = width(|entry| entry.operation.chars().count(), "operation");
        let backend = width(|entry| entry.backend.to_string().len(), "backend");
        let device = width(|entry| entry.device.chars().count(), "device");
        write!(
            f,
            "{:operation$}  {:backend$}  {:device$}  {:>8}  {:>10}",
            "operation", "backend", "device", "calls", "seconds"
        )?;
        for entry in &self.entries {
            write!(
                f,
                "\n{:operation$}  {:backend$}  {:device$}  {:>8}  {:>10.4}",
                entry.operation, entry.backend, entry.device, entry.calls, entry.seconds
            )?;
            if let Some(reason) = &entry.fallback {
                write!(f, "  fell back: {reason}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_adds_calls_and_keeps_the_order() {
        let mut first = ExecutionReport::new();
        first.record("gemm", Backend::Wgpu(0), "llvmpipe", None, 1.0);
        first.record("sort", Backend::Cpu, "cpu", Some("too small"), 0.5);
        let mut second = ExecutionReport::new();
        second.record("sort", Backend::Cpu, "cpu", None, 0.25);
        second.record("gemm", Backend::Wgpu(0), "llvmpipe", None, 2.0);
        first.merge(&second);
        let seen: Vec<_> = first
            .entries()
            .iter()
            .map(|entry| (&*entry.operation, entry.calls, entry.seconds))
            .collect();
        assert_eq!(
            seen,
            [("gemm", 2, 3.0), ("sort", 1, 0.5), ("sort", 1, 0.25)]
        );
        assert_eq!(first.fallbacks().count(), 1);
    }

    #[test]
    fn the_table_lines_up() {
        let mut report = ExecutionReport::new();
        assert_eq!(report.to_string(), "nothing ran");
        report.record("gemm", Backend::Cuda(0), "NVIDIA H200", None, 1.25);
        report.record("prefix_sum", Backend::Cpu, "cpu", Some("no room"), 0.5);
        assert_eq!(
            report.to_string(),
            "operation   backend  device          calls     seconds\n\
             gemm        cuda:0   NVIDIA H200         1      1.2500\n\
             prefix_sum  cpu      cpu                 1      0.5000  fell back: no room"
        );
    }
}
