#include "compiler.h"

#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <fstream>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>

namespace {

uint64_t hash(const std::string &text, uint64_t basis) {
    uint64_t h = basis;
    for (unsigned char c : text) h = (h ^ c) * 0x100000001b3;
    return h;
}

std::string from_environment(const char *variable, const std::string &otherwise) {
    const char *text = std::getenv(variable);
    return text && *text ? text : otherwise;
}

std::string contents(const std::string &path) {
    std::ifstream file(path);
    std::stringstream all;
    all << file.rdbuf();
    return all.str();
}

} // namespace

std::string compile(const std::string &text, const std::string &spaces, std::string &log) {
    std::string clang = from_environment("DETML_EMULATOR_CLANG", "clang++-19");
    std::string contract = from_environment("DETML_EMULATOR_CONTRACT", "fast");
    std::string cache = from_environment("DETML_EMULATOR_CACHE", "/tmp/detml-emulator");
    // Locals that nothing writes hold patterns too.
    std::string options = " -x c++ -std=c++20 -O1 -mavx2 -mfma -ffp-contract=" + contract +
                          " -fno-math-errno -ftrivial-auto-var-init=pattern -fno-exceptions"
                          " -fPIC -shared";
    std::string include = DETML_INCLUDE;
    std::string all = text + options + clang + contents(include + "/emulated.h") +
                      contents(include + "/hip/hip_runtime.h") +
                      contents(include + "/metal_stdlib") +
                      contents(include + "/spaces/metal_stdlib");
    char name[40];
    std::snprintf(name, sizeof name, "%016llx%016llx",
                  (unsigned long long)hash(all, 0xcbf29ce484222325),
                  (unsigned long long)hash(all, 0x84222325cbf29ce4));
    mkdir(cache.c_str(), 0777);
    std::string path = cache + "/" + name + ".so";
    if (access(path.c_str(), R_OK) == 0) return path;
    // Tests run in processes of their own: each writes files of its own and renames the result.
    std::string own = cache + "/" + name + "." + std::to_string(getpid());
    std::string command;
    int status = 0;
    auto run = [&](const std::string &source, const std::string &how) {
        std::ofstream(own + ".cpp") << source;
        command = clang + how + " -w " + own + ".cpp 2> " + own + ".log";
        status = std::system(command.c_str());
    };
    if (!spaces.empty())
        run(spaces, " -x clcpp -cl-std=CLC++2021 -fsyntax-only -I" + include + "/spaces");
    if (status == 0) run(text, options + " -I" + include + " -o " + own + ".so");
    log = contents(own + ".log");
    unlink((own + ".log").c_str());
    unlink((own + ".cpp").c_str());
    if (status != 0 || std::rename((own + ".so").c_str(), path.c_str()) != 0) {
        if (log.empty()) log = "`" + command + "` failed";
        return {};
    }
    return path;
}

Code load(const std::string &path, bool waits, std::string &log) {
    void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        log = dlerror();
        return {};
    }
    Code code;
    code.entry = reinterpret_cast<decltype(code.entry)>(dlsym(library, "detml_entry"));
    code.launch = static_cast<Launch **>(dlsym(library, "detml_launch"));
    code.waits = waits;
    if (!code.launch) code.entry = nullptr;
    return code;
}

void place_shared(std::string &text, const std::string &start) {
    size_t at = 0;
    while ((at = text.find(start, at)) != std::string::npos) {
        size_t end = text.find(';', at);
        if (end == std::string::npos) return;
        const std::string pointer = "unsigned char *dynamic_shared_mem = detml_launch->shared";
        text.replace(at, end - at, pointer);
        at += pointer.size();
    }
}
