#include "launch/adapters/remote_clock.h"

#include "base/error.h"
#include "base/files/fd.h"
#include "base/machine/clock.h"
#include "base/process/waits.h"
#include "launch/adapters/far_process.h"
#include "launch/polling.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ROUNDS: the quickest of them counts. END_MS: how long ssh may take to end after its input has. */
enum { ROUNDS = 10, LINE = 80, END_MS = 2000 };

void tt__remote_clock_run(FILE *in, FILE *out) {
    char line[LINE];
    fprintf(out, "tutti %s\n", tt_version());
    fflush(out);
    while (fgets(line, sizeof line, in)) {
        fprintf(out, "%lld\n", (long long)tt__realtime_ns());
        fflush(out);
    }
}

/* ---- the side that asks */

typedef struct far_clock {
    pid_t pid;
    int to, from; /* its input and output */
} far_clock;

/* A pipe whose ends are above stdin, stdout and stderr. */
static bool make_far_pipe(int ends[2]) {
    if (pipe2(ends, O_CLOEXEC))
        return false;
    ends[0] = tt__fd(ends[0]);
    ends[1] = tt__fd(ends[1]);
    return ends[0] >= 0 && ends[1] >= 0;
}

/* ssh joins the words and gives them to a shell; others, such as srun, give them to exec(). So no word may need
 * quotes. */
static tt_status make_far_words(tt__ssh_words *ssh, char **words, const char *host, char *self, size_t size) {
    static char far_end[] = "remote-clock";
    ssize_t n = readlink("/proc/self/exe", self, size - 1);
    if (n < 0)
        return tt__fail_errno(TT_ERR_SYSTEM, errno, "can't find this command's path");
    self[n] = '\0';
    if (self[strcspn(self, " '\"\\$`;&|<>()*?[]#~!\t\n")])
        return tt__fail(TT_ERR_SYSTEM, "the path of this command would need quotes: %.200s", self);
    TT__TRY(tt__ssh_words_make(ssh));
    memcpy(words, ssh->words, (size_t)ssh->n * sizeof *words);
    words[ssh->n] = (char *)(uintptr_t)host;
    words[ssh->n + 1] = self;
    words[ssh->n + 2] = far_end;
    words[ssh->n + 3] = NULL;
    return TT_OK;
}

static tt_status start_far(far_clock *far, const char *host) {
    tt__ssh_words ssh;
    char self[PATH_MAX], *words[TT__SSH_WORDS + 4];
    int input[2] = {-1, -1}, output[2] = {-1, -1};
    TT__TRY(make_far_words(&ssh, words, host, self, sizeof self));
    bool piped = make_far_pipe(input) && make_far_pipe(output);
    const tt__far_start how = {.input = input[0], .output = output[1]};
    int errnum = piped ? tt__far_process_start(&far->pid, words, &how) : errno;
    tt__close_fd(&input[0]);
    tt__close_fd(&output[1]);
    far->to = input[1];
    far->from = output[0];
    return errnum ? tt__fail_errno(TT_ERR_SYSTEM, errnum, "can't run %s", words[0]) : TT_OK;
}

/* Read a line without its end. */
static tt_status read_far_line(const far_clock *far, char line[LINE], int64_t deadline_ms) {
    for (size_t n = 0; n < LINE - 1; n++) {
        while (!tt__poll(&(struct pollfd){.fd = far->from, .events = POLLIN}, 1, tt__left_ms(deadline_ms)))
            if (!tt__left_ms(deadline_ms))
                return tt__fail(TT_ERR_TIMEOUT, "no answer in time");
        if (read(far->from, line + n, 1) != 1)
            return tt__fail(TT_ERR_SYSTEM, "the command there ended without an answer");
        if (line[n] == '\n') {
            line[n] = '\0';
            return TT_OK;
        }
    }
    return tt__fail(TT_ERR_PROTOCOL, "something else than tutti answers: a long line");
}

static tt_status ask_round(const far_clock *far, tt__remote_clock *best, int64_t deadline_ms) {
    char line[LINE], *end;
    int64_t before = tt__realtime_ns();
    if (tt__quiet_write(far->to, "\n", 1) != 1)
        return tt__fail(TT_ERR_SYSTEM, "the command there ended");
    TT__TRY(read_far_line(far, line, deadline_ms));
    int64_t after = tt__realtime_ns(), there = strtoll(line, &end, 10), error = (after - before) / 2;
    if (*end || end == line)
        return tt__fail(TT_ERR_PROTOCOL, "expected the time there, got \"%s\"", line);
    if (best->error_ns < 0 || error < best->error_ns)
        *best = (tt__remote_clock){.ahead_ns = there - before - error, .error_ns = error};
    return TT_OK;
}

static tt_status ask_far(const far_clock *far, tt__remote_clock *clock, int64_t deadline_ms) {
    char line[LINE], wanted[LINE];
    snprintf(wanted, sizeof wanted, "tutti %s", tt_version());
    TT__TRY(read_far_line(far, line, deadline_ms));
    if (strcmp(line, wanted) != 0)
        return tt__fail(TT_ERR_PROTOCOL, "expected \"%s\" from there, got \"%s\"", wanted, line);
    *clock = (tt__remote_clock){.error_ns = -1};
    for (int round = 0; round < ROUNDS; round++)
        TT__TRY(ask_round(far, clock, deadline_ms));
    return TT_OK;
}

/* Wait for the end of the process, whose input is closed, or kill it. Returns its exit code, or -1. */
static int end_far(const far_clock *far, int64_t deadline_ms) {
    int status = 0;
    pid_t ended;
    while ((ended = waitpid(far->pid, &status, WNOHANG)) == 0 && tt__left_ms(deadline_ms))
        tt__sleep_ms(2);
    if (!ended) {
        kill(far->pid, SIGKILL);
        while (waitpid(far->pid, &status, 0) < 0 && errno == EINTR)
            ;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

tt_status tt__remote_clock_ask(tt__remote_clock *clock, const char *host, int64_t timeout_ms) {
    far_clock far = {.to = -1, .from = -1};
    tt_status result = start_far(&far, host);
    if (!result)
        result = ask_far(&far, clock, tt__deadline_ms(timeout_ms));
    tt__close_fd(&far.to);
    tt__close_fd(&far.from);
    int code = far.pid > 0 ? end_far(&far, tt__deadline_ms(END_MS)) : -1;
    if (result == TT_ERR_SYSTEM && code > 0)
        return tt__fail(TT_ERR_SYSTEM, "the command there ended without an answer, with exit code %d", code);
    return result;
}
