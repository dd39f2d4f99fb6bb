#include "cli/run/run_crash.h"

#include "base/error.h"
#include "base/format.h"
#include "base/plain_text.h"
#include "cli/cli.h"
#include "cli/look/job_view.h"
#include "cli/look/process_stacks.h"

#include <stdio.h>
#include <string.h>

/* What a reader needs who has not seen the program run: the whole way to the mistake, and what else went on. */
enum { MOST_FRAMES = 64, OTHER_THREADS = 8, OTHER_FRAMES = 8, LAST_CALLS = 4 };

void tt__run_stacks(pid_t pid, pid_t thread, uint64_t pc, FILE *out) {
    const tt__dwfl *lib = tt__dwfl_get();
    const tt__stacks_wanted wanted = {MOST_FRAMES, thread, pc, OTHER_THREADS, OTHER_FRAMES};
    if (lib)
        tt__process_stacks(lib, pid, &wanted, out);
    else
        tt__cli_print(out, "  not to be seen: %s\n", tt_last_error());
}

static const char *before_end(const tt__view_rank *rank, int64_t at_ns, char *text, size_t size) {
    double s = (double)(rank->now_ns - at_ns) / 1e9;
    tt__format(text, size, "%.*f s before its end", s < 10 ? 3 : 1, s < 0 ? 0 : s);
    return text;
}

static void write_last_call(const tt__view_rank *rank, const tt__view_call *c, FILE *out) {
    char call[256], when[64];
    tt__record_text(rank->recorder, &c->record, call, sizeof call);
    fprintf(out, "  %s, call %u of group %s, ", tt__make_plain_name(call), c->record.call,
            tt__recorder_group_ranks(rank->recorder, c->record.group));
    if (c->open)
        fprintf(out, "begun %s, not done\n", before_end(rank, c->begin_ns, when, sizeof when));
    else
        fprintf(out, "%s %s\n", c->record.state == TT__CALL_FAILED ? "failed" : "done",
                before_end(rank, c->end_ns, when, sizeof when));
}

/* Did the program make the call? Not if it is part of another. */
static bool is_the_programs(const tt__view_rank *rank, const tt__view_call *c) {
    return !(c->record.flags & TT__RECORD_CHILD) &&
           (c->open || strcmp(rank->recorder->files[c->record.file], "tt_init_process_group") != 0);
}

/* Those that are not done are written, however old. */
static void write_rank_calls(const tt__view_rank *rank, FILE *out) {
    int wanted[TT__RECORDS], n = 0, left = LAST_CALLS;
    for (int i = rank->n - 1; i >= 0; i--) {
        const tt__view_call *c = &rank->calls[i];
        if (!is_the_programs(rank, c) || !(left > 0 || (c->open && n < 2 * LAST_CALLS)))
            continue;
        wanted[n++] = i;
        left--;
    }
    if (n)
        fprintf(out, "its last calls:\n");
    while (n--)
        write_last_call(rank, &rank->calls[wanted[n]], out);
}

void tt__run_last_calls(tt__snapshot *snapshot, FILE *out) {
    tt__view view;
    if (tt__view_make(&view, snapshot))
        return;
    if (view.n == 1 && view.ranks[0].recorder)
        write_rank_calls(&view.ranks[0], out);
    tt__view_free(&view);
}

pid_t tt__run_idle(tt__snapshot *snapshot) {
    tt__view view;
    pid_t pid = 0;
    if (tt__view_make(&view, snapshot))
        return 0;
    const tt__view_rank *rank = view.n == 1 ? &view.ranks[0] : NULL;
    if (rank && rank->recorder && rank->state == TT__VIEW_RUNS && !(rank->current && rank->current->open))
        pid = (pid_t)rank->recorder->pid;
    tt__view_free(&view);
    return pid > 1 ? pid : 0;
}
