/* What a rank and its launcher tell each other of recovery: a rank by four words in its flight recorder, in memory that
 * the launcher maps; the launcher by packets on the job's own socket (job_socket.h), so that no store is needed, and
 * its host may be what is lost.
 *
 *   rank     -> launcher  recovers, wants_round, lost, stopped_by (below)
 *   launcher -> rank      TT__JOB_ROUND, when all ranks that live want it: its number, which is higher than that of the
 *                         round before, not always by one; the rank's own number there, the world, the store, why
 *   launcher -> rank      TT__JOB_WANTED: the number of a round that it would like, while all is well
 *   launcher -> rank      TT__JOB_NO_ROUND: the round that the rank waits for won't come, and why
 *
 * All ranks may want a round where nobody was lost: a call may have timed out. Of the recorders that a rank has shown
 * the newest counts; that of a rank that has ended stays readable, and says whether it stopped as agreed.
 *
 * A new worker finds the round that it begins in as TT_ROUND in its environment; absent: 0. How ranks end is noted in
 * the store under tt__ended_key(), by rounds, so that no rank is taken for one that had its number before. */
#ifndef TT_NET_RECOVERY_WORDS_H
#define TT_NET_RECOVERY_WORDS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef struct tt__recovery_words {
    _Atomic uint32_t recovers;    /* 1: this process survives a failure of others */
    _Atomic uint32_t wants_round; /* the round that it waits for; 0: none */
    _Atomic uint32_t lost;        /* 1 + the rank, of its present round, that its last TT_ERR_PEER blamed; 0: none */
    _Atomic uint32_t stopped_by;  /* the signal for which all ranks agreed to stop; 0: none */
} tt__recovery_words;

/* "tutti/ended/RANK"; in rounds after 0 "tutti/ended/RANK/ROUND". */
static inline const char *tt__ended_key(char key[64], int rank, int round) {
    if (round)
        snprintf(key, 64, "tutti/ended/%d/%d", rank, round);
    else
        snprintf(key, 64, "tutti/ended/%d", rank);
    return key;
}

/* The same as a reader has it. */
typedef struct tt__recovery {
    uint32_t recovers, wants_round, lost, stopped_by;
} tt__recovery;

/* Where the words lie in a recorder; comm/record/recorder.h checks it. */
enum { TT__RECOVERY_AT = 192 };

/* Read the words of a recorder of `size` bytes, which another process may be writing. False: there are none. */
static inline bool tt__recovery_read(const void *recorder, size_t size, tt__recovery *out) {
    *out = (tt__recovery){0};
    if (!recorder || size < TT__RECOVERY_AT + sizeof(tt__recovery_words))
        return false;
    const tt__recovery_words *words = (const void *)((const char *)recorder + TT__RECOVERY_AT);
    out->wants_round = atomic_load_explicit(&words->wants_round, memory_order_acquire); /* written last */
    out->recovers = atomic_load_explicit(&words->recovers, memory_order_relaxed);
    out->lost = atomic_load_explicit(&words->lost, memory_order_relaxed);
    out->stopped_by = atomic_load_explicit(&words->stopped_by, memory_order_relaxed);
    return true;
}

#endif
