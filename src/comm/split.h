/* Which ranks form a new group when a group is split. */
#ifndef TT_COMM_SPLIT_H
#define TT_COMM_SPLIT_H

#include <stddef.h>
#include <stdint.h>

/* A rank's choice of the new group that it is to be in. */
typedef struct tt__choice {
    int32_t color; /* < 0: in none */
    int32_t key;   /* how it is ordered there */
} tt__choice;

static inline const tt__choice *tt__choice_of(const void *choices, size_t stride, int r) {
    return (const tt__choice *)(const void *)((const char *)choices + (size_t)r * stride);
}

/* members := the ranks, of `size`, whose color is `color`, by key, then by rank; room for `size`. choices: structs of
 * `stride` bytes that begin with a tt__choice, one of each rank. Returns how many. */
static inline int tt__split_members(const void *choices, size_t stride, int size, int color, int *members) {
    int n = 0;
    for (int r = 0; r < size; r++) {
        const tt__choice *choice = tt__choice_of(choices, stride, r);
        if (choice->color != color)
            continue;
        int at = n++;
        for (; at > 0 && tt__choice_of(choices, stride, members[at - 1])->key > choice->key; at--)
            members[at] = members[at - 1];
        members[at] = r;
    }
    return n;
}

#endif
