use super::*;
use crate::suite::*;
use cubecl::prelude::*;

fn round_trip_keeps_every_bit(device: &Device) {
    for n in [0, 1, 7, 1000] {
        let x = any_bits(3, n);
        let got = device.read(&device.upload(&x).unwrap()).unwrap();
        assert_bits("round trip", &got, &x);
    }
    let words = [0u32, 1, u32::MAX];
    assert_eq!(device.read(&device.upload(&words).unwrap()).unwrap(), words);
    let signed = [i32::MIN, -1, i32::MAX];
    assert_eq!(
        device.read(&device.upload(&signed).unwrap()).unwrap(),
        signed
    );
}

#[cube]
fn too_much_shared(out: &mut Array<f32>) {
    let mut shared = SharedMemory::<f32>::new(1usize << 24);
    shared[UNIT_POS as usize] = out[0];
    sync_cube();
    out[UNIT_POS as usize] = shared[0];
}

/// Memory and kernels that a device can't have are typed errors, and it goes on working.
fn refusals_leave_the_device_alive(device: &Device) {
    if device.is_cpu() {
        return;
    }
    match device.empty::<f32>(usize::MAX / 8) {
        Err(Error::OutOfMemory { .. }) => {}
        other => panic!("expected OutOfMemory, got {other:?}"),
    }
    round_trip_keeps_every_bit(device);

    let profile = device.profile().unwrap();
    let kernel = |units| {
        Kernel::new(
            "too_much_shared",
            profile,
            (),
            CubeDim::new_1d(units),
            |d| {
                let out = d.output::<f32>();
                too_much_shared::expand(d.scope(), out);
            },
        )
    };
    let mut out = device.upload(&[1.0f32; 32]).unwrap();
    let outcome = device.launch(&kernel(1 << 20), (1, 1, 1), args![&mut out]);
    assert!(
        matches!(outcome, Err(Error::KernelCompilation { .. })),
        "{outcome:?}"
    );
    // Mesa's CPU driver gives a cube as much shared memory as there is.
    if matches!(device.backend(), Backend::Cuda(_) | Backend::Hip(_)) {
        let outcome = device
            .launch(&kernel(32), (1, 1, 1), args![&mut out])
            .and_then(|()| device.read(&out));
        assert!(
            matches!(outcome, Err(Error::KernelCompilation { .. })),
            "{outcome:?}"
        );
    }
    round_trip_keeps_every_bit(device);
}

backend_suite! { round_trip_keeps_every_bit, refusals_leave_the_device_alive }

#[test]
fn a_device_that_is_not_there_is_named() {
    for backend in [Backend::Cuda(99), Backend::Hip(99), Backend::Wgpu(99)] {
        match Device::for_backend(backend) {
            Err(Error::DeviceUnavailable { device, .. }) => {
                assert_eq!(device, backend.to_string());
            }
            other => panic!("expected DeviceUnavailable, got {other:?}"),
        }
    }
}

#[test]
fn the_best_device_is_always_one() {
    assert!(Device::for_backend(Backend::Auto).is_ok());
    assert_eq!(Device::cpu().backend(), Backend::Cpu);
}

#[test]
fn a_scope_chooses_the_device() {
    let device = detml_core::with_backend(Backend::Cpu, Device::current).unwrap();
    assert!(device.is_cpu());
    let absent = detml_core::with_backend(Backend::Hip(77), Device::current);
    assert!(matches!(absent, Err(Error::DeviceUnavailable { .. })));
}
