#include "cli/run/run_watch.h"

#include "base/error.h"
#include "base/files/fd.h"
#include "base/text/format.h"
#include "base/text/parse.h"
#include "base/text/plain_text.h"
#include "cli/cli.h"
#include "cli/look/job_view.h"
#include "cli/look/process_stacks.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- what is told of a worker that fails: its stacks, its last calls ---- */

/* What a reader needs who has not seen the program run: the whole way to the mistake, and what else went on. */
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

/* ---- the port that answers health checks ---- */

#define VARIABLE "TORCHELASTIC_HEALTH_CHECK_PORT"

static const char *port_name(const tt__run_flags *flags) {
    return flags->health_check_port ? "--health-check-port" : VARIABLE;
}

/* *port: -1 = none is wanted. */
static tt_status read_health_port(int64_t *port, const tt__run_flags *flags) {
    const char *inherited = secure_getenv(VARIABLE),
               *text = flags->health_check_port ? flags->health_check_port : inherited;
    *port = -1;
    if (text && (*text || flags->health_check_port))
        TT__TRY(tt__parse_i64(port_name(flags), text, 0, 65535, port));
    return TT_OK;
}

tt_status tt__run_watch_check(const tt__run_flags *flags) {
    int64_t port;
    return read_health_port(&port, flags);
}

/* Listen at the port on all addresses, those of IPv4 with those of IPv6 where there are both. -1 and errno. */
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

/* Listen at the port, if one is wanted, on all addresses of this host: a probe comes from outside of the container. 0:
 * any free one, which is told. TT_ERR_SYSTEM: it is taken. */
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
