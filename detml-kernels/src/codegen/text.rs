//! Text of kernels for targets that needn't be present, as the launch layer hands it to the
//! driver's compiler.

use crate::device::Kernel;
use crate::device::text::Language;
use crate::ieee::Path;
use cubecl::ir::AddressType;
use cubecl_core::{Compiler, ExecutionMode, WgpuCompilationOptions};
use cubecl_cpp::cuda::CudaDialect;
use cubecl_cpp::cuda::mma::CudaWmmaCompiler;
use cubecl_cpp::hip::HipDialect;
use cubecl_cpp::hip::mma::WmmaIntrinsicCompiler;
use cubecl_cpp::metal::MslDialect;
use cubecl_cpp::shared::{CompilationOptions, CppCompiler, CppSupportedFeatures};
use cubecl_spirv::SpirvCompiler;
use cubecl_wgpu::WgslCompiler;
use detml_core::{Error, Result};
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Every language that kernels are written in.
pub const LANGUAGES: [Language; 5] = [
    Language::Cuda,
    Language::Hip,
    Language::Metal,
    Language::Wgsl,
    Language::SpirV,
];

/// The extension of a file with text of `language`.
pub fn extension(language: Language) -> &'static str {
    match language {
        Language::Cuda => "cu",
        Language::Hip => "hip",
        Language::Metal => "metal",
        Language::Wgsl => "wgsl",
        Language::SpirV => "spvasm",
    }
}

/// Whether `kernel` is printed in `language`. Vulkan promises no fused arithmetic, and unrolled
/// kernels take CubeCL minutes on the way to SPIR-V.
pub fn has_text(kernel: &Kernel, language: Language) -> bool {
    language != Language::SpirV || kernel.profile().fma != Path::Native
}

/// The text of `kernel` in `language`; SPIR-V disassembled.
///
/// # Errors
/// `KernelCompilation` if CubeCL's compiler for the language refuses the kernel.
pub fn text(kernel: &Kernel, language: Language) -> Result<String> {
    // What CubeCL's runtimes ask for on an H200 and on AMD and Apple devices.
    let cpp = |fast_math, grid_constants| CompilationOptions {
        warp_size: 32,
        supports_features: CppSupportedFeatures {
            fast_math,
            grid_constants,
            ..CppSupportedFeatures::default()
        },
    };
    let mut wgpu = WgpuCompilationOptions::default();
    wgpu.vulkan.max_spirv_version = (1, 3);
    let source = match language {
        Language::Cuda => {
            compile::<CppCompiler<CudaDialect<CudaWmmaCompiler>>>(kernel, &cpp(true, true))
        }
        Language::Hip => {
            compile::<CppCompiler<HipDialect<WmmaIntrinsicCompiler>>>(kernel, &cpp(false, false))
        }
        Language::Metal => compile::<CppCompiler<MslDialect>>(kernel, &cpp(false, false)),
        Language::Wgsl => compile::<WgslCompiler>(kernel, &wgpu),
        Language::SpirV => compile::<SpirvCompiler>(kernel, &wgpu),
    }?;
    Ok(kernel.text(language, &source))
}

fn compile<C: Compiler + Default>(
    kernel: &Kernel,
    options: &C::CompilationOptions,
) -> Result<String>
where
    C::Representation: Display,
{
    let refused = |reason: String| Error::KernelCompilation {
        kernel: format!("{kernel:?}"),
        reason,
    };
    // CubeCL's compilers panic on what they can't print.
    catch_unwind(AssertUnwindSafe(|| {
        C::default()
            .compile(
                kernel.definition(None),
                options,
                ExecutionMode::Unchecked,
                AddressType::U32.unsigned_type(),
            )
            .map(|compiled| compiled.to_string())
            .map_err(|error| error.to_string())
    }))
    .unwrap_or_else(|panic| {
        Err(panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()))
            .unwrap_or_else(|| "the compiler panicked".into()))
    })
    .map_err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codegen::{PROFILES, kernels};

    #[test]
    fn pragmas_against_contraction_are_in_place() {
        let (_, profile) = PROFILES[0];
        for kernel in kernels(profile) {
            let metal = text(&kernel, Language::Metal).unwrap();
            assert!(
                metal.contains(
                    "using namespace metal;\n#pragma METAL fp math_mode(safe)\n\
                     #pragma METAL fp contract(off)"
                ),
                "{metal}"
            );
            let hip = text(&kernel, Language::Hip).unwrap();
            assert!(hip.starts_with("#pragma clang fp contract(off)"), "{hip}");
        }
    }
}
