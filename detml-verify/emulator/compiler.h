// Compiles a kernel's text for this CPU; what was compiled before is taken from the disk.
#pragma once
#include "scheduler.h"

// A shared object with `detml_entry` and `detml_launch`. Empty path: `log` says why. `spaces`, unless
// it is empty, is the text in OpenCL C++, to be checked for casts between address spaces.
std::string compile(const std::string &text, const std::string &spaces, std::string &log);

// Opens it. `entry` null: `log` says why.
Code load(const std::string &path, bool waits, std::string &log);

// `text` with the declaration of shared memory from `start` to the next `;` made a pointer to the
// block's.
void place_shared(std::string &text, const std::string &start);
