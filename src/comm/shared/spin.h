/* Busy waiting for what other ranks publish in shared memory. */
#ifndef TT_COMM_SHARED_SPIN_H
#define TT_COMM_SHARED_SPIN_H

#include "comm/shared/arrival.h"
#include "comm/shared/pause.h"

/* The first looks follow each other at once: a pause may last as long as a word takes from one CPU to another. */
enum { TT__EAGER_LOOKS = 8 };

/* Look so many times at most; whether what `wait` is for has happened. */
static inline __attribute__((always_inline)) bool tt__spin(const tt_group *group, tt__wait *wait, int looks) {
    for (int i = 0; i < looks; i++) {
        if (tt__ready(group, wait))
            return true;
        if (i >= TT__EAGER_LOOKS)
            tt__pause_cpu();
    }
    return false;
}

#endif
