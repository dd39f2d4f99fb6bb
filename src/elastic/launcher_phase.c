/* Steps from one phase of a job to the next; launcher.c has the overview. */
#include "base/cgroup.h"
#include "base/clock.h"
#include "elastic/launcher.h"

#include <time.h>
#include <unistd.h>

typedef tt__launcher_state launcher;

void tt__launcher_begin(launcher *l) {
    l->started = tt__moment_now();
    l->phase = TT__RUNNING;
    l->deadline_ms = INT64_MAX;
    l->memory_kills = tt__cgroup_memory_kills("");
    if (l->job->look && l->job->look_ms)
        l->look_ms = tt__deadline_ms(l->job->look_ms);
    tt__watch_first_rank(l->watch, l->job->first_rank);
    for (int rank = 0; rank < l->job->workers; rank++)
        l->streams.of[rank].hidden = l->job->logs && l->job->logs->hidden[rank];
    tt__follow_begin(l->follow);
    tt__keeper_send_world(&l->keeper, l->job);
    tt__keeper_start_workers(&l->keeper, l->job, l->pipe_ends);
    tt__launcher_close_pipes(l);
}

void tt__launcher_close_pipes(launcher *l) {
    for (int rank = 0; l->pipe_ends && rank < l->job->workers; rank++) {
        if (l->pipe_ends[rank] >= 0)
            close(l->pipe_ends[rank]);
        l->pipe_ends[rank] = -1;
    }
}

void tt__launcher_enter(launcher *l, tt__launcher_phase phase, int64_t timeout_ms) {
    l->phase = phase;
    l->deadline_ms = tt__deadline_ms(timeout_ms);
}

void tt__launcher_note_signal(launcher *l, int sig) {
    for (int rank = 0; rank < l->job->workers; rank++) {
        tt__worker *w = &l->workers[rank];
        if (w->ended)
            continue;
        if (!w->sent_signal)
            w->signal_s = (int64_t)time(NULL);
        w->sent_signal = sig;
    }
}

void tt__launcher_terminate(launcher *l, int sig) {
    tt__launcher_note_signal(l, sig);
    tt__keeper_send(&l->keeper, l->ended < l->job->workers ? TT__KEEPER_SIGNAL : TT__KEEPER_SWEEP, sig);
    tt__launcher_enter(l, TT__TERMINATING, l->job->grace_ms);
}

void tt__launcher_kill(launcher *l) {
    tt__launcher_note_signal(l, SIGKILL);
    tt__keeper_send(&l->keeper, TT__KEEPER_KILL, 0);
    tt__launcher_enter(l, TT__KILLING, TT__KEEPER_KILL_MS);
}
