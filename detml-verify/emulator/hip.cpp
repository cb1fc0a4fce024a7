// The functions of libamdhip64 and libhiprtc that cubecl-hip calls. Everything is done when it is
// asked for: there is one device, and streams and events need not wait.
#include "compiler.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

enum { SUCCESS = 0, INVALID = 1, OUT_OF_MEMORY = 2, NO_FUNCTION = 500, LAUNCH_FAILURE = 719 };
enum { RTC_SUCCESS = 0, RTC_COMPILATION = 6 };

uint32_t wave() { return number("DETML_EMULATOR_WAVE", 64) == 32 ? 32 : 64; }

struct Program {
    std::string text, log, image;
};

struct Module {
    Code code;
    std::string name;
    size_t arguments;
};

// The kernel's parameters, each a type and a name, after `__global__`.
bool parameters(const std::string &text, std::string &name, std::vector<std::string> &types) {
    size_t at = text.find("__global__");
    if (at == std::string::npos) return false;
    size_t bounds = text.find("__launch_bounds__", at);
    at = bounds == std::string::npos ? at + 10 : text.find(')', bounds) + 1;
    if (text.find("void", at) < text.find('(', at)) at = text.find("void", at) + 4;
    size_t open = text.find('(', at), close = text.find(')', open);
    name = text.substr(at, open - at);
    name.erase(0, name.find_first_not_of(" \n"));
    for (size_t from = open + 1; from < close;) {
        size_t to = std::min(text.find(',', from), close);
        std::string parameter = text.substr(from, to - from);
        size_t end = parameter.find_last_not_of(" \n");
        size_t start = parameter.find_last_of(" *\n", end);
        if (start == std::string::npos) return false;
        types.push_back(parameter.substr(0, start + 1));
        from = to + 1;
    }
    return true;
}

} // namespace

