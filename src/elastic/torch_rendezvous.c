#include "elastic/torch_rendezvous.h"

#include <stdlib.h>

/* ---- changes of the state */

static bool is_unknown(const tt__torch_member *m) {
    return !m->participant && !m->waiting && !m->redundant && !m->beats;
}

static void drop_unknown(tt__torch_state *state) {
    size_t kept = 0;
    for (size_t i = 0; i < state->count; i++)
        if (!is_unknown(&state->members[i]))
            state->members[kept++] = state->members[i];
    state->count = kept;
}

/* A participant has gone. */
static void after_removal(tt__torch_state *state, const tt__torch_settings *settings) {
    int left = tt__torch_participants(state);
    if (state->complete && !left) {
        state->complete = false;
        state->round++;
    } else if (!state->complete && left < settings->min_nodes) {
        state->has_deadline = false;
    }
}

void tt__torch_sanitize(tt__torch_state *state, const tt__torch_settings *settings, int64_t now_us) {
    int64_t oldest = now_us - settings->keep_alive_ms * settings->keep_alive_max * 1000;
    bool removed = false;
    for (size_t i = 0; i < state->count; i++) {
        tt__torch_member *m = &state->members[i];
        if (!m->beats || m->beat_us >= oldest)
            continue;
        removed = removed || m->participant;
        m->participant = m->waiting = m->redundant = m->beats = false;
    }
    drop_unknown(state);
    if (removed)
        after_removal(state, settings);
}

static int compare_pointed(const void *a, const void *b) {
    return tt__torch_node_compare(&(*(tt__torch_member *const *)a)->node, &(*(tt__torch_member *const *)b)->node);
}

/* Number the participants. False: no memory. */
static bool complete_round(tt__torch_state *state) {
    tt__torch_member **sorted = malloc((state->count + 1) * sizeof *sorted);
    size_t n = 0;
    if (!sorted)
        return false;
    for (size_t i = 0; i < state->count; i++)
        if (state->members[i].participant)
            sorted[n++] = &state->members[i];
    qsort(sorted, n, sizeof *sorted, compare_pointed);
    for (size_t i = 0; i < n; i++)
        sorted[i]->rank = (int64_t)i;
    free(sorted);
    state->complete = true;
    state->has_deadline = false;
    return true;
}

static tt__torch_member *beat(const tt__torch_step *s) {
    tt__torch_member *own = tt__torch_add(s->state, s->node);
    if (own) {
        own->beats = true;
        own->beat_us = s->now_us;
    }
    return own;
}

static tt__torch_verdict participate(const tt__torch_step *s) {
    tt__torch_member *own = beat(s);
    if (!own)
        return TT__TORCH_NO_ROOM;
    own->waiting = false;
    own->participant = true;
    own->rank = 0;
    int n = tt__torch_participants(s->state);
    if (n == s->settings->min_nodes) {
        s->state->has_deadline = true;
        s->state->deadline_us = s->now_us + s->settings->last_call_ms * 1000;
    }
    return n != s->settings->max_nodes || complete_round(s->state) ? TT__TORCH_WRITE : TT__TORCH_NO_ROOM;
}

static tt__torch_verdict line_up(const tt__torch_step *s, bool redundant) {
    tt__torch_member *own = beat(s);
    if (!own)
        return TT__TORCH_NO_ROOM;
    own->redundant = redundant;
    own->waiting = !redundant;
    return TT__TORCH_WRITE;
}

/* Take this node's name out of the list that the flag stands for; its heartbeats go, too. */
static tt__torch_verdict withdraw(const tt__torch_step *s, tt__torch_member *own, bool *flag) {
    bool took_part = flag == &own->participant;
    *flag = own->beats = false;
    drop_unknown(s->state);
    if (took_part)
        after_removal(s->state, s->settings);
    return TT__TORCH_WRITE;
}

static bool is_beat_due(const tt__torch_step *s, const tt__torch_member *own) {
    return own && own->beats && own->beat_us <= s->now_us - s->settings->keep_alive_ms * 1000;
}

static tt__torch_verdict beat_or_wait(const tt__torch_step *s, const tt__torch_member *own) {
    if (!is_beat_due(s, own))
        return TT__TORCH_WAIT;
    return beat(s) ? TT__TORCH_WRITE : TT__TORCH_NO_ROOM;
}

/* ---- operations */

tt__torch_verdict tt__torch_leave(const tt__torch_step *s) {
    tt__torch_member *own = tt__torch_find(s->state, s->node);
    if (!own || !own->participant)
        return TT__TORCH_FINISHED;
    return s->late_ms > 0 ? TT__TORCH_LATE : withdraw(s, own, &own->participant);
}

tt__torch_verdict tt__torch_depart(const tt__torch_step *s) {
    tt__torch_member *own = tt__torch_find(s->state, s->node);
    bool *list = !own ? NULL : own->redundant ? &own->redundant : own->waiting ? &own->waiting : &own->participant;
    if (!own || s->late_ms > 0)
        return own ? TT__TORCH_LATE : TT__TORCH_FINISHED;
    return withdraw(s, own, list);
}

tt__torch_verdict tt__torch_keep_alive(const tt__torch_step *s) {
    if (!is_beat_due(s, tt__torch_find(s->state, s->node)))
        return TT__TORCH_FINISHED;
    return s->late_ms > 0 ? TT__TORCH_LATE : beat(s) ? TT__TORCH_WRITE : TT__TORCH_NO_ROOM;
}

tt__torch_verdict tt__torch_close(const tt__torch_step *s) {
    if (s->state->closed)
        return TT__TORCH_FINISHED;
    if (s->late_ms > 0)
        return TT__TORCH_LATE;
    s->state->closed = true;
    return TT__TORCH_WRITE;
}

/* The time to join has passed. */
static tt__torch_verdict give_up(const tt__torch_step *s, tt__torch_member *own) {
    if (s->late_ms <= TT__TORCH_ROLLBACK_MS && own && own->participant)
        return withdraw(s, own, &own->participant);
    if (s->late_ms <= TT__TORCH_ROLLBACK_MS && own && own->waiting)
        return withdraw(s, own, &own->waiting);
    return TT__TORCH_LATE;
}

/* One who finds no place waits for as long as it takes, and then has all the time to join. */
static tt__torch_verdict stand_by(const tt__torch_step *s, tt__torch_member *own) {
    if (s->state->closed)
        return TT__TORCH_UNNEEDED;
    if (tt__torch_participants(s->state) == s->settings->max_nodes)
        return beat_or_wait(s, own);
    if (s->restart_clock)
        *s->restart_clock = true;
    return withdraw(s, own, &own->redundant);
}

tt__torch_verdict tt__torch_join(const tt__torch_step *s) {
    tt__torch_state *state = s->state;
    tt__torch_member *own = tt__torch_find(state, s->node);
    if (own && own->redundant)
        return stand_by(s, own);
    if (state->closed)
        return TT__TORCH_CLOSED;
    bool takes_part = own && own->participant;
    int n = tt__torch_participants(state);
    if (state->complete && takes_part)
        return TT__TORCH_FINISHED;
    if (s->late_ms > 0)
        return give_up(s, own);
    if (state->complete) {
        bool waits = own && own->waiting;
        if (!waits)
            return line_up(s, n >= s->settings->max_nodes);
    } else if (!takes_part) {
        return participate(s);
    } else if (n >= s->settings->min_nodes && n <= s->settings->max_nodes && state->has_deadline &&
               state->deadline_us < s->now_us) {
        return complete_round(state) ? TT__TORCH_WRITE : TT__TORCH_NO_ROOM;
    }
    return beat_or_wait(s, own);
}
