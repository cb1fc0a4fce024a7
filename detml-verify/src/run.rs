//! Running lanes on one device.

use crate::column::column;
use crate::environment;
use crate::fixtures::{Fixture, fixtures};
use crate::lanes::{Lane, lanes};
use crate::table::{MAX_NAME, Table, is_text};
use crate::witness::{FORMAT, Head, Line, MAX_REASON, today};
use detml_core::{Error, NUMERIC_PROFILE, Result, with_backend};
use detml_kernels::Device;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// How much is run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Depth {
    /// Some lanes on few small fixtures.
    Quick,
    /// Every lane on every fixture but the large ones.
    #[default]
    Usual,
    /// Everything.
    All,
}

/// Which lanes run on which fixtures.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// How much.
    pub depth: Depth,
    /// Only lanes whose name holds this.
    pub lanes: Option<String>,
    /// Only fixtures whose name holds this.
    pub fixtures: Option<String>,
}

/// The fixtures of the quick choice.
const QUICK: [&str; 4] = ["ties", "subnormal", "missing", "tiny"];

impl Selection {
    /// Whether a lane is chosen, of whatever depth.
    pub fn takes_lane(&self, name: &str) -> bool {
        self.lanes.as_deref().is_none_or(|part| name.contains(part))
    }

    /// Whether a fixture is chosen, of whatever depth.
    pub fn takes_fixture(&self, name: &str) -> bool {
        self.fixtures
            .as_deref()
            .is_none_or(|part| name.contains(part))
    }

    /// The lanes and fixtures that are chosen.
    ///
    /// # Errors
    /// `InvalidParameter` if a filter leaves nothing.
    pub fn resolve(&self) -> Result<(Vec<Lane>, Vec<Fixture>)> {
        let mut lanes = lanes();
        let mut fixtures = fixtures();
        let names = |all: &mut dyn Iterator<Item = String>| all.collect::<Vec<_>>().join(" ");
        let known = (
            names(&mut lanes.iter().map(|l| l.name.clone())),
            names(&mut fixtures.iter().map(|f| f.name.to_owned())),
        );
        lanes.retain(|l| self.takes_lane(&l.name) && (self.depth != Depth::Quick || l.quick));
        fixtures.retain(|f| {
            self.takes_fixture(f.name)
                && match self.depth {
                    // A fixture that is named is wanted, whatever its size.
                    _ if self.fixtures.is_some() => true,
                    Depth::Quick => QUICK.contains(&f.name),
                    Depth::Usual => !f.large,
                    Depth::All => true,
                }
        });
        if lanes.is_empty() {
            let asked = self.lanes.as_deref().unwrap_or_default();
            return Err(Error::parameter(
                "lanes",
                format!("a part of one of: {}", known.0),
                format!("`{}`", asked.escape_debug()),
            ));
        }
        if fixtures.is_empty() {
            let asked = self.fixtures.as_deref().unwrap_or_default();
            return Err(Error::parameter(
                "fixtures",
                format!("a part of one of: {}", known.1),
                format!("`{}`", asked.escape_debug()),
            ));
        }
        Ok((lanes, fixtures))
    }
}

/// The compilers that made the results of `device`.
fn toolchain() -> String {
    format!("{}; cubecl 0.10.0", env!("DETML_RUSTC"))
}

/// What a device is called; for the CPU its model, where the system tells it.
fn device_name(device: &Device) -> String {
    let cpu = environment::cpu();
    if device.is_cpu() && cpu != environment::UNKNOWN {
        cpu
    } else {
        environment::line(device.name(), MAX_NAME)
    }
}

