// Kernels' Metal text, bound to its arguments and held to the limits that Apple publishes (Metal
// Feature Set Tables: families Apple4 and up).
#include "compiler.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr size_t BUFFERS = 31, THREADGROUP_BYTES = 32 << 10, THREADS = 1024;

struct Kernel {
    Code code;
    size_t shared, arguments;
};

std::string trimmed(const std::string &text) {
    size_t start = text.find_first_not_of(" \n");
    if (start == std::string::npos) return {};
    return text.substr(start, text.find_last_not_of(" \n") - start + 1);
}

// The argument that the kernel gets for a parameter, or empty and `wrong`.
std::string argument(const std::string &parameter, size_t &buffers, std::string &wrong) {
    size_t open = parameter.find("[["), close = parameter.find("]]", open);
    if (close == std::string::npos) {
        wrong = "`" + parameter + "` is bound to nothing";
        return {};
    }
    std::string binding = parameter.substr(open + 2, close - open - 2);
    std::string declaration = trimmed(parameter.substr(0, open));
    std::string type = trimmed(declaration.substr(0, declaration.find_last_of(" *&") + 1));
    if (binding == "buffer(" + std::to_string(buffers) + ")") {
        bool is_device = type.find("device ") != std::string::npos && type.back() == '*';
        bool is_constant = type.find("constant ") == 0 && type.back() == '&';
        if (!is_device && !is_constant) {
            wrong = "`" + parameter + "` is in no address space that buffers have";
            return {};
        }
        std::string at = "a[" + std::to_string(buffers++) + "]";
        if (is_device) return "(" + type + ")" + at;
        return "*(" + type.substr(0, type.size() - 1) + "*)" + at;
    }
    static const struct {
        const char *binding, *type, *value;
    } BUILT_IN[] = {
        {"threadgroups_per_grid", "uint3", "DETML_3(blocks)"},
        {"threads_per_threadgroup", "uint3", "DETML_3(threads)"},
        {"threadgroup_position_in_grid", "uint3", "DETML_3(block)"},
        {"thread_position_in_threadgroup", "uint3", "DETML_3(thread)"},
        {"thread_position_in_grid", "uint3",
         "uint3{DETML_3(thread).x + DETML_3(block).x * DETML_3(threads).x,"
         " DETML_3(thread).y + DETML_3(block).y * DETML_3(threads).y,"
         " DETML_3(thread).z + DETML_3(block).z * DETML_3(threads).z}"},
        {"thread_index_in_threadgroup", "uint",
         "DETML_3(thread).x + DETML_3(threads).x * (DETML_3(thread).y +"
         " DETML_3(threads).y * DETML_3(thread).z)"},
        {"thread_index_in_simdgroup", "uint", "detml_lane()"},
        {"threads_per_simdgroup", "uint", "detml_launch->wave"},
    };
    for (const auto &known : BUILT_IN)
        if (binding == known.binding && type == known.type) return known.value;
    wrong = "`" + parameter + "`: no such argument, or its number is not the next";
    return {};
}

// `text` made C++ with an entry; `wrong` if it keeps to no rule.
Kernel translate(std::string &text, const std::string &name, std::string &wrong) {
    Kernel kernel{{}, 0, 0};
    const std::string pragmas = "using namespace metal;\n#pragma METAL fp math_mode(safe)\n"
                                "#pragma METAL fp contract(off)";
    if (text.find(pragmas) == std::string::npos) {
        wrong = "the pragmas against contraction are not in place";
        return kernel;
    }
    size_t start = text.find("[[kernel]]"), open = text.find(name + "(", start);
    size_t end = text.find("\n) {", open);
    if (start == std::string::npos || end == std::string::npos) {
        wrong = "no kernel of this name";
        return kernel;
    }
    open += name.size() + 1;
    std::string arguments;
    for (size_t from = open; from < end;) {
        size_t to = std::min(text.find("]]", from) + 2, end);
        std::string one = argument(trimmed(text.substr(from, to - from)), kernel.arguments, wrong);
        if (!wrong.empty()) return kernel;
        arguments += (arguments.empty() ? "" : ", ") + one;
        from = text.find(',', to) == std::string::npos || text.find(',', to) > end
                   ? end
                   : text.find(',', to) + 1;
    }
    if (kernel.arguments > BUFFERS) wrong = std::to_string(kernel.arguments) + " buffers";
    const std::string shared = "threadgroup uchar dynamic_shared_mem[";
    size_t at = text.find(shared);
    if (at != std::string::npos) kernel.shared = std::stoul(text.substr(at + shared.size()));
    if (kernel.shared > THREADGROUP_BYTES)
        wrong = std::to_string(kernel.shared) + " bytes of threadgroup memory";
    kernel.code.waits = text.find("threadgroup_barrier") != std::string::npos ||
                        text.find("simd_") != std::string::npos;
    place_shared(text, shared);
    text += "\n#undef thread\n#define DETML_3(of) (uint3{detml_launch->of[0], detml_launch->of[1], "
            "detml_launch->of[2]})\nextern \"C\" void detml_entry(void *const *a) {\n" +
            name + "(" + arguments + ");\n}\n";
    return kernel;
}

// `text` in OpenCL C++, which has Metal's address spaces and clang's checks of them.
std::string with_spaces(std::string text) {
    for (size_t at; (at = text.find("[[")) != std::string::npos;) {
        bool kernel = text.compare(at, 10, "[[kernel]]") == 0;
        text.replace(at, text.find("]]", at) + 2 - at, kernel ? "__kernel" : "");
    }
    return text;
}

void tell(const std::string &what, char *message, size_t room) {
    std::snprintf(message, room, "%s", what.c_str());
}

} // namespace

extern "C" {

const char *detml_metal_describe() {
    static const std::string text =
        std::string("detml emulator, Metal text, subnormals ") +
        (number("DETML_EMULATOR_FLUSH", 0) ? "flushed" : "kept");
    return text.c_str();
}

void *detml_allocate(size_t bytes) { return allocate(bytes); }
void detml_free(void *at) { release(at); }

void *detml_metal_compile(const char *source, const char *name, char *message, size_t room) {
    std::string text = source, spaces = with_spaces(text), wrong;
    Kernel kernel = translate(text, name, wrong);
    if (wrong.empty()) {
        std::string path = compile(text, spaces, wrong);
        if (!path.empty()) {
            wrong.clear();
            Code code = load(path, kernel.code.waits, wrong);
            code.name = name;
            if (code.entry) return new Kernel{code, kernel.shared, kernel.arguments};
        }
    }
    tell(wrong, message, room);
    return nullptr;
}

int detml_metal_launch(void *handle, const uint32_t *blocks, const uint32_t *threads,
                       void *const *arguments, size_t count, char *message, size_t room) {
    Kernel *kernel = static_cast<Kernel *>(handle);
    std::string wrong;
    if (count != kernel->arguments)
        wrong = std::to_string(count) + " buffers for " + std::to_string(kernel->arguments);
    else if (size_t(threads[0]) * threads[1] * threads[2] > THREADS)
        wrong = "more than 1024 threads in a threadgroup";
    else
        wrong = run(kernel->code, blocks, threads, kernel->shared, 32, arguments);
    if (wrong.empty()) return 0;
    tell(wrong, message, room);
    return 1;
}

} // extern "C"
