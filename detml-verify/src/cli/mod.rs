//! The commands.

#[cfg(feature = "codegen")]
pub(crate) mod codegen;
pub(crate) mod compare;
pub(crate) mod doctor;
pub(crate) mod math;
pub(crate) mod matrix;
pub(crate) mod sabotage;
pub(crate) mod self_test;
pub(crate) mod trace;
pub(crate) mod verify;
pub(crate) mod witness;

use detml_core::{Backend, Result};
use detml_kernels::Device;
use detml_verify::run::{Depth, Selection};
use detml_verify::table::Table;
use std::path::PathBuf;

/// Which lanes run on which fixtures.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Choice {
    /// Some lanes on few small fixtures.
    #[arg(long, conflicts_with = "all")]
    quick: bool,
    /// The large fixtures too.
    #[arg(long)]
    all: bool,
    /// Only lanes whose name holds this.
    #[arg(long, value_name = "PART")]
    lanes: Option<String>,
    /// Only fixtures whose name holds this.
    #[arg(long, value_name = "PART")]
    fixtures: Option<String>,
}

impl Choice {
    pub(crate) fn selection(&self) -> Selection {
        Selection {
            depth: match (self.quick, self.all) {
                (true, _) => Depth::Quick,
                (_, true) => Depth::All,
                _ => Depth::Usual,
            },
            lanes: self.lanes.clone(),
            fixtures: self.fixtures.clone(),
        }
    }

    /// The same choice as arguments.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut arguments = Vec::new();
        if self.quick {
            arguments.push("--quick".into());
        }
        if self.all {
            arguments.push("--all".into());
        }
        for (name, value) in [("--lanes", &self.lanes), ("--fixtures", &self.fixtures)] {
            if let Some(value) = value {
                arguments.push(format!("{name}={value}"));
            }
        }
        arguments
    }
}

/// Which reference is compared with.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Reference {
    /// Another reference table than the one this build was made with.
    #[arg(long, value_name = "FILE")]
    reference: Option<PathBuf>,
}

impl Reference {
    pub(crate) fn table(&self) -> Result<Table> {
        match &self.reference {
            Some(path) => Table::load(path),
            None => Table::built_in(),
        }
    }
}

/// The device of `--backend`, or of the environment.
pub(crate) fn device(backend: Option<Backend>) -> Result<Device> {
    match backend {
        Some(backend) => Device::for_backend(backend),
        None => Device::current(),
    }
}
