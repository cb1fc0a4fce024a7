// Runs one launch of a kernel on the CPU: blocks one after the other, each thread of a block as a
// fiber that runs until it meets a barrier. Orders are drawn from a seed.
#pragma once
#include "emulated.h"

#include <cstddef>
#include <cstdint>
#include <string>

struct Code {
    void (*entry)(void *const *arguments);
    Launch **launch;
    // Whether threads wait for each other.
    bool waits;
    std::string name;
};

// Empty, or what the launch broke.
std::string run(const Code &code, const uint32_t blocks[3], const uint32_t threads[3],
                size_t shared_bytes, uint32_t wave, void *const *arguments);

// Bytes that the emulated device has. Pages that nobody touches cost nothing.
constexpr size_t MEMORY = size_t(16) << 30;

// Memory that ends at a page that can't be touched, filled with patterns that are NaN.
// Null where the device has not so much left.
void *allocate(size_t bytes);
void release(void *at);

// A number from the environment.
uint64_t number(const char *variable, uint64_t otherwise);
