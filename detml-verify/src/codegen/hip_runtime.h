// What kernels use of HIP's headers, on the compiler's own built-ins, so that a clang without
// ROCm compiles their text. ROCm's header reaches the same built-ins through its device library.
#ifndef DETML_HIP

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __launch_bounds__(threads) __attribute__((amdgpu_flat_work_group_size(1, threads)))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define DETML_HIP static inline __device__ __attribute__((always_inline))

// Kernels use no such number; one that breaks the rules on purpose does.
typedef _Float16 __half;
typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned long ulong;

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
};
DETML_HIP uint3 make_uint3(unsigned x, unsigned y, unsigned z) { return uint3{x, y, z}; }

// Code object version 5 passes the numbers of blocks in the first three hidden arguments.
DETML_HIP unsigned detml_blocks(int axis) {
    return ((const __attribute__((address_space(4))) unsigned *)
                __builtin_amdgcn_implicitarg_ptr())[axis];
}
#define threadIdx                                                                                  \
    (uint3{__builtin_amdgcn_workitem_id_x(), __builtin_amdgcn_workitem_id_y(),                    \
           __builtin_amdgcn_workitem_id_z()})
#define blockIdx                                                                                   \
    (uint3{__builtin_amdgcn_workgroup_id_x(), __builtin_amdgcn_workgroup_id_y(),                  \
           __builtin_amdgcn_workgroup_id_z()})
#define blockDim                                                                                   \
    (dim3{__builtin_amdgcn_workgroup_size_x(), __builtin_amdgcn_workgroup_size_y(),               \
          __builtin_amdgcn_workgroup_size_z()})
#define gridDim (dim3{detml_blocks(0), detml_blocks(1), detml_blocks(2)})
#define warpSize __builtin_amdgcn_wavefrontsize()

DETML_HIP void __syncthreads() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
DETML_HIP void __threadfence() { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "agent"); }

DETML_HIP float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DETML_HIP float sqrt(float x) { return __builtin_sqrtf(x); }
DETML_HIP float abs(float x) { return __builtin_fabsf(x); }
// Kernels use none of these; those that break rules on purpose do.
DETML_HIP float exp(float x) { return __builtin_expf(x); }
DETML_HIP float log(float x) { return __builtin_logf(x); }
DETML_HIP float sin(float x) { return __builtin_sinf(x); }
DETML_HIP float cos(float x) { return __builtin_cosf(x); }

DETML_HIP int __clz(unsigned x) { return x == 0 ? 32 : __builtin_clz(x); }
DETML_HIP int __ffs(unsigned x) { return __builtin_ffs(x); }
DETML_HIP int __popc(unsigned x) { return __builtin_popcount(x); }
DETML_HIP unsigned __brev(unsigned x) { return __builtin_bitreverse32(x); }
DETML_HIP unsigned __umulhi(unsigned a, unsigned b) {
    return (unsigned long)a * b >> 32;
}
DETML_HIP int __mulhi(int a, int b) { return (long)a * b >> 32; }

template <typename T> DETML_HIP T min(T a, T b) { return b < a ? b : a; }
template <typename T> DETML_HIP T max(T a, T b) { return a < b ? b : a; }

#define DETML_ATOMIC(name, operation)                                                              \
    template <typename T> DETML_HIP T name(T *at, T value) {                                       \
        return operation(at, value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);                   \
    }
DETML_ATOMIC(atomicAdd, __hip_atomic_fetch_add)
DETML_ATOMIC(atomicAnd, __hip_atomic_fetch_and)
DETML_ATOMIC(atomicOr, __hip_atomic_fetch_or)
DETML_ATOMIC(atomicXor, __hip_atomic_fetch_xor)
DETML_ATOMIC(atomicMin, __hip_atomic_fetch_min)
DETML_ATOMIC(atomicMax, __hip_atomic_fetch_max)
DETML_ATOMIC(atomicExch, __hip_atomic_exchange)
template <typename T> DETML_HIP T atomicSub(T *at, T value) {
    return __hip_atomic_fetch_add(at, -value, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
template <typename T> DETML_HIP T atomicCAS(T *at, T expected, T value) {
    __hip_atomic_compare_exchange_strong(at, &expected, value, __ATOMIC_RELAXED, __ATOMIC_RELAXED,
                                         __HIP_MEMORY_SCOPE_AGENT);
    return expected;
}
#endif
