#include "base/process/new_process.h"

#include <stdatomic.h>
#include <stddef.h>

enum { MOST = 8 };

static void (*_Atomic begins[MOST])(void);
static _Atomic int count;

void tt__on_new_process(void (*begin)(void)) {
    int mine = count++;
    if (mine < MOST)
        begins[mine] = begin;
}

void tt__new_process_begins(void) {
    for (int i = 0; i < MOST; i++) {
        void (*begin)(void) = begins[i];
        if (begin) /* else another thread of the parent was about to say so */
            begin();
    }
}
