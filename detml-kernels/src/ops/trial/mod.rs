//! trial
use crate::device::{Buffer, Device, Kernel, Loop, args};
use crate::ieee::{FloatProfile, Ieee};
use cubecl::prelude::*;
use detml_core::Result;

#[cube]
#[inline(always)]
fn body(ieee: Ieee, x: f32, y: f32) -> f32 {
    ieee.add(x, y)
}

#[cube]
fn add_kernel(ieee: Ieee, x: &Array<f32>, y: &Array<f32>, out: &mut Array<f32>) {
    let i = ABSOLUTE_POS;
    if i < out.len() {
        out[i] = body(ieee, x[i], y[i]);
    }
}

pub(crate) fn kernel(profile: FloatProfile) -> Kernel {
    Kernel::new("add", profile, (), CubeDim::new_1d(256), |d| {
        let ieee = d.ieee();
        let (x, y, out) = (d.input::<f32>(), d.input::<f32>(), d.output::<f32>());
        add_kernel::expand(d.scope(), ieee, x, y, out);
    })
}

struct Add<'a>(&'a [f32], &'a [f32], &'a mut [f32]);
impl Loop for Add<'_> {
    type Output = ();
    #[inline(always)]
    fn run(self, ieee: Ieee) {
        for ((o, &a), &b) in self.2.iter_mut().zip(self.0).zip(self.1) {
            *o = body(ieee, a, b);
        }
    }
}

pub fn add(x: &Buffer<f32>, y: &Buffer<f32>) -> Result<Buffer<f32>> {
    let device: &Device = x.device();
    let mut out = device.empty(x.len())?;
    if let (Some(x), Some(y)) = (x.host(), y.host()) {
        device
            .simd()
            .unwrap()
            .dispatch(Add(x, y, out.host_mut().unwrap()));
    } else {
        device.launch(
            &kernel(device.profile()?),
            ((x.len() as u32).div_ceil(256), 1, 1),
            args![x, y, &mut out],
        )?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::*;
    fn adds(device: &Device) {
        let (x, y) = (any_bits(1, 1000), any_bits(2, 1000));
        let z = add(&device.upload(&x).unwrap(), &device.upload(&y).unwrap()).unwrap();
        println!("{device}");
        let e: Vec<f32> = x
            .iter()
            .zip(&y)
            .map(|(a, b)| a + b)
            .map(|z| {
                if z.is_nan() {
                    f32::from_bits(0x7fc00000)
                } else {
                    z
                }
            })
            .collect();
        let z: Vec<f32> = device
            .read(&z)
            .unwrap()
            .iter()
            .map(|&z| {
                if z.is_nan() {
                    f32::from_bits(0x7fc00000)
                } else {
                    z
                }
            })
            .collect();
        assert_bits("sum", &z, &e);
    }
    backend_suite! { adds }
}
