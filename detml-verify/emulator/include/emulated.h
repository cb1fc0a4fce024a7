// What a kernel's code sees of its launch; shared with the scheduler.
#pragma once

struct Launch {
    unsigned thread[3], block[3], threads[3], blocks[3];
    unsigned char *shared;
    unsigned wave;
    // Waits for the threads of the block.
    void (*block_barrier)();
    // Gives `value` to the threads of the wave and takes that of `lane`; 0 from a lane that is not
    // there.
    unsigned (*exchange)(unsigned value, unsigned lane);
};

#ifdef DETML_KERNEL
extern "C" {
Launch *detml_launch;
}
template <typename T> static inline T detml_exchange(T value, unsigned lane) {
    static_assert(sizeof(T) == 4);
    return __builtin_bit_cast(T, detml_launch->exchange(__builtin_bit_cast(unsigned, value), lane));
}
static inline unsigned detml_lane() {
    unsigned *at = detml_launch->thread, *of = detml_launch->threads;
    return (at[0] + of[0] * (at[1] + of[1] * at[2])) % detml_launch->wave;
}
#endif
