#include "base/process/stack_room.h"

#include <pthread.h>
#include <stdint.h>

enum { ENOUGH = 256 << 10 };

typedef struct stack_range {
    uintptr_t low;
    size_t size; /* 0: not known */
    bool asked;
} stack_range;

static stack_range ask_range(void) {
    stack_range range = {.asked = true};
    pthread_attr_t attr;
    void *low;
    size_t size, guard = 0;
    if (pthread_getattr_np(pthread_self(), &attr))
        return range;
    if (!pthread_attr_getstack(&attr, &low, &size) && !pthread_attr_getguardsize(&attr, &guard) && size > guard) {
        range.low = (uintptr_t)low + guard;
        range.size = size - guard;
    }
    pthread_attr_destroy(&attr);
    return range;
}

bool tt__stack_has_room(size_t *size) {
    static _Thread_local stack_range range;
    char here;
    if (!range.asked)
        range = ask_range();
    *size = range.size;
    size_t left = (uintptr_t)&here - range.low, enough = range.size / 2 < ENOUGH ? range.size / 2 : ENOUGH;
    return left >= range.size || left >= enough; /* outside of it: another stack */
}
