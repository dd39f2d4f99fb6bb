#include "elastic/torch_state.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

void tt__torch_state_free(tt__torch_state *state) {
    free(state->members);
    *state = (tt__torch_state){0};
}

int tt__torch_node_compare(const tt__torch_node *a, const tt__torch_node *b) {
    int order = strcmp(a->address, b->address);
    if (!order)
        order = (a->pid > b->pid) - (a->pid < b->pid);
    return order ? order : (a->local_id > b->local_id) - (a->local_id < b->local_id);
}

tt__torch_member *tt__torch_find(const tt__torch_state *state, const tt__torch_node *node) {
    for (size_t i = 0; i < state->count; i++)
        if (!tt__torch_node_compare(&state->members[i].node, node))
            return &state->members[i];
    return NULL;
}

tt__torch_member *tt__torch_add(tt__torch_state *state, const tt__torch_node *node) {
    tt__torch_member *member = tt__torch_find(state, node);
    if (member)
        return member;
    if (state->count == TT__TORCH_MAX_NODES)
        return tt__fail_null(TT_ERR_UNSUPPORTED, "a rendezvous of more than %d nodes", TT__TORCH_MAX_NODES);
    if (state->count == state->room) {
        size_t room = state->room ? 2 * state->room : 8;
        tt__torch_member *members = realloc(state->members, room * sizeof *members);
        if (!members)
            return tt__fail_null(TT_ERR_MEMORY, "no memory for a rendezvous of %zu nodes", room);
        state->members = members;
        state->room = room;
    }
    member = &state->members[state->count++];
    *member = (tt__torch_member){.node = *node};
    return member;
}

int tt__torch_participants(const tt__torch_state *state) {
    int n = 0;
    for (size_t i = 0; i < state->count; i++)
        n += state->members[i].participant;
    return n;
}

int tt__torch_waiting(const tt__torch_state *state) {
    int n = 0;
    for (size_t i = 0; i < state->count; i++)
        n += state->members[i].waiting;
    return n;
}
