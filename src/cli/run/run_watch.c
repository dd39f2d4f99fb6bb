/* Watching workers: lines on long waits and the training's progress, stacks and last calls of workers that crash or
 * hang, and the port that answers health checks. */
#include "cli/run/run.h"

#include "base/error.h"
#include "base/files/fd.h"
#include "base/process/proc_state.h"
#include "base/text/format.h"
#include "base/text/parse.h"
#include "base/text/plain_text.h"
#include "cli/cli.h"
#include "cli/look/job_view.h"
#include "cli/look/process_stacks.h"
#include "comm/rankset.h"
#include "launch/local/terminal.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- a worker that fails: its stacks, its last calls */

/* A reader who has not seen the program run needs the whole way to the mistake, and what the other threads did. */
enum { MOST_FRAMES = 64, OTHER_THREADS = 8, OTHER_FRAMES = 8, LAST_CALLS = 4 };

/* job->stacks() */
static void write_worker_stacks(pid_t pid, pid_t thread, uint64_t pc, FILE *out) {
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

/* Did the program make the call? Calls that are part of another are the library's. */
static bool is_the_programs(const tt__view_rank *rank, const tt__view_call *c) {
    return !(c->record.flags & TT__RECORD_CHILD) &&
           (c->open || strcmp(rank->recorder->files[c->record.file], "tt_init_process_group") != 0);
}

/* Write the last calls, and older ones that are not done. */
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

/* job->last_calls() */
static void write_worker_calls(tt__snapshot *snapshot, FILE *out) {
    tt__view view;
    if (tt__view_make(&view, snapshot))
        return;
    if (view.n == 1 && view.ranks[0].recorder)
        write_rank_calls(&view.ranks[0], out);
    tt__view_free(&view);
}

/* job->idle() */
static pid_t idle_pid(tt__snapshot *snapshot) {
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

/* ---- the port that answers health checks */

#define VARIABLE "TORCHELASTIC_HEALTH_CHECK_PORT"

static const char *port_name(const tt__run_flags *flags) {
    return flags->given.health_check_port ? "--health-check-port" : VARIABLE;
}

/* *port := -1 if none is wanted. */
static tt_status read_health_port(int64_t *port, const tt__run_flags *flags) {
    const char *inherited = secure_getenv(VARIABLE);
    *port = flags->given.health_check_port ? flags->health_check_port : -1;
    if (!flags->given.health_check_port && inherited && *inherited)
        TT__TRY(tt__parse_i64(VARIABLE, inherited, 0, 65535, port));
    return TT_OK;
}

tt_status tt__run_watch_check(const tt__run_flags *flags) {
    int64_t port;
    return read_health_port(&port, flags);
}

/* Listen at the port on all addresses; AF_INET6 includes those of IPv4. Returns -1 and errno on failure. */
static int listen_everywhere(int family, int port) {
    const int off = 0, on = 1;
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const void *address = family == AF_INET6 ? (const void *)&six : &four;
    socklen_t size = family == AF_INET6 ? sizeof six : sizeof four;
    int fd = tt__fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd < 0)
        return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (!bind(fd, address, size) && !listen(fd, 64))
        return fd;
    int errnum = errno;
    close(fd);
    errno = errnum;
    return -1;
}

static int bound_health_port(int fd) {
    struct sockaddr_storage address = {0};
    socklen_t size = sizeof address;
    if (getsockname(fd, (struct sockaddr *)&address, &size))
        return 0;
    return ntohs(address.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&address)->sin6_port
                                               : ((struct sockaddr_in *)&address)->sin_port);
}

/* Listen at the port, if one is wanted, on all addresses of this host: a probe comes from outside of the container.
 * Port 0 is any free one, which is printed. TT_ERR_SYSTEM: it is taken. */
static tt_status listen_for_health(tt__job *job, const tt__run_flags *flags) {
    int64_t wanted;
    TT__TRY(read_health_port(&wanted, flags));
    int port = (int)wanted;
    if (port < 0)
        return TT_OK;
    job->health = listen_everywhere(AF_INET6, port);
    if (job->health < 0 && errno != EADDRINUSE && errno != EACCES)
        job->health = listen_everywhere(AF_INET, port);
    if (job->health < 0 && errno == EADDRINUSE)
        return tt__fail_errno(TT_ERR_SYSTEM, errno,
                              "%s: port %d is taken by another program, or another job's launcher", port_name(flags),
                              port);
    if (job->health < 0)
        return tt__fail_errno(TT_ERR_SYSTEM, errno, "%s: can't listen at port %d", port_name(flags), port);
    if (!port)
        tt__cli_note("run", "health checks are answered at port %d", bound_health_port(job->health));
    return TT_OK;
}

tt_status tt__run_watch_begin(tt__job *job, const tt__run_flags *flags) {
    job->stacks = write_worker_stacks;
    job->last_calls = write_worker_calls;
    job->idle = idle_pid;
    return listen_for_health(job, flags);
}

/* ---- running workers: long waits, the training's progress */

enum { LOOK_MS = 500, TEXT_SIZE = 512 };

/* A rank's wait, as last seen. */
typedef struct wait_seen {
    uint64_t since; /* ticks; 0: it does not wait */
    int32_t whom;
    uint32_t group, seq;
    int64_t ns;
    /* The last one that was reported. A program that interrupts a wait now and then, as Python does for its signals,
     * goes on with the same one. */
    uint64_t said_since;
    int32_t said_whom;
} wait_seen;

typedef struct run_look {
    int64_t notice_ms;
    bool follows;     /* the training is shown */
    wait_seen *waits; /* (workers) */
} run_look;

/* Note what a rank waits for now. */
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

/* Has the wait been reported? A later wait is new. So is the same wait for a higher rank, as threads of a process may
 * wait for several ranks. */
static bool was_said(const wait_seen *w) {
    return w->since < w->said_since || (w->since == w->said_since && w->whom <= w->said_whom);
}

/* Do both wait for the same rank in the same call? Receives have no number, so only a rank's own are the same. */
static bool is_same_wait(const wait_seen *a, const wait_seen *b) {
    return a == b || (a->since && b->since && a->seq && a->whom == b->whom && a->group == b->group && a->seq == b->seq);
}

/* Write where a rank is. Its recorder knows better than the launcher, which may have started a script around it. */
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
        for (int k = 0; k < job->workers; k++) {
            wait_seen *other = &own->waits[k];
            if (!is_same_wait(&own->waits[i], other) || was_said(other))
                continue;
            other->said_since = other->since;
            other->said_whom = other->whom;
        }
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
