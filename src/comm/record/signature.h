/* A call's signature as it travels in its arrival word: hash in the upper 31 bits, below it a bit "symmetric", then the
 * sequence number. */
#ifndef TT_COMM_RECORD_SIGNATURE_H
#define TT_COMM_RECORD_SIGNATURE_H

#include <tutti/backend.h>

#define TT__SYMMETRIC_BIT (UINT64_C(1) << 32)
#define TT__SIGNATURE_MASK (~((UINT64_C(1) << 33) - 1))

/* `count` and `kind` (op, dtype, reduce op, root) each go through a multiplication that keeps small differences apart;
 * another mixes the two. A few ns, since every call pays for it. */
static inline uint64_t tt__signature_bits(uint64_t kind, uint64_t count) {
    uint64_t h = (count * UINT64_C(0x9e3779b97f4a7c15)) ^ (kind * UINT64_C(0xff51afd7ed558ccd));
    return ((h ^ (h >> 32)) * UINT64_C(0xd6e8feb86659fd93)) & TT__SIGNATURE_MASK;
}

static inline uint64_t tt__signature_kind(tt_op op, tt_dtype dtype, tt_reduce_op reduce_op, int root) {
    return (uint64_t)op | (uint64_t)dtype << 8 | (uint64_t)reduce_op << 16 | (uint64_t)(uint32_t)root << 24;
}

#endif
