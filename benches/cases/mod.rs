//! What is measured: one list for criterion (`ops`) and for the table (`table`).

pub(crate) mod attention;
pub(crate) mod conv;
pub(crate) mod elementwise;
pub(crate) mod explain;
pub(crate) mod gemm;
pub(crate) mod histogram;
pub(crate) mod launch;
pub(crate) mod movement;
pub(crate) mod near;
pub(crate) mod recurrence;
pub(crate) mod reduce;
pub(crate) mod rowwise;
pub(crate) mod sort;

use detml_core::Result;
use detml_kernels::{Buffer, Device};

/// A call of what is measured; its inputs lie on the device already.
pub(crate) type Work = Box<dyn FnMut() -> Result<()>>;

/// One operation at one size.
pub(crate) struct Case {
    pub(crate) group: &'static str,
    /// As the peers in `benches/peers` name it.
    pub(crate) name: String,
    /// Bytes that must be read or written, each once.
    pub(crate) bytes: usize,
    /// Floating-point operations that the formula needs; a fused multiply-add is two.
    pub(crate) flops: usize,
    make: Box<dyn Fn(&Device) -> Result<Work>>,
}

impl Case {
    /// A case whose `make` uploads inputs and returns the call.
    pub(crate) fn new<W: FnMut() -> Result<()> + 'static>(
        group: &'static str,
        name: impl Into<String>,
        bytes: usize,
        flops: usize,
        make: impl Fn(&Device) -> Result<W> + 'static,
    ) -> Self {
        Self {
            group,
            name: name.into(),
            bytes,
            flops,
            make: Box::new(move |device| Ok(Box::new(make(device)?))),
        }
    }

    pub(crate) fn make(&self, device: &Device) -> Result<Work> {
        (self.make)(device)
    }
}

/// For which machine sizes are chosen.
#[derive(Clone, Copy)]
pub(crate) struct Scale {
    pub(crate) gpu: bool,
}

impl Scale {
    pub(crate) fn of(device: &Device) -> Self {
        Self {
            gpu: !device.is_cpu(),
        }
    }

    /// Elements of a large array: 256 MiB on a GPU and 64 MiB on a CPU, or
    /// `DETML_BENCH_ELEMENTS`.
    pub(crate) fn elements(&self) -> usize {
        std::env::var("DETML_BENCH_ELEMENTS")
            .ok()
            .and_then(|n| n.parse().ok())
            .unwrap_or(if self.gpu { 1 << 26 } else { 1 << 24 })
    }
}

pub(crate) fn all(scale: Scale) -> Vec<Case> {
    let mut cases = Vec::new();
    cases.extend(launch::cases(scale));
    cases.extend(attention::cases(scale));
    cases.extend(elementwise::cases(scale));
    cases.extend(reduce::cases(scale));
    cases.extend(rowwise::cases(scale));
    cases.extend(movement::cases(scale));
    cases.extend(near::cases(scale));
    cases.extend(explain::cases(scale));
    cases.extend(recurrence::cases(scale));
    cases.extend(conv::cases(scale));
    cases.extend(sort::cases(scale));
    cases.extend(histogram::cases(scale));
    cases.extend(gemm::cases(scale));
    cases
}

/// Numbers in -0.5..0.5.
pub(crate) fn numbers(n: usize) -> Vec<f32> {
    (0..n as u32)
        .map(|i| (i.wrapping_mul(2_654_435_769) >> 8) as f32 / 16_777_216.0 - 0.5)
        .collect()
}

pub(crate) fn upload(device: &Device, n: usize) -> Result<Buffer<f32>> {
    device.upload(&numbers(n))
}

/// Words of any bits.
pub(crate) fn words(n: usize) -> Vec<u32> {
    (0..n as u32)
        .map(|i| {
            let x = (i ^ (i >> 16)).wrapping_mul(0x21f0_aaad);
            let x = (x ^ (x >> 15)).wrapping_mul(0x735a_2d97);
            x ^ (x >> 15)
        })
        .collect()
}
