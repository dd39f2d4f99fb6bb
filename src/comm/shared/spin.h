/* Busy waiting for what other ranks publish in shared memory. */
#ifndef TT_COMM_SHARED_SPIN_H
#define TT_COMM_SHARED_SPIN_H

#include "comm/shared/arrival.h"
#include "comm/shared/pause.h"

/* The first looks follow each other at once: a pause may last as long as a word takes from one CPU to another. */
enum { TT__EAGER_LOOKS = 8 };

/* Look for the `i`th time without success. */
static inline void tt__spin_pause(int i) {
    if (i >= TT__EAGER_LOOKS)
        tt__pause_cpu();
}

/* Look so many times at most; whether what `wait` is for has happened. */
static inline __attribute__((always_inline)) bool tt__spin(const tt_group *group, tt__wait *wait, int looks) {
    for (int i = 0; i < looks; i++) {
        if (tt__ready(group, wait))
            return true;
        tt__spin_pause(i);
    }
    return false;
}

/* The same for one rank whose memory is at hand, where a look is a single load: has it arrived with the very word that
 * this rank published (false also: with another of the same call)? Has it finished `step`? */
static inline __attribute__((always_inline)) bool tt__spin_word(const tt__slot *slot, uint64_t mine, int looks) {
    for (int i = 0; i < looks; i++) {
        uint64_t word = tt__word_in(slot);
        if (word == mine)
            return true;
        if ((uint32_t)word == (uint32_t)mine)
            return false;
        tt__spin_pause(i);
    }
    return false;
}

static inline __attribute__((always_inline)) bool tt__spin_step(const tt__area *area, uint32_t step, int looks) {
    for (int i = 0; i < looks; i++) {
        if (tt__has_finished(area, step))
            return true;
        tt__spin_pause(i);
    }
    return false;
}

#endif
