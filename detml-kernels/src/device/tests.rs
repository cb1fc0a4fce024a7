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

/// Lengths that no memory holds are a typed error on every device, and it goes on working.
fn absurd_lengths_are_out_of_memory(device: &Device) {
    for len in [usize::MAX, usize::MAX / 4, usize::MAX / 8, 1 << 60, 1 << 45] {
        match device.empty::<f32>(len) {
            Err(Error::OutOfMemory { requested, .. }) => {
                assert_eq!(requested, (len as u64).saturating_mul(4));
            }
            other => panic!("{len} on {device}: expected OutOfMemory, got {other:?}"),
        }
        let filled = crate::ops::elementwise::fill(device, len, 1u32);
        assert!(matches!(filled, Err(Error::OutOfMemory { .. })), "{len}");
    }
    round_trip_keeps_every_bit(device);
}

/// Memory that is taken until there is none left ends in a typed error too. Systems promise more
/// host memory than they have, so this is for devices with their own.
fn memory_runs_out_by_name(device: &Device) {
    if !matches!(device.backend(), Backend::Cuda(_) | Backend::Hip(_)) {
        return;
    }
    // 4 GiB each: more than a thousand of them is more than any device has.
    let mut taken = Vec::new();
    let error = loop {
        match device.empty::<u32>(1 << 30) {
            Ok(buffer) => taken.push(buffer),
            Err(error) => break error,
        }
        assert!(taken.len() < 1024);
    };
    assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
    drop(taken);
    round_trip_keeps_every_bit(device);
}

#[cube]
fn copy(out: &mut Array<f32>) {
    out[UNIT_POS as usize] = out[0];
}

/// A kernel that does not compile is named by its first launch, and by every later one.
fn a_kernel_that_does_not_compile_is_named(device: &Device) {
    if device.is_cpu() {
        return;
    }
    let kernel = |name, refuse| {
        let profile = device.profile().unwrap();
        Kernel::new(name, profile, (), CubeDim::new_1d(1), move |d| {
            let out = d.output::<f32>();
            if refuse {
                d.scope().push_error("on purpose");
            }
            copy::expand(d.scope(), out);
        })
    };
    let mut out = device.upload(&[1.0f32; 4]).unwrap();
    let (good, bad) = (kernel("compiles", false), kernel("does_not_compile", true));
    device.launch(&good, (1, 1, 1), args![&mut out]).unwrap();
    for _ in 0..2 {
        match device.launch(&bad, (1, 1, 1), args![&mut out]) {
            Err(Error::KernelCompilation { kernel, reason }) => {
                assert_eq!(kernel, "does_not_compile");
                assert!(reason.contains("on purpose"), "{reason}");
            }
            other => panic!("expected KernelCompilation, got {other:?}"),
        }
        device.launch(&good, (1, 1, 1), args![&mut out]).unwrap();
        assert_eq!(device.read(&out).unwrap(), [1.0; 4]);
    }
    // Nor does another thread get the error, or lose work by it.
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (good, bad) = (&good, &bad);
            scope.spawn(move || {
                let mut out = device.upload(&[1.0f32, 2.0, 3.0]).unwrap();
                for _ in 0..16 {
                    let kernel = if thread % 2 == 0 { good } else { bad };
                    let outcome = device.launch(kernel, (1, 1, 1), args![&mut out]);
                    assert_eq!(outcome.is_ok(), thread % 2 == 0, "{outcome:?}");
                    assert_eq!(device.read(&out).unwrap(), [1.0, 2.0, 3.0]);
                }
            });
        }
    });
}

/// Accesses outside their arrays: `which` says by whom.
#[cfg(feature = "gpu")]
#[cube]
fn wanders(x: &Array<f32>, out: &mut Array<f32>, beyond: u32, #[comptime] which: u32) {
    let unit = UNIT_POS;
    let mut shared = SharedMemory::<f32>::new(8usize);
    if unit < 8u32 {
        shared[unit as usize] = 1.0f32;
    }
    sync_cube();
    if comptime!(which == 0) {
        // Masked afterwards, so that no result shows it.
        let read = x[(unit + beyond) as usize];
        out[unit as usize] = select(unit < 4u32, read, 0.0f32);
    } else if comptime!(which == 1) {
        if unit == 3u32 {
            for i in 0..beyond + 1u32 {
                out[(unit + i) as usize] = 2.0f32;
            }
        }
    } else {
        if unit + beyond >= 8u32 {
            out[0] = shared[(unit + beyond) as usize];
            terminate!();
        }
        out[unit as usize] = 3.0f32;
    }
}

