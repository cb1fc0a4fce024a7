// What kernels use of HIP's headers, for the emulator.
#pragma once
#define DETML_KERNEL
#include "emulated.h"

#define __global__
#define __device__
#define __launch_bounds__(threads)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define DETML_HIP static inline

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

#define DETML_3(type, of) (type{detml_launch->of[0], detml_launch->of[1], detml_launch->of[2]})
#define threadIdx DETML_3(uint3, thread)
#define blockIdx DETML_3(uint3, block)
#define blockDim DETML_3(dim3, threads)
#define gridDim DETML_3(dim3, blocks)
#define warpSize (detml_launch->wave)

DETML_HIP void __syncthreads() { detml_launch->block_barrier(); }
// One thread runs at a time.
DETML_HIP void __threadfence() {}

template <typename T> DETML_HIP T __shfl(T value, int lane) { return detml_exchange(value, lane); }
template <typename T> DETML_HIP T __shfl_xor(T value, int mask) {
    return detml_exchange(value, detml_lane() ^ mask);
}
template <typename T> DETML_HIP T __shfl_down(T value, unsigned by) {
    unsigned lane = detml_lane() + by;
    return detml_exchange(value, lane < warpSize ? lane : detml_lane());
}
template <typename T> DETML_HIP T __shfl_up(T value, unsigned by) {
    unsigned lane = detml_lane();
    return detml_exchange(value, lane < by ? lane : lane - by);
}

DETML_HIP float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
DETML_HIP float sqrt(float x) { return __builtin_sqrtf(x); }
DETML_HIP float abs(float x) { return __builtin_fabsf(x); }

DETML_HIP int __clz(unsigned x) { return x == 0 ? 32 : __builtin_clz(x); }
DETML_HIP int __ffs(unsigned x) { return __builtin_ffs(x); }
DETML_HIP int __popc(unsigned x) { return __builtin_popcount(x); }
DETML_HIP unsigned __brev(unsigned x) { return __builtin_bitreverse32(x); }
DETML_HIP unsigned __umulhi(unsigned a, unsigned b) { return (unsigned long)a * b >> 32; }
DETML_HIP int __mulhi(int a, int b) { return (long)a * b >> 32; }

template <typename T> DETML_HIP T min(T a, T b) { return b < a ? b : a; }
template <typename T> DETML_HIP T max(T a, T b) { return a < b ? b : a; }

#define DETML_ATOMIC(name, result)                                                                 \
    template <typename T> DETML_HIP T name(T *at, T value) {                                       \
        T old = *at;                                                                               \
        *at = result;                                                                              \
        return old;                                                                                \
    }
DETML_ATOMIC(atomicAdd, old + value)
DETML_ATOMIC(atomicSub, old - value)
DETML_ATOMIC(atomicAnd, old & value)
DETML_ATOMIC(atomicOr, old | value)
DETML_ATOMIC(atomicXor, old ^ value)
DETML_ATOMIC(atomicMin, min(old, value))
DETML_ATOMIC(atomicMax, max(old, value))
DETML_ATOMIC(atomicExch, value)
template <typename T> DETML_HIP T atomicCAS(T *at, T expected, T value) {
    T old = *at;
    if (old == expected) *at = value;
    return old;
}