/// How a device computes, in a few words.
///
/// # Errors
/// `DeviceRefused`, by the probe.
pub fn float_profile(device: &Device) -> Result<String> {
    use detml_kernels::ieee::Path;
    let profile = device.profile()?;
    let mut notes = Vec::new();
    for (name, path) in [
        ("fma", profile.fma),
        ("div", profile.div),
        ("sqrt", profile.sqrt),
        ("subnormal", profile.subnormal),
        ("convert", profile.convert),
    ] {
        match path {
            Path::Native => {}
            Path::Wide => notes.push(format!("{name} through binary64")),
            Path::Emulated => notes.push(format!("{name} emulated")),
        }
    }
    if profile.opaque {
        notes.push("opaque operands".into());
    }
    Ok(if notes.is_empty() {
        "native".into()
    } else {
        notes.join(", ")
    })
}

/// Runs the chosen lanes on `device` and hands on the lines of a witness, in order.
///
/// Code that asks for the current device gets `device`'s backend; that this is `device` itself
/// (a level of the CPU) is the caller's affair, by `DETML_SIMD`. `called` is what the head calls the
/// device, where its own name would hide what computes: an emulator's.
///
/// # Errors
/// `InvalidParameter` if `called` is no line of text of at most 200 bytes; those of the selection, of the probe and of `emit`.
pub fn witness(
    device: &Device,
    called: Option<&str>,
    selection: &Selection,
    mut emit: impl FnMut(Line) -> Result<()>,
) -> Result<()> {
    let (lanes, fixtures) = selection.resolve()?;
    if let Some(called) = called.filter(|called| !is_text(called)) {
        return Err(Error::parameter(
            "called",
            "a line of text",
            format!("`{}`", called.escape_debug()),
        ));
    }
    emit(Line::Witness(Box::new(Head {
        format: FORMAT,
        profile: NUMERIC_PROFILE.into(),
        version: env!("CARGO_PKG_VERSION").into(),
        reference: Table::built_in()?.digest(),
        column: column(device),
        device: called.map_or_else(|| device_name(device), str::to_owned),
        driver: environment::driver(device),
        float_profile: float_profile(device)?,
        system: environment::system(),
        arch: std::env::consts::ARCH.into(),
        cpu: environment::cpu(),
        toolchain: toolchain(),
        features: environment::features(),
        date: today(),
    })))?;
    let start = Instant::now();
    let mut lines = 0;
    for lane in &lanes {
        for fixture in &fixtures {
            emit(line(device, lane, fixture))?;
            lines += 1;
        }
    }
    emit(Line::End {
        lines,
        microseconds: microseconds(start),
    })
}

fn microseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}

fn line(device: &Device, lane: &Lane, fixture: &Fixture) -> Line {
    let (name, on) = (lane.name.clone(), fixture.name.to_owned());
    if let Some(reason) = lane.refuses(device, fixture) {
        return Line::NotApplicable {
            lane: name,
            fixture: on,
            reason: reason.into(),
        };
    }
    let start = Instant::now();
    let reason = |error: Error| environment::line(&error.to_string(), MAX_REASON);
    match hashes(device, lane, fixture) {
        Ok(parts) => Line::Hashes {
            lane: name,
            fixture: on,
            microseconds: microseconds(start),
            parts,
        },
        // What detml says it does not offer, by name.
        Err(error @ Error::Unsupported { .. }) => Line::NotApplicable {
            lane: name,
            fixture: on,
            reason: reason(error),
        },
        Err(error) => Line::Refused {
            lane: name,
            fixture: on,
            reason: reason(error),
        },
    }
}

/// The hashes of a lane's parts on a fixture.
///
/// # Errors
/// Those of the lane; `Internal` if it panics.
pub fn hashes(device: &Device, lane: &Lane, fixture: &Fixture) -> Result<BTreeMap<String, String>> {
    let run = || with_backend(device.backend(), || lane.run(device, fixture));
    let parts = catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        Error::internal(format!("{} on {}: panic: {text}", lane.name, fixture.name))
    })??;
    Ok(parts
        .into_iter()
        .map(|(part, hash)| (part.to_owned(), hash.to_string()))
        .collect())
}
