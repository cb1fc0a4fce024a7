#include "scheduler.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <numeric>
#include <random>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>
#include <xmmintrin.h>

namespace {

constexpr size_t STACK = 256 << 10;
constexpr uint32_t POISON = 0x7fa5a5a5;

// Saves what the calling convention keeps, changes the stack and goes on there.
extern "C" void detml_switch(void **from, void *to);
asm(R"(
.text
.type detml_switch, @function
detml_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size detml_switch, .-detml_switch
)");

enum class State { Ready, AtBlock, AtWave, Done };

struct Fiber {
    unsigned char *stack = nullptr;
    void *top = nullptr;
    uint32_t thread[3];
    uint32_t value;
    State state;
};

struct Scheduler {
    Launch launch;
    const Code *code;
    void *const *arguments;
    std::vector<Fiber> fibers;
    Fiber *now;
    void *home;
    std::mt19937_64 random;
};

Scheduler *current;
std::mutex alone;

void give_way(State state) {
    current->now->state = state;
    detml_switch(&current->now->top, current->home);
}

void block_barrier() { give_way(State::AtBlock); }

uint32_t exchange(uint32_t value, uint32_t lane) {
    Fiber *me = current->now;
    me->value = value;
    give_way(State::AtWave);
    uint32_t wave = current->launch.wave;
    size_t index = (me - current->fibers.data()) / wave * wave + lane % wave;
    uint32_t got = index < current->launch.threads[0] * current->launch.threads[1] *
                               current->launch.threads[2]
                       ? current->fibers[index].value
                       : 0;
    // Nobody gives another value before all have taken this one.
    give_way(State::AtWave);
    return got;
}

void fiber_main() {
    current->code->entry(current->arguments);
    give_way(State::Done);
    abort();
}

void prepare(Fiber &fiber) {
    if (!fiber.stack) {
        void *at = mmap(nullptr, STACK, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED) abort();
        mprotect(at, 4096, PROT_NONE);
        fiber.stack = static_cast<unsigned char *>(at);
    }
    // As if `detml_switch` had been called from `fiber_main`'s first instruction; a function
    // starts with its stack 8 bytes off a multiple of 16.
    void **top = reinterpret_cast<void **>(fiber.stack + STACK) - 1;
    *--top = reinterpret_cast<void *>(fiber_main);
    for (int i = 0; i < 6; ++i) *--top = nullptr;
    fiber.top = top;
    fiber.state = State::Ready;
}

void resume(Scheduler &s, Fiber &fiber) {
    s.now = &fiber;
    std::memcpy(s.launch.thread, fiber.thread, sizeof fiber.thread);
    detml_switch(&s.home, fiber.top);
}

// Lets those go on for whom all have come. Empty, or why nobody can.
std::string release_waiting(Scheduler &s, size_t count) {
    bool any = false;
    for (size_t wave = 0; wave < count; wave += s.launch.wave) {
        size_t end = std::min<size_t>(wave + s.launch.wave, count), at_wave = 0, live = 0;
        for (size_t i = wave; i < end; ++i) {
            at_wave += s.fibers[i].state == State::AtWave;
            live += s.fibers[i].state != State::Done;
        }
        if (at_wave == 0 || at_wave != live) continue;
        for (size_t i = wave; i < end; ++i)
            if (s.fibers[i].state == State::AtWave) s.fibers[i].state = State::Ready;
        any = true;
    }
    if (any) return {};
    size_t at_block = 0;
    for (size_t i = 0; i < count; ++i) at_block += s.fibers[i].state == State::AtBlock;
    if (at_block != count)
        return std::to_string(at_block) + " of " + std::to_string(count) +
               " threads came to a barrier";
    for (size_t i = 0; i < count; ++i) s.fibers[i].state = State::Ready;
    return {};
}

std::string run_block(Scheduler &s, std::vector<uint32_t> &order) {
    size_t count = order.size();
    if (!s.code->waits) {
        std::shuffle(order.begin(), order.end(), s.random);
        for (uint32_t i : order) {
            std::memcpy(s.launch.thread, s.fibers[i].thread, sizeof s.fibers[i].thread);
            s.code->entry(s.arguments);
        }
        return {};
    }
    for (size_t i = 0; i < count; ++i) prepare(s.fibers[i]);
    for (;;) {
        std::shuffle(order.begin(), order.end(), s.random);
        size_t done = 0;
        for (uint32_t i : order) {
            if (s.fibers[i].state == State::Ready) resume(s, s.fibers[i]);
            done += s.fibers[i].state == State::Done;
        }
        if (done == count) return {};
        std::string wrong = release_waiting(s, count);
        if (!wrong.empty()) return wrong;
    }
}

void poison(void *at, size_t bytes) {
    unsigned char *to = static_cast<unsigned char *>(at);
    for (size_t i = 0; i < bytes; i += sizeof POISON)
        std::memcpy(to + i, &POISON, std::min(sizeof POISON, bytes - i));
}

// Names the kernel and thread that touched memory outside every buffer; the process then ends as it
// would have.
void fault(int signal, siginfo_t *info, void *) {
    if (current) {
        const Launch &l = current->launch;
        char text[256];
        int length = std::snprintf(
            text, sizeof text,
            "detml emulator: %s: address %p is in no buffer: block %u %u %u of %u %u %u, "
            "thread %u %u %u\n",
            current->code->name.c_str(), info->si_addr, l.block[0], l.block[1], l.block[2],
            l.blocks[0], l.blocks[1], l.blocks[2], l.thread[0], l.thread[1], l.thread[2]);
        if (write(2, text, length) < 0) abort();
    }
    std::signal(signal, SIG_DFL);
}

void watch_faults() {
    static thread_local std::vector<unsigned char> stack(64 << 10);
    stack_t alternative{};
    alternative.ss_sp = stack.data();
    alternative.ss_size = stack.size();
    sigaltstack(&alternative, nullptr);
    struct sigaction action{};
    action.sa_sigaction = fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, nullptr);
}

