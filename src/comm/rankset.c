#include "comm/rankset.h"

#include <stdio.h>

int tt__rankset_count(const tt__rankset *set) {
    int n = 0;
    for (int i = 0; i < TT__MAX_RANKS / 64; i++)
        n += __builtin_popcountll(set->bits[i]);
    return n;
}

int tt__rankset_next(const tt__rankset *set, int from) {
    for (int r = from; r < TT__MAX_RANKS; r++) {
        uint64_t left = set->bits[r / 64] >> r % 64;
        if (left)
            return r + __builtin_ctzll(left);
        r |= 63;
    }
    return -1;
}

const char *tt__rankset_list(const tt__rankset *set, char *text, size_t size) {
    size_t n = 0;
    const char *comma = "";
    text[0] = '\0';
    for (int r = tt__rankset_next(set, 0); r >= 0 && n < size;) {
        int last = r;
        while (last + 1 < TT__MAX_RANKS && tt__rankset_has(set, last + 1))
            last++;
        n += (size_t)snprintf(text + n, size - n, last > r ? "%s%d-%d" : "%s%d", comma, r, last);
        comma = ", ";
        r = last + 1 < TT__MAX_RANKS ? tt__rankset_next(set, last + 1) : -1;
    }
    return text;
}

const char *tt__rankset_text(const tt__rankset *set, char *text, size_t size) {
    int n = snprintf(text, size, tt__rankset_count(set) > 1 ? "ranks " : "rank ");
    if ((size_t)n < size)
        tt__rankset_list(set, text + n, size - (size_t)n);
    return text;
}
