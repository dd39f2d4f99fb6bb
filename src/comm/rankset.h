/* A set of ranks, and how error texts name it. */
#ifndef TT_COMM_RANKSET_H
#define TT_COMM_RANKSET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TT__MAX_RANKS = 1024 /* of a job */ };

typedef struct tt__rankset {
    uint64_t bits[TT__MAX_RANKS / 64];
} tt__rankset;

static inline void tt__rankset_add(tt__rankset *set, int r) { set->bits[r / 64] |= UINT64_C(1) << r % 64; }
static inline bool tt__rankset_has(const tt__rankset *set, int r) { return set->bits[r / 64] >> r % 64 & 1; }

int tt__rankset_count(const tt__rankset *set);

/* Return the lowest rank of the set that is at least `from`; -1 if there is none. */
int tt__rankset_next(const tt__rankset *set, int from);

/* "rank 3" or "ranks 0-2, 5". The set is not empty. Returns `text`. */
const char *tt__rankset_text(const tt__rankset *set, char *text, size_t size);

/* Write the same without the word: "0-2, 5". */
const char *tt__rankset_list(const tt__rankset *set, char *text, size_t size);

#endif