/// In the checked mode an access outside its array is an error that names the kernel, wherever
/// the access is; one inside is none.
#[cfg(feature = "gpu")]
fn an_access_outside_is_found(device: &Device) {
    let Kind::Gpu { gpu, .. } = &device.inner.kind else {
        return;
    };
    let x = device.upload(&[1.0f32; 8]).unwrap();
    let profile = device.profile().unwrap();
    for which in 0..3 {
        let kernel = Kernel::new("wanders", profile, which, CubeDim::new_1d(8), move |d| {
            let (x, out) = (d.input::<f32>(), d.output::<f32>());
            let beyond = d.scalar::<u32>();
            wanders::expand(d.scope(), x, out, beyond, which);
        });
        let launch = |beyond: u32| {
            let mut out = device.upload(&[9.0f32; 8]).unwrap();
            gpu.launch_checked(&kernel, (2, 1, 1), args![&x, &mut out, beyond])?;
            device.read(&out)
        };
        let inside = launch(0).unwrap();
        let text = match launch(5) {
            Err(error @ Error::Internal { .. }) => error.to_string(),
            other => panic!("expected Internal, got {other:?}"),
        };
        println!("{text}");
        assert!(
            text.contains("wanders") && text.contains("index "),
            "{text}"
        );
        assert_eq!(launch(0).unwrap(), inside);
    }
}

#[cfg(not(feature = "gpu"))]
fn an_access_outside_is_found(_: &Device) {}

/// Kernels that a device can't have are typed errors, and it goes on working.
fn refusals_leave_the_device_alive(device: &Device) {
    if device.is_cpu() {
        return;
    }

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
        match device.launch(&kernel(32), (1, 1, 1), args![&mut out]) {
            Err(Error::KernelCompilation { kernel, .. }) => assert_eq!(kernel, "too_much_shared"),
            other => panic!("expected KernelCompilation, got {other:?}"),
        }
    }
    round_trip_keeps_every_bit(device);
}

/// A chain that is run again and again takes nothing more from the device, and its buffers are
/// given back.
fn repeated_work_takes_no_new_memory(device: &Device) {
    use crate::ops::elementwise::{Binary, Unary, map, zip};
    let Some(before) = device.memory_use().unwrap() else {
        return;
    };
    assert!(before.held <= before.peak && before.held <= before.reserved);
    let x = device.upload(&any_bits(5, 300_000)).unwrap();
    let mut reserved = Vec::new();
    for _ in 0..100 {
        let y = map(Unary::Neg, &x).unwrap();
        let z = zip(Binary::Add, &x, &y).unwrap();
        let small = device.upload(&[1.0f32; 100]).unwrap();
        device.read(&small).unwrap();
        drop((y, small));
        device.read(&map(Unary::Neg, &z).unwrap()).unwrap();
        reserved.push(device.memory_use().unwrap().unwrap().reserved);
    }
    // Other tests use the device at the same time: what they take is not this chain's.
    let alone = std::env::var_os("NEXTEST").is_some();
    if alone {
        assert!(
            reserved[10..].iter().all(|r| *r == reserved[10]),
            "{reserved:?}"
        );
        device.reset_memory_peak();
        let held = device.memory_use().unwrap().unwrap().held;
        let y = map(Unary::Neg, &x).unwrap();
        drop(map(Unary::Neg, &y).unwrap());
        drop(y);
        let after = device.memory_use().unwrap().unwrap();
        assert_eq!((after.held, after.peak), (held, held + 2 * 4 * 300_000));
    }
}

backend_suite! {
    repeated_work_takes_no_new_memory,
    round_trip_keeps_every_bit,
    absurd_lengths_are_out_of_memory,
    memory_runs_out_by_name,
    a_kernel_that_does_not_compile_is_named,
    an_access_outside_is_found,
    refusals_leave_the_device_alive,
}

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
