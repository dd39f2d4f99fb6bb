#include "cli/run/run_look.h"

#include "base/error.h"
#include "base/process/proc_state.h"
#include "base/text/format.h"
#include "cli/look/training.h"
#include "comm/rankset.h"
#include "launch/local/terminal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LOOK_MS = 500, TEXT_SIZE = 512 };

/* A rank's wait, as last seen. */
typedef struct wait_seen {
    uint64_t since; /* ticks; 0: it does not wait */
    int32_t whom;
    uint32_t group, seq;
    int64_t ns;
    /* The last one that was reported. A program that looks up from a wait now and then, as Python does for its signals,
     * seems not to wait for a moment, and goes on with the same. */
    uint64_t said_since;
    int32_t said_whom;
} wait_seen;

typedef struct run_look {
    int64_t notice_ms;
    bool follows;     /* the training is shown */
    wait_seen *waits; /* (workers) */
} run_look;

/* Note a rank's wait. */
static void see_wait(wait_seen *seen, const tt__recorder *recorder, const tt__moment *now) {
    tt__waiting waiting;
    seen->since = 0;
    if (!recorder || !tt__recorder_waiting(recorder, &waiting))
        return;
    tt__ticks_line line = tt__ticks_line_through(&recorder->begin, now);
    seen->since = waiting.since;
    seen->whom = waiting.whom;
    seen->group = waiting.group;
    seen->seq = waiting.seq;
    seen->ns = now->monotonic_ns - tt__ticks_ns(&line, waiting.since);
}

/* Has the wait been reported? Of a process whose threads wait for several, only later ones are new; of one wait, later
 * ranks that it is for. */
static bool was_said(const wait_seen *w) {
    return w->since < w->said_since || (w->since == w->said_since && w->whom <= w->said_whom);
}

static void note_said(wait_seen *w) {
    w->said_since = w->since;
    w->said_whom = w->whom;
}

/* Do both wait for the same rank in the same call? Receives have no number. */
static bool is_same_wait(const wait_seen *a, const wait_seen *b) {
    return a == b || (a->since && b->since && a->seq && a->whom == b->whom && a->group == b->group && a->seq == b->seq);
}

/* Write where a rank is, by its recorder rather than by the launcher, which may have started a script around it. */
static const char *place_of_rank(const tt__job *job, const tt__job_look *look, int rank,
                                 const tt__recorder *const *recorders, char *text, size_t size) {
    int i = rank - job->first_rank;
    if (i < 0 || i >= job->workers || !recorders[i])
        return look->place(look->user, rank, text, size);
    int64_t pid = recorders[i]->pid; /* the rank may write anything there */
    bool ended = pid > 0 && pid == (pid_t)pid && tt__proc_main_ended((pid_t)pid);
    snprintf(text, size, "host %.64s, pid %lld%s", recorders[i]->hostname, (long long)pid,
             ended ? ", whose main thread has ended" : "");
    return text;
}

static void say_wait(const tt__job *job, const tt__job_look *look, int i, const tt__recorder *const *recorders,
                     const tt__rankset *ranks) {
    const tt__recorder *recorder = recorders[i];
    const run_look *own = job->look_user;
    const wait_seen *seen = &own->waits[i];
    char call[256] = "a call", whom[160], place[128], list[128], line[TEXT_SIZE + 256];
    tt__waiting waiting;
    tt__call_record record;
    if (tt__recorder_waiting(recorder, &waiting) && tt__record_read(recorder, waiting.record, &record))
        tt__record_text(recorder, &record, call, sizeof call);
    if (seen->whom < 0)
        snprintf(whom, sizeof whom, "a message from any rank");
    else
        snprintf(whom, sizeof whom, "rank %d (%s)", (int)seen->whom,
                 place_of_rank(job, look, seen->whom, recorders, place, sizeof place));
    tt__format(line, sizeof line, "waiting for %s: %.3g s in %s, on %s", whom, (double)seen->ns / 1e9, call,
               tt__rankset_text(ranks, list, sizeof list));
    look->say(look->user, line);
}