// The mappings that `allocate` made: where each starts and how long it is.
std::map<void *, std::pair<void *, size_t>> mappings;
size_t held = 0;
std::mutex mappings_lock;

} // namespace

uint64_t number(const char *variable, uint64_t otherwise) {
    const char *text = std::getenv(variable);
    return text ? std::strtoull(text, nullptr, 0) : otherwise;
}

void *allocate(size_t bytes) {
    size_t page = 4096, room = (std::max<size_t>(bytes, 1) + page - 1) / page * page;
    std::lock_guard<std::mutex> lock(mappings_lock);
    if (bytes > MEMORY || held + room > MEMORY) return nullptr;
    void *start = mmap(nullptr, room + page, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) return nullptr;
    unsigned char *end = static_cast<unsigned char *>(start) + room;
    mprotect(end, page, PROT_NONE);
    // HIP's alignment; and a suite reads a few words beyond shared memory on purpose.
    void *at = end - (bytes + 255) / 256 * 256;
    // CubeCL's pools take far more than they use: what is large stays unmapped until it is.
    if (bytes <= (64 << 20)) poison(at, bytes);
    mappings[at] = {start, room + page};
    held += room;
    return at;
}

void release(void *at) {
    std::lock_guard<std::mutex> lock(mappings_lock);
    auto found = mappings.find(at);
    if (found == mappings.end()) return;
    munmap(found->second.first, found->second.second);
    held -= found->second.second - 4096;
    mappings.erase(found);
}

std::string run(const Code &code, const uint32_t blocks[3], const uint32_t threads[3],
                size_t shared_bytes, uint32_t wave, void *const *arguments) {
    std::lock_guard<std::mutex> lock(alone);
    // Stacks are kept for the next launch.
    static Scheduler s;
    static uint64_t launches = 0;
    s.random.seed(number("DETML_EMULATOR_SEED", 1) * 0x9e3779b97f4a7c15 + launches++);
    s.code = &code;
    s.arguments = arguments;
    s.launch.wave = wave;
    s.launch.block_barrier = block_barrier;
    s.launch.exchange = exchange;
    std::memcpy(s.launch.threads, threads, sizeof s.launch.threads);
    std::memcpy(s.launch.blocks, blocks, sizeof s.launch.blocks);
    size_t count = size_t(threads[0]) * threads[1] * threads[2];
    if (s.fibers.size() < count) s.fibers.resize(count);
    for (size_t i = 0; i < count; ++i) {
        s.fibers[i].thread[0] = i % threads[0];
        s.fibers[i].thread[1] = i / threads[0] % threads[1];
        s.fibers[i].thread[2] = i / threads[0] / threads[1];
    }
    shared_bytes = (shared_bytes + 15) / 16 * 16;
    s.launch.shared = static_cast<unsigned char *>(allocate(shared_bytes));
    std::vector<uint32_t> order(count);
    std::iota(order.begin(), order.end(), 0);
    std::vector<uint64_t> grid(uint64_t(blocks[0]) * blocks[1] * blocks[2]);
    std::iota(grid.begin(), grid.end(), 0);
    std::shuffle(grid.begin(), grid.end(), s.random);
    *code.launch = &s.launch;
    current = &s;

    watch_faults();
    // 0x8040: results that are subnormal become zero, and so do operands.
    unsigned mode = _mm_getcsr();
    if (number("DETML_EMULATOR_FLUSH", 0)) _mm_setcsr(mode | 0x8040);
    std::string wrong;
    for (uint64_t block : grid) {
        s.launch.block[0] = block % blocks[0];
        s.launch.block[1] = block / blocks[0] % blocks[1];
        s.launch.block[2] = block / blocks[0] / blocks[1];
        poison(s.launch.shared, shared_bytes);
        wrong = run_block(s, order);
        if (!wrong.empty()) break;
    }
    _mm_setcsr(mode);
    current = nullptr;
    release(s.launch.shared);
    return wrong;
}
