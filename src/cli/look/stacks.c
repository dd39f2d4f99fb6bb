/* Stacks are read by a child, one for each rank: what a debugger would do, reading tables that the other process's
 * files contain, may take long or go wrong, and a process whose tracer ends goes on. */
#include "cli/look/stacks.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/format.h"
#include "base/plain_text.h"
#include "cli/look/process_stacks.h"
#include "cli/look/top.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_FRAMES = 256, MAX_TEXT = 1 << 20 };

/* Become the child that describes `pid`. */
static void stacks_child(const tt__dwfl *lib, pid_t pid, int to) {
    FILE *out = fdopen(to, "w");
    bool seen = out && tt__process_stacks(lib, pid, &(tt__stacks_wanted){.frames = MAX_FRAMES}, out);
    _exit(out && fclose(out) == 0 && seen ? 0 : 1);
}

/* ---- in the command ---- */

/* Read what the child writes until it ends its output; false: it takes too long. */
static bool read_stacks(int from, char *text, int64_t patience_ms) {
    int64_t deadline = tt__deadline_ms(patience_ms);
    size_t size = 0;
    for (ssize_t n = 1; n && size < MAX_TEXT;) {
        struct pollfd ready = {.fd = from, .events = POLLIN};
        int left = tt__left_ms(deadline);
        if (left <= 0)
            break;
        if (poll(&ready, 1, left) <= 0)
            continue;
        n = read(from, text + size, MAX_TEXT - size);
        if (n <= 0 && errno != EINTR) {
            text[size] = 0;
            return true;
        }
        size += n > 0 ? (size_t)n : 0;
    }
    text[size] = 0;
    return size == MAX_TEXT;
}

static tt_status write_rank_stacks(const tt__dwfl *lib, pid_t pid, int64_t patience_ms, char *text, FILE *out,
                                   int *seen) {
    int ends[2], status = 0;
    fflush(out);
    if (pipe2(ends, O_CLOEXEC))
        return tt__fail_errno(TT_ERR_SYSTEM, errno, "no pipe for a stack");
    pid_t child = fork();
    if (!child) {
        close(ends[0]);
        stacks_child(lib, pid, ends[1]);
    }
    int errnum = errno;
    close(ends[1]);
    bool in_time = child > 0 && read_stacks(ends[0], text, patience_ms);
    close(ends[0]);
    if (child < 0)
        return tt__fail_errno(TT_ERR_SYSTEM, errnum, "no process to look at a stack");
    if (!in_time)
        kill(child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    fputs(tt__make_plain(text), out); /* names come out of another process's files */
    if (!in_time)
        tt__print(out, "  it took longer than %.1f s to see more\n", (double)patience_ms / 1000);
    else if (WIFSIGNALED(status))
        fprintf(out, "  looking at it failed: %s\n", strsignal(WTERMSIG(status)));
    *seen += in_time && WIFEXITED(status) && !WEXITSTATUS(status);
    return TT_OK;
}

tt_status tt__stacks_write(const tt__view *view, int64_t patience_ms, FILE *out, int *seen) {
    const tt__job_info *job = &view->snapshot.info;
    const tt__dwfl *lib = tt__dwfl_get();
    char *text = lib ? malloc(MAX_TEXT + 1) : NULL, state[64], doing[1024];
    tt_status status = !lib ? tt_last_status() : !text ? tt__fail(TT_ERR_MEMORY, "no memory for stacks") : TT_OK;
    *seen = 0;
    for (int i = 0; !status && i < view->n; i++) {
        const tt__view_rank *r = &view->ranks[i];
        fprintf(out, "%srank %d, pid %lld, %s, %s\n", i ? "\n" : "", r->rank.rank, (long long)r->rank.pid,
                tt__view_state_text(r, state, sizeof state), tt__top_doing_text(r, doing, sizeof doing));
        if (r->rank.node != job->node)
            fprintf(out, "  on host %s: run `tutti top --stacks` there\n", r->rank.hostname);
        else if (r->state == TT__VIEW_RUNS || r->state == TT__VIEW_STOPPED)
            status = write_rank_stacks(lib, (pid_t)r->rank.pid, patience_ms, text, out, seen);
    }
    free(text);
    return status;
}