/* Report waits: equal ones in one line, and none for a rank that joins a wait already reported. */
static void say_waits(const tt__job *job, const tt__job_look *look, const tt__recorder *const *recorders) {
    run_look *own = job->look_user;
    for (int i = 0; i < job->workers; i++) {
        tt__rankset ranks = {0};
        bool reported = false;
        if (!own->waits[i].since || was_said(&own->waits[i]) || own->waits[i].ns < own->notice_ms * 1000000)
            continue;
        for (int k = 0; k < job->workers; k++) {
            wait_seen *other = &own->waits[k];
            if (!is_same_wait(&own->waits[i], other))
                continue;
            reported = reported || was_said(other);
            tt__rankset_add(&ranks, job->first_rank + k);
        }
        for (int k = 0; k < job->workers; k++)
            if (is_same_wait(&own->waits[i], &own->waits[k]) && !was_said(&own->waits[k]))
                note_said(&own->waits[k]);
        if (!reported)
            say_wait(job, look, i, recorders, &ranks);
    }
}

/* Return a rank's recorder; NULL: none, or of another version of Tutti. */
static const tt__recorder *recorder_of(const tt__job_look *look, int i) {
    size_t size = 0;
    const tt__recorder *recorder = look->recorder(look->user, i, &size);
    return recorder && size == sizeof *recorder && recorder->magic == TT__RECORDER_MAGIC ? recorder : NULL;
}

/* Show the training in one line of the terminal, cut to its width. */
static void show_training(const tt__job_look *look, const tt__training *training) {
    char text[TEXT_SIZE], line[2 * TEXT_SIZE];
    tt__training_text(training, text, sizeof text);
    tt__wrap(line, sizeof line, text, tt__terminal_columns(STDERR_FILENO) - 1, 0, 0);
    size_t n = strcspn(line, "\n");
    line[n && line[n - 1] == ',' ? n - 1 : n] = '\0';
    look->show(look->user, line);
}

static void look_at(const tt__job *job, const tt__job_look *look) {
    run_look *own = job->look_user;
    tt__training training = {0};
    const tt__recorder *recorders[TT__MAX_RANKS];
    tt__moment now = tt__moment_now();
    if (job->first_rank + job->workers > TT__MAX_RANKS)
        return;
    for (int i = 0; i < job->workers; i++) {
        tt__progress progress;
        recorders[i] = recorder_of(look, i);
        see_wait(&own->waits[i], recorders[i], &now);
        if (own->follows && recorders[i] && tt__recorder_progress(recorders[i], &progress))
            tt__training_add(&training, &progress, tt__progress_rate(&progress, now.monotonic_ns));
    }
    if (own->notice_ms)
        say_waits(job, look, recorders);
    if (training.ranks)
        show_training(look, &training);
}

tt_status tt__run_look_begin(tt__job *job, int64_t notice_ms) {
    bool follows = tt__terminal_columns(STDERR_FILENO) && !tt__terminal_columns(STDOUT_FILENO);
    if (!follows && !notice_ms)
        return TT_OK;
    run_look *own = calloc(1, sizeof *own);
    wait_seen *waits = calloc((size_t)job->workers, sizeof *waits);
    if (!own || !waits) {
        free(own);
        free(waits);
        return tt__fail(TT_ERR_MEMORY, "no memory to look at %d workers", job->workers);
    }
    *own = (run_look){notice_ms, follows, waits};
    job->look = look_at;
    job->look_ms = notice_ms && notice_ms < 2 * LOOK_MS ? (notice_ms + 1) / 2 : LOOK_MS;
    job->look_user = own;
    return TT_OK;
}

void tt__run_look_end(tt__job *job) {
    run_look *own = job->look_user;
    if (own)
        free(own->waits);
    free(own);
    job->look = NULL;
    job->look_user = NULL;
}
