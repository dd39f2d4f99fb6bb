/* Group calls in the flight recorder: their records, signatures and texts. */
#ifndef TT_COMM_RECORD_CALL_RECORD_H
#define TT_COMM_RECORD_CALL_RECORD_H

#include "comm/native_group.h"

#include <tutti/backend.h>

/* Return the signature of the work's call, as in its arrival word (below), whose upper 32 bits travel with messages. A
 * child's depends on its parent's. */
uint64_t tt__signature(const tt_work *work);

/* Begin a record in the process's flight recorder, with all but its lists; then tt__record_ready(). `call`: see
 * tt__record_begin(); its group is set here. */
static inline tt__record_slot *tt__record_begin_call(const tt_group *group, const char *file, int line,
                                                     tt__call_record call) {
    call.group = group->id;
    return tt__record_begin(&tt__world_control(group->native->world)->recorder, file, line, call);
}

/* Write a record of the call, with its lists. */
tt__record_slot *tt__record_call(tt_group *group, const tt_call *call, uint32_t seq, int flags);

/* Write "all_reduce(f32 x 512, sum) at train.c:88": of call `seq` as rank r published it; of this process's own
 * work. */
void tt__call_text(const tt_group *group, int r, uint32_t seq, char *text, size_t size);
void tt__work_text(const tt_work *work, char *text, size_t size);

/* In texts of frees: the rank's own error follows, after which it freed. */
#define TT__AFTER_FAILURE " after "

/* In texts of frees that the library makes for the program: the function that the program called, such as
 * tt_module_free, follows. */
#define TT__RELEASES ") in tt_"

/* Does this text show a rank that leaves: it frees on behalf of a module, or after an error of its own? */
bool tt__is_leaving(const char *text);

/* Find what rank r of the job, of this host, called as number `seq` of a group that is no inner one: its text and word,
 * from its flight recorder. False: it has made no such call yet, or it is too long ago. */
bool tt__find_call(const tt__world *world, int r, uint32_t group, uint32_t seq, char *text, size_t size,
                   uint32_t *word);

/* Find what rank r of the job, of this host, called when it wrote this record of a send, a receive or a batch in
 * `group`. False: too long ago. */
bool tt__find_p2p(const tt__world *world, int r, uint32_t group, uint32_t number, char *text, size_t size);

/* ---- a call's signature as it travels in its arrival word: hash in the upper 31 bits, below it a bit "symmetric",
 * then the sequence number */

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
