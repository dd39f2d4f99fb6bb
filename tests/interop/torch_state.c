/* Reads what PyTorch's rendezvous has put into a store, from stdin; writes what it says in lines, and then the same
 * state as we write it. */
#include "elastic/torch_state.h"

#include <inttypes.h>
#include <stdio.h>

static void show_member(const tt__torch_member *m) {
    printf("%s %" PRId64 " %" PRId64 " %s%s%s rank %" PRId64 " beat %" PRId64 "\n", m->node.address, m->node.pid,
           m->node.local_id, m->participant ? "p" : "", m->waiting ? "w" : "", m->redundant ? "r" : "", m->rank,
           m->beats ? m->beat_us : -1);
}

int main(void) {
    static char text[1 << 20];
    tt__torch_state state;
    tt__bytes again = {0};
    size_t size = fread(text, 1, sizeof text, stdin);
    if (tt__torch_decode(&state, text, size) || tt__torch_encode(&state, &again)) {
        fprintf(stderr, "%s\n", tt_last_error());
        return 1;
    }
    printf("round %" PRId64 " %s %s deadline %" PRId64 " times %d\n", state.round, state.complete ? "complete" : "open",
           state.closed ? "closed" : "-", state.has_deadline ? state.deadline_us : -1, (int)state.times);
    for (size_t i = 0; i < state.count; i++)
        show_member(&state.members[i]);
    printf("%s\n", (const char *)again.data);
    tt__bytes_free(&again);
    tt__torch_state_free(&state);
    return 0;
}
