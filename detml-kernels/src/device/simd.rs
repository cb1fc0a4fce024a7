//! Instruction-set levels of the CPU path.

use crate::ieee::Ieee;
use detml_core::Error;
use std::sync::OnceLock;

/// The instruction set that CPU loops are compiled for. Every level gives the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Simd {
    /// What every CPU of the architecture has; fused multiply-add through binary64.
    Plain,
    /// Arm NEON, part of every 64-bit Arm CPU.
    Neon,
    /// x86-64 with AVX2 and FMA.
    Avx2,
    /// x86-64 with AVX-512 F, BW, DQ and VL.
    Avx512,
}

/// A CPU loop, compiled once for each level.
///
/// `run` and everything it calls must be `#[inline(always)]`: only then is the loop compiled
/// with the instructions of the level that runs it.
/// So it is a plain `for` loop: the inside of a `collect`, `fold` or `map` over an array may be
/// compiled apart, for the plain level, where each `fma` is a call.
pub(crate) trait Loop {
    type Output;
    fn run(self, ieee: Ieee) -> Self::Output;
}

impl Simd {
    /// The best level of this CPU, or the one that the environment variable `DETML_SIMD` forces
    /// (`plain`, `neon`, `avx2`, `avx512`).
    ///
    /// # Errors
    /// `Error::InvalidParameter` if `DETML_SIMD` names no level or one that this CPU lacks.
    pub fn current() -> Result<Self, Error> {
        static CURRENT: OnceLock<Result<Simd, Error>> = OnceLock::new();
        CURRENT
            .get_or_init(|| match std::env::var("DETML_SIMD") {
                Ok(name) => Self::named(&name),
                Err(_) => Ok(Self::best()),
            })
            .clone()
    }

    /// The best level of this CPU.
    pub fn best() -> Self {
        [Self::Avx512, Self::Avx2, Self::Neon]
            .into_iter()
            .find(|level| level.is_available())
            .unwrap_or(Self::Plain)
    }

    /// Every level that this CPU can run, worst first.
    pub fn available() -> Vec<Self> {
        [Self::Plain, Self::Neon, Self::Avx2, Self::Avx512]
            .into_iter()
            .filter(|level| level.is_available())
            .collect()
    }

    fn named(name: &str) -> Result<Self, Error> {
        let level = match name.to_ascii_lowercase().as_str() {
            "plain" => Self::Plain,
            "neon" => Self::Neon,
            "avx2" => Self::Avx2,
            "avx512" => Self::Avx512,
            _ => {
                return Err(Error::InvalidParameter {
                    name: "DETML_SIMD".into(),
                    expected: "plain, neon, avx2 or avx512".into(),
                    got: name.into(),
                });
            }
        };
        if level.is_available() {
            Ok(level)
        } else {
            Err(Error::InvalidParameter {
                name: "DETML_SIMD".into(),
                expected: "a level that this CPU has".into(),
                got: name.into(),
            })
        }
    }

    /// Whether this CPU can run the level.
    pub fn is_available(self) -> bool {
        match self {
            Self::Plain => true,
            Self::Neon => cfg!(target_arch = "aarch64"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("fma")
            }
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Avx512 => false,
        }
    }

    /// Runs `body` compiled for this level.
    #[inline]
    pub(crate) fn dispatch<L: Loop>(self, body: L) -> L::Output {
        // One arm for all that isn't this architecture's: each arm is a copy of the loop.
        match self {
            // Every aarch64 target has fused multiply-add.
            #[cfg(target_arch = "aarch64")]
            Self::Neon => body.run(Ieee::FMA),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: a level is only made where `is_available` has seen its features.
            Self::Avx2 => unsafe { avx2(body) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: as above.
            Self::Avx512 => unsafe { avx512(body) },
            _ => body.run(Ieee::PLAIN),
        }
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt")]
pub(crate) fn avx2<L: Loop>(body: L) -> L::Output {
    body.run(Ieee::FMA)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl")]
pub(crate) fn avx512<L: Loop>(body: L) -> L::Output {
    body.run(Ieee::FMA)
}