extern "C" {

// ---- libhiprtc

int hiprtcCreateProgram(Program **program, const char *text, const char *, int, const char **,
                        const char **) {
    *program = new Program{text, {}, {}};
    return RTC_SUCCESS;
}

int hiprtcCompileProgram(Program *program, int, const char **) {
    std::string text = program->text, name;
    std::vector<std::string> types;
    if (!parameters(text, name, types)) {
        program->log = "no kernel in the text";
        return RTC_COMPILATION;
    }
    // The pragma is a second fence: kernels must be right without.
    const std::string pragma = "#pragma clang fp contract(off)";
    size_t at = text.find(pragma);
    if (at != std::string::npos) text.erase(at, pragma.size());
    place_shared(text, "extern __shared__");
    text += "\nextern \"C\" void detml_entry(void *const *a) {\n" + name + "(";
    for (size_t i = 0; i < types.size(); ++i)
        text += (i ? ", " : "") + ("(" + types[i] + ")a[" + std::to_string(i) + "]");
    text += ");\n}\n";
    std::string path = compile(text, "", program->log);
    if (path.empty()) return RTC_COMPILATION;
    bool waits = text.find("__sync") != std::string::npos || text.find("__shfl") != std::string::npos;
    program->image = path + "\n" + name + "\n" + std::to_string(types.size()) +
                     (waits ? "\nwaits" : "\n") + '\0';
    return RTC_SUCCESS;
}

int hiprtcGetProgramLogSize(Program *program, size_t *size) {
    *size = program->log.size() + 1;
    return RTC_SUCCESS;
}
int hiprtcGetProgramLog(Program *program, char *log) {
    std::memcpy(log, program->log.c_str(), program->log.size() + 1);
    return RTC_SUCCESS;
}
int hiprtcGetCodeSize(Program *program, size_t *size) {
    *size = program->image.size();
    return RTC_SUCCESS;
}
int hiprtcGetCode(Program *program, char *code) {
    std::memcpy(code, program->image.data(), program->image.size());
    return RTC_SUCCESS;
}
int hiprtcDestroyProgram(Program **program) {
    delete *program;
    return RTC_SUCCESS;
}

// ---- libamdhip64: modules

int hipModuleLoadData(Module **module, const void *image) {
    std::string all = static_cast<const char *>(image), parts[4];
    for (size_t i = 0, at = 0; i < 4; ++i) {
        size_t end = all.find('\n', at);
        parts[i] = all.substr(at, end - at);
        at = end + 1;
        if (end == std::string::npos && i < 3) return INVALID;
    }
    std::string log;
    Code code = load(parts[0], parts[3] == "waits", log);
    if (!code.entry) {
        std::fprintf(stderr, "detml emulator: %s\n", log.c_str());
        return INVALID;
    }
    code.name = parts[1];
    *module = new Module{code, parts[1], std::stoul(parts[2])};
    return SUCCESS;
}

int hipModuleGetFunction(Module **function, Module *module, const char *name) {
    if (module->name != name) return NO_FUNCTION;
    *function = module;
    return SUCCESS;
}

int hipModuleLaunchKernel(Module *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                          unsigned by, unsigned bz, unsigned shared, void *, void **parameters,
                          void **) {
    const uint32_t blocks[] = {gx, gy, gz}, threads[] = {bx, by, bz};
    std::vector<void *> arguments;
    for (size_t i = 0; i < function->arguments; ++i)
        arguments.push_back(*static_cast<void **>(parameters[i]));
    std::string wrong = run(function->code, blocks, threads, shared, wave(), arguments.data());
    if (wrong.empty()) return SUCCESS;
    std::fprintf(stderr, "detml emulator: %s: %s\n", function->name.c_str(), wrong.c_str());
    return LAUNCH_FAILURE;
}

// ---- libamdhip64: the device

// The start of `hipDeviceProp_tR0600`, as HIP 6 lays it out. Its `gcnArchName` is at byte 1160 of
// 1472.
struct Properties {
    char name[256];
    char uuid[16], luid[8];
    unsigned luid_mask;
    size_t memory, shared_per_block;
    int registers, wave;
    size_t pitch;
    int threads_per_block, threads[3], blocks[3], clock;
    size_t constant;
    int major, minor;
    size_t texture_alignment;
};
static_assert(offsetof(Properties, memory) == 288);
static_assert(offsetof(Properties, texture_alignment) == 368);

int hipGetDeviceCount(int *count) {
    *count = 1;
    return SUCCESS;
}

int hipGetDevicePropertiesR0600(void *to, int device) {
    if (device != 0) return INVALID;
    std::memset(to, 0, 1472);
    Properties *p = static_cast<Properties *>(to);
    const char *architecture = wave() == 32 ? "gfx1100" : "gfx942";
    std::snprintf(p->name, sizeof p->name, "detml emulator, wave %u", wave());
    std::strcpy(static_cast<char *>(to) + 1160, architecture);
    p->memory = MEMORY;
    p->shared_per_block = 64 << 10;
    p->wave = wave();
    p->threads_per_block = 1024;
    for (int i = 0; i < 3; ++i) p->threads[i] = 1024;
    p->blocks[0] = 0x7fffffff;
    p->blocks[1] = p->blocks[2] = 65536;
    p->texture_alignment = 256;
    return SUCCESS;
}

int hipSetDevice(int) { return SUCCESS; }
int hipSetDeviceFlags(unsigned) { return SUCCESS; }
int hipMemGetInfo(size_t *free, size_t *total) {
    *free = *total = MEMORY;
    return SUCCESS;
}

// ---- libamdhip64: memory

int hipMallocAsync(void **at, size_t bytes, void *) {
    *at = allocate(bytes);
    return *at ? SUCCESS : OUT_OF_MEMORY;
}
int hipFreeAsync(void *at, void *) {
    release(at);
    return SUCCESS;
}
int hipHostMalloc(void **at, size_t bytes, unsigned) { return hipMallocAsync(at, bytes, nullptr); }
int hipFreeHost(void *at) { return hipFreeAsync(at, nullptr); }

int hipMemcpyDtoHAsync(void *to, void *from, size_t bytes, void *) {
    std::memcpy(to, from, bytes);
    return SUCCESS;
}
int hipMemcpyHtoDAsync(void *to, const void *from, size_t bytes, void *) {
    std::memcpy(to, from, bytes);
    return SUCCESS;
}
int hipMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                     size_t height, int, void *) {
    for (size_t row = 0; row < height; ++row)
        std::memcpy(static_cast<char *>(to) + row * to_pitch,
                    static_cast<const char *>(from) + row * from_pitch, width);
    return SUCCESS;
}

// ---- libamdhip64: streams and events

static char handle;
int hipStreamCreateWithFlags(void **stream, unsigned) {
    *stream = &handle;
    return SUCCESS;
}
int hipStreamSynchronize(void *) { return SUCCESS; }
int hipStreamWaitEvent(void *, void *, unsigned) { return SUCCESS; }
int hipEventCreateWithFlags(void **event, unsigned) {
    *event = &handle;
    return SUCCESS;
}
int hipEventRecord(void *, void *) { return SUCCESS; }
int hipEventSynchronize(void *) { return SUCCESS; }
int hipEventDestroy(void *) { return SUCCESS; }

} // extern "C"
