/* Reads what PyTorch's rendezvous has put into a store, from stdin, and writes what it says in lines, and then the same
 * state as we write it. With "steps", and "naive" if times are that
 * where none is there: reads lines
 *
 *   OPERATION MIN MAX LAST_CALL_MS KEEP_ALIVE_MS KEEP_ALIVE_MAX NOW_US LATE_MS ADDRESS PID ID STATE
 *
 * and answers each by a line: VERDICT, whether the clock begins anew, and the state after that step. */
#include "elastic/torch_rendezvous.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TEXT = 1 << 20 };

static char text[MAX_TEXT];

static void fail(void) {
    fprintf(stderr, "%s\n", tt_last_error());
    exit(1);
}

static void show_member(const tt__torch_member *m) {
    printf("%s %" PRId64 " %" PRId64 " %s%s%s rank %" PRId64 " beat %" PRId64 "\n", m->node.address, m->node.pid,
           m->node.local_id, m->participant ? "p" : "", m->waiting ? "w" : "", m->redundant ? "r" : "", m->rank,
           m->beats ? m->beat_us : -1);
}

static void show_encoded(const tt__torch_state *state) {
    tt__bytes again = {0};
    if (tt__torch_encode(state, &again))
        fail();
    printf("%s\n", (const char *)again.data);
    fflush(stdout);
    tt__bytes_free(&again);
}

static void recode(void) {
    tt__torch_state state;
    if (tt__torch_decode(&state, text, fread(text, 1, sizeof text, stdin)))
        fail();
    printf("round %" PRId64 " %s %s deadline %" PRId64 " times %d\n", state.round, state.complete ? "complete" : "open",
           state.closed ? "closed" : "-", state.has_deadline ? state.deadline_us : -1, (int)state.times);
    for (size_t i = 0; i < state.count; i++)
        show_member(&state.members[i]);
    show_encoded(&state);
    tt__torch_state_free(&state);
}

static tt__torch_verdict take(const char *operation, const tt__torch_step *step) {
    if (!strcmp(operation, "sanitize")) {
        tt__torch_sanitize(step->state, step->settings, step->now_us);
        return TT__TORCH_FINISHED;
    }
    return !strcmp(operation, "join")    ? tt__torch_join(step)
           : !strcmp(operation, "leave") ? tt__torch_leave(step)
           : !strcmp(operation, "close") ? tt__torch_close(step)
                                         : tt__torch_keep_alive(step);
}

static bool take_line(tt__torch_times times) {
    static const char *const verdicts[] = {
        [TT__TORCH_FINISHED] = "finished", [TT__TORCH_WRITE] = "write",       [TT__TORCH_WAIT] = "wait",
        [TT__TORCH_CLOSED] = "closed",     [TT__TORCH_UNNEEDED] = "unneeded", [TT__TORCH_LATE] = "late",
        [TT__TORCH_NO_ROOM] = "no room"};
    char operation[16];
    tt__torch_settings settings;
    tt__torch_node node;
    tt__torch_state state;
    bool restarts = false;
    int64_t now_us, late_ms;
    if (scanf("%15s %d %d %" SCNd64 " %" SCNd64 " %d %" SCNd64 " %" SCNd64 " %255s %" SCNd64 " %" SCNd64 " %1048575s",
              operation, &settings.min_nodes, &settings.max_nodes, &settings.last_call_ms, &settings.keep_alive_ms,
              &settings.keep_alive_max, &now_us, &late_ms, node.address, &node.pid, &node.local_id, text) != 12)
        return false;
    if (tt__torch_decode(&state, text, strlen(text)))
        fail();
    const tt__torch_step step = {&state, &settings, &node, now_us, late_ms, &restarts};
    if (state.times == TT__TORCH_TIMES_UNKNOWN)
        state.times = times;
    const char *verdict = verdicts[take(operation, &step)];
    printf("%s %d ", verdict, restarts);
    show_encoded(&state);
    tt__torch_state_free(&state);
    return true;
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "steps"))
        while (take_line(argc > 2 ? TT__TORCH_NAIVE : TT__TORCH_AWARE))
            ;
    else
        recode();
    return 0;
}
