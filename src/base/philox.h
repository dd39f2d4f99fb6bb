/* Philox4x32-10, the counter-based generator of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011):
 * four words of 32 bits for each key and counter, in any order, from any thread. */
#ifndef TT_BASE_PHILOX_H
#define TT_BASE_PHILOX_H

#include <stdint.h>

#ifdef __CUDACC__
#define TT__PHILOX_INLINE __device__ static inline
#else
#define TT__PHILOX_INLINE static inline
#endif

/* out := the four words of counter number `counter` (of 64 bits; the upper ones of its 128 are 0). */
TT__PHILOX_INLINE void tt__philox(uint64_t key, uint64_t counter, uint32_t out[4]) {
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = (uint32_t)counter, c1 = (uint32_t)(counter >> 32), c2 = 0, c3 = 0;
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

#endif
