// Shows the emulator kernels that are wrong on purpose: each must be seen, and its corrected form
// must pass. Linked with the emulator.
#include "scheduler.h"

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

extern "C" {
int hiprtcCreateProgram(void **, const char *, const char *, int, const char **, const char **);
int hiprtcCompileProgram(void *, int, const char **);
int hiprtcGetCodeSize(void *, size_t *);
int hiprtcGetCode(void *, char *);
int hiprtcGetProgramLog(void *, char *);
int hiprtcGetProgramLogSize(void *, size_t *);
int hipModuleLoadData(void **, const void *);
int hipModuleGetFunction(void **, void *, const char *);
int hipModuleLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                          unsigned, void *, void **, void **);
void *detml_metal_compile(const char *, const char *, char *, size_t);
int detml_metal_launch(void *, const uint32_t *, const uint32_t *, void *const *, size_t, char *,
                       size_t);
}

namespace {

using Floats = std::vector<float>;
int failures = 0;

void check(bool holds, const char *what) {
    std::printf("%s %s\n", holds ? "ok  " : "FAIL", what);
    failures += !holds;
}

bool same(const Floats &a, const Floats &b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void set(const char *variable, int value) {
    setenv(variable, std::to_string(value).c_str(), 1);
}

// What `out` holds after `body` has run on `blocks` blocks of `threads` threads; `status` is the
// launch's.
Floats hip(const std::string &body, const Floats &x, size_t outputs, unsigned blocks,
           unsigned threads, int *status = nullptr) {
    std::string text = "#pragma clang fp contract(off)\n#include <hip/hip_runtime.h>\n"
                       "extern \"C\" __global__ void __launch_bounds__(1024) k(\n"
                       "    const float* __restrict__ x, float* out\n) {\n" +
                       body + "}\n";
    void *program, *module, *function;
    hiprtcCreateProgram(&program, text.c_str(), nullptr, 0, nullptr, nullptr);
    if (hiprtcCompileProgram(program, 0, nullptr) != 0) {
        size_t size;
        hiprtcGetProgramLogSize(program, &size);
        std::vector<char> log(size);
        hiprtcGetProgramLog(program, log.data());
        std::fprintf(stderr, "%s\n", log.data());
        std::exit(1);
    }
    size_t size;
    hiprtcGetCodeSize(program, &size);
    std::vector<char> code(size);
    hiprtcGetCode(program, code.data());
    if (hipModuleLoadData(&module, code.data()) != 0 ||
        hipModuleGetFunction(&function, module, "k") != 0)
        std::exit(1);
    Floats out(outputs);
    const float *from = x.data();
    float *to = out.data();
    void *parameters[] = {&from, &to};
    int got = hipModuleLaunchKernel(function, blocks, 1, 1, threads, 1, 1, 1024 * 4, nullptr,
                                    parameters, nullptr);
    if (status) *status = got;
    else if (got != 0) std::exit(1);
    return out;
}

const char SHARED[] = "extern __shared__ __align__(4) uchar dynamic_shared_mem[];\n"
                      "float *shared = reinterpret_cast<float*>(&dynamic_shared_mem[0]);\n";

void contraction() {
    float a = 1.0f + 0x1p-12f, c = -(1.0f + 0x1p-11f);
    Floats x{a, a, c, -0.0f};
    auto value = [&](const char *body) { return hip(body, x, 1, 1, 1)[0]; };
    check(value("out[0] = fma(x[0], x[1], x[3]) + x[2];\n") == 0.0f,
          "a product by a run-time -0 is rounded");
    check(value("out[0] = x[0] * x[1] + x[2];\n") != 0.0f, "a bare a * b + c is contracted");
    check(value("out[0] = fma(x[0], x[1], -0.0f) + x[2];\n") != 0.0f,
          "a product by a literal -0 is contracted");
}

void barriers() {
    Floats x(256), expected(256);
    for (int i = 0; i < 256; ++i) x[i] = i;
    for (int i = 0; i < 256; ++i) expected[i] = x[(i + 1) % 256];
    std::string write = std::string(SHARED) + "shared[threadIdx.x] = x[threadIdx.x];\n";
    std::string read = "out[threadIdx.x] = shared[(threadIdx.x + 1) % 256];\n";
    bool right = true, seen = true;
    for (int seed = 0; seed < 8; ++seed) {
        set("DETML_EMULATOR_SEED", seed);
        right &= same(hip(write + "__syncthreads();\n" + read, x, 256, 1, 256), expected);
        seen &= !same(hip(write + read, x, 256, 1, 256), expected);
    }
    check(right, "a barrier makes what was written before it be read, in every order");
    check(seen, "a missing barrier shows, in every order");

    // The second round writes what others may not have read yet.
    std::string rounds = write + "__syncthreads();\nfloat got = shared[(threadIdx.x + 1) % 256];\n";
    std::string again = "shared[threadIdx.x] = got;\n__syncthreads();\n" + read;
    for (int i = 0; i < 256; ++i) expected[i] = x[(i + 2) % 256];
    right = true, seen = true;
    for (int seed = 0; seed < 8; ++seed) {
        set("DETML_EMULATOR_SEED", seed);
        right &= same(hip(rounds + "__syncthreads();\n" + again, x, 256, 1, 256), expected);
        seen &= !same(hip(rounds + again, x, 256, 1, 256), expected);
    }
    check(right, "two rounds with both barriers are right");
    check(seen, "a barrier that is missing between a read and the next write shows");

    int status;
    hip("if (threadIdx.x < 128) { __syncthreads(); }\nout[threadIdx.x] = x[threadIdx.x];\n", x, 256,
        1, 256, &status);
    check(status != 0, "a barrier that some threads don't come to is an error");
    float got = hip(std::string(SHARED) + "out[0] = shared[7];\n__syncthreads();\n", x, 1, 1, 1)[0];
    check(got != got, "shared memory that nobody wrote holds NaN");
}

void orders() {
    Floats x(64);
    for (int i = 0; i < 64; ++i) x[i] = i;
    auto varies = [&](const char *body, unsigned blocks, unsigned threads) {
        bool differ = false;
        set("DETML_EMULATOR_SEED", 0);
        Floats first = hip(body, x, 1, blocks, threads);
        for (int seed = 1; seed < 8; ++seed) {
            set("DETML_EMULATOR_SEED", seed);
            differ |= !same(hip(body, x, 1, blocks, threads), first);
        }
        return differ;
    };
    check(varies("out[0] = x[threadIdx.x];\n", 1, 64), "threads that race show");
    check(varies("out[0] = x[blockIdx.x];\n", 64, 1), "blocks that race show");
    check(varies("atomicAdd(&out[0], 1.0f / (x[threadIdx.x] + 1.0f));\n", 1, 64),
          "a sum by float atomics shows");
    check(!varies("if (threadIdx.x == 63) { out[0] = x[threadIdx.x]; }\n", 1, 64),
          "one writer shows no order");
}

void waves() {
    Floats x(64);
    for (int i = 0; i < 64; ++i) x[i] = 1.0f / (i + 1);
    const char *fold = "float sum = x[threadIdx.x];\n"
                       "for (unsigned by = 1; by < warpSize; by *= 2) {\n"
                       "sum = sum + __shfl_xor(sum, by);\n}\nout[threadIdx.x] = sum;\n";
    set("DETML_EMULATOR_WAVE", 32);
    Floats narrow = hip(fold, x, 64, 1, 64);
    set("DETML_EMULATOR_WAVE", 64);
    Floats wide = hip(fold, x, 64, 1, 64);
    check(!same(narrow, wide), "a fold by the wave's width shows");
    float sum = 0.0f;
    for (float value : x) sum += value;
    check(std::abs(wide[0] - sum) < 1e-4f && std::abs(narrow[0] + narrow[32] - sum) < 1e-4f,
          "both folds are sums");
}

bool dies(void (*work)()) {
    pid_t child = fork();
    if (child == 0) {
        work();
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    return WIFSIGNALED(status);
}

void ends() {
    check(dies([] {
              hip(std::string(SHARED) + "shared[1024] = 1.0f;\n__syncthreads();\n", {}, 1, 1, 1);
          }),
          "an access beyond shared memory ends the process");
}

std::string metal_text(const std::string &body, const char *cast = "constant",
                       const char *number = "2", const char *off = "off") {
    return std::string("\n#include <metal_stdlib>\nusing namespace metal;\n"
                       "#pragma METAL fp math_mode(safe)\n#pragma METAL fp contract(") +
           off +
           ")\nstruct info_st {\n    float scalars_float[2];\n};\n[[kernel]]\nvoid k(\n"
           "    const device float * x [[buffer(0)]],\n    device float * out [[buffer(1)]],\n"
           "    constant info_st& info [[buffer(" + number + ")]],\n"
           "    uint thread_index_in_threadgroup [[thread_index_in_threadgroup]]\n) {\n"
           "const uint zero = reinterpret_cast<" + cast +
           " uint const&>(info.scalars_float[1]);\n" + body + "}\n";
}

void *metal_kernel(const std::string &text, std::string *why = nullptr) {
    char message[4096] = "";
    void *kernel = detml_metal_compile(text.c_str(), "k", message, sizeof message);
    if (why) *why = message;
    else if (!kernel) std::fprintf(stderr, "%s\n", message);
    return kernel;
}

Floats metal(const std::string &body, Floats x, size_t outputs, unsigned threads) {
    void *kernel = metal_kernel(metal_text(body));
    if (!kernel) std::exit(1);
    Floats out(outputs), info{-0.0f, 0.0f};
    void *arguments[] = {x.data(), out.data(), info.data()};
    const uint32_t blocks[] = {1, 1, 1}, units[] = {threads, 1, 1};
    char message[4096];
    if (detml_metal_launch(kernel, blocks, units, arguments, 3, message, sizeof message) != 0)
        std::exit(1);
    return out;
}

void metal_settings() {
    const char *product = "out[0] = fma(x[0], x[1], info.scalars_float[0]);\n";
    Floats tiny{0x1p-100f, 0x1p-40f};
    set("DETML_EMULATOR_FLUSH", 0);
    check(metal(product, tiny, 1, 1)[0] == 0x1p-140f, "subnormals are kept");
    set("DETML_EMULATOR_FLUSH", 1);
    check(metal(product, tiny, 1, 1)[0] == 0.0f, "subnormals are flushed");
    set("DETML_EMULATOR_FLUSH", 0);
    float a = 1.0f + 0x1p-12f;
    Floats fused{a, a, -(1.0f + 0x1p-11f)};
    const char *bare = "out[0] = x[0] * x[1] + x[2];\n";
    setenv("DETML_EMULATOR_CONTRACT", "off", 1);
    check(metal(bare, fused, 1, 1)[0] == 0.0f, "without contraction a bare product is rounded");
    setenv("DETML_EMULATOR_CONTRACT", "fast", 1);
    check(metal(bare, fused, 1, 1)[0] != 0.0f, "with contraction it is not");
    Floats x(64);
    for (int i = 0; i < 64; ++i) x[i] = i + 1;
    const std::string shared = "threadgroup uchar dynamic_shared_mem[256];\nthreadgroup float* s = "
                               "reinterpret_cast<threadgroup float*>(&dynamic_shared_mem[0]);\n"
                               "s[thread_index_in_threadgroup] = x[thread_index_in_threadgroup];\n";
    const std::string read = "out[thread_index_in_threadgroup] = "
                             "s[thread_index_in_threadgroup ^ 1];\n";
    Floats expected(64);
    for (int i = 0; i < 64; ++i) expected[i] = x[i ^ 1];
    const std::string barrier = "threadgroup_barrier(mem_flags::mem_threadgroup);\n";
    check(same(metal(shared + barrier + read, x, 64, 64), expected), "a barrier of Metal's holds");
    check(!same(metal(shared + read, x, 64, 64), expected), "a missing barrier of Metal's shows");
}

void metal_rules() {
    std::string why;
    auto refused = [&](const std::string &text, const char *part) {
        return !metal_kernel(text, &why) && why.find(part) != std::string::npos;
    };
    check(metal_kernel(metal_text("out[0] = x[0];\n")) != nullptr, "a kernel that keeps the rules");
    check(refused(metal_text("", "device"), "reinterpret_cast"), "a cast to another address space");
    check(refused(metal_text("", "constant", "3"), "not the next"), "a buffer's number skipped");
    check(refused(metal_text("", "constant", "2", "on"), "pragmas"), "no pragma");
    check(refused(metal_text("threadgroup uchar dynamic_shared_mem[32772];\n"), "threadgroup"),
          "more than 32 KB of threadgroup memory");
    void *kernel = metal_kernel(metal_text("out[0] = x[0];\n"));
    Floats x(1), out(1), info(2);
    void *arguments[] = {x.data(), out.data(), info.data()};
    const uint32_t blocks[] = {1, 1, 1}, units[] = {1025, 1, 1};
    char message[4096];
    check(detml_metal_launch(kernel, blocks, units, arguments, 3, message, sizeof message) != 0,
          "more than 1024 threads");
}

} // namespace

int main() {
    contraction();
    barriers();
    orders();
    waves();
    ends();
    metal_settings();
    metal_rules();
    std::printf("%d failures\n", failures);
    return failures != 0;
}
