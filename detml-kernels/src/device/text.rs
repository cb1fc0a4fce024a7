//! What becomes of a kernel's text before the driver compiles it: pragmas deny a target's compiler
//! its contraction, and headers that no kernel uses are dropped.
//!
//! The pragmas are a second fence: the kernels hold no bare product (`N2`) and stay right without.

/// What a kernel's text is written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Language {
    /// CUDA C++. NVRTC ignores every source-level switch for contraction.
    Cuda,
    /// HIP C++.
    Hip,
    /// Metal Shading Language.
    Metal,
    /// WebGPU's language.
    Wgsl,
    /// SPIR-V.
    SpirV,
}

/// `source` with the pragmas that its language has against contraction, without headers that cost
/// more than the kernel.
pub fn for_driver(language: Language, source: &str) -> String {
    match language {
        Language::Metal => insert_after(
            // CubeCL reads a scalar's bits through a reference to `device` memory, but scalars lie
            // in `constant` memory, and Metal has no cast from one to the other.
            &source.replace(
                "_cast<device uint const&>(info.",
                "_cast<constant uint const&>(info.",
            ),
            "using namespace metal;",
            "#pragma METAL fp math_mode(safe)\n#pragma METAL fp contract(off)",
        ),
        // Clang accepts the pragma at file scope, before any declaration it governs.
        Language::Hip => format!("#pragma clang fp contract(off)\n{source}"),
        // NVRTC has built in what kernels use of it; reading it takes longer than compiling them.
        Language::Cuda => source.replacen("#include <cuda_runtime.h>\n", "", 1),
        Language::Wgsl | Language::SpirV => source.to_owned(),
    }
}

fn insert_after(source: &str, line: &str, text: &str) -> String {
    match source.find(line) {
        Some(at) => {
            let (head, tail) = source.split_at(at + line.len());
            format!("{head}\n{text}{tail}")
        }
        None => format!("{text}\n{source}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metal_gets_its_pragmas_after_the_namespace() {
        let source = "#include <metal_stdlib>\nusing namespace metal;\n[[kernel]] void k() {}";
        assert_eq!(
            for_driver(Language::Metal, source),
            "#include <metal_stdlib>\nusing namespace metal;\n\
             #pragma METAL fp math_mode(safe)\n#pragma METAL fp contract(off)\n\
             [[kernel]] void k() {}"
        );
    }

    #[test]
    fn metal_reads_bits_of_scalars_where_they_are() {
        let source =
            "const uint l_0 = reinterpret_cast<device uint const&>(info.scalars_float[2]);";
        let text = for_driver(Language::Metal, source);
        assert!(
            text.ends_with("reinterpret_cast<constant uint const&>(info.scalars_float[2]);"),
            "{text}"
        );
    }

    #[test]
    fn hip_gets_its_pragma_first() {
        let text = for_driver(Language::Hip, "extern \"C\" __global__ void k() {}");
        assert!(text.starts_with("#pragma clang fp contract(off)\n"));
    }

    #[test]
    fn cuda_goes_without_the_runtime_header() {
        let text = "#include <cuda_runtime.h>\n#include <cuda_fp16.h>\nx";
        assert_eq!(
            for_driver(Language::Cuda, text),
            "#include <cuda_fp16.h>\nx"
        );
    }

    #[test]
    fn other_languages_are_left_alone() {
        assert_eq!(for_driver(Language::SpirV, "x"), "x");
    }
}
