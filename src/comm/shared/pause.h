/* One turn of a busy wait. */
#ifndef TT_COMM_SHARED_PAUSE_H
#define TT_COMM_SHARED_PAUSE_H

static inline void tt__pause_cpu(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
