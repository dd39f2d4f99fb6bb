#include "cli/ask_child.h"

#include "base/error.h"
#include "base/machine/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATIENCE_MS = 60000 };

/* Read until the child ends its output; what has no room is dropped. False: it takes too long. */
static bool read_answer(int from, char *text, size_t size) {
    int64_t deadline = tt__deadline_ms(PATIENCE_MS);
    size_t used = 0;
    char rest[256];
    for (;;) {
        struct pollfd ready = {.fd = from, .events = POLLIN};
        int left = tt__left_ms(deadline);
        text[used] = '\0';
        if (!left)
            return false;
        if (poll(&ready, 1, left) <= 0)
            continue;
        bool room = used + 1 < size;
        ssize_t n = read(from, room ? text + used : rest, room ? size - 1 - used : sizeof rest);
        if (n == 0 || (n < 0 && errno != EINTR))
            return true;
        used += n > 0 && room ? (size_t)n : 0;
    }
}

static tt_status end_answer(pid_t child, bool in_time, const char *what) {
    int status = 0;
    if (!in_time) { /* one that hangs in the kernel is left to it */
        kill(child, SIGKILL);
        waitpid(child, NULL, WNOHANG);
        return tt__fail(TT_ERR_TIMEOUT, "%s has not answered for %d s", what, PATIENCE_MS / 1000);
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFSIGNALED(status))
        return tt__fail(TT_ERR_SYSTEM, "%s crashed: %s", what, strsignal(WTERMSIG(status)));
    if (WEXITSTATUS(status)) /* by what was loaded: then the answer may be a part of one */
        return tt__fail(TT_ERR_SYSTEM, "%s ended the process with exit code %d", what, WEXITSTATUS(status));
    return TT_OK;
}

tt_status tt__ask_child(const char *what, void (*ask)(FILE *to), char *text, size_t size) {
    int ends[2];
    fflush(NULL);
    if (pipe2(ends, O_CLOEXEC))
        return tt__fail_errno(TT_ERR_SYSTEM, errno, "no pipe to ask for %s", what);
    pid_t child = fork();
    int errnum = errno;
    if (!child) {
        FILE *to = fdopen(ends[1], "w");
        if (to) {
            ask(to);
            fclose(to);
        }
        _exit(0);
    }
    close(ends[1]);
    bool in_time = child > 0 && read_answer(ends[0], text, size);
    close(ends[0]);
    if (child < 0)
        return tt__fail_errno(TT_ERR_SYSTEM, errnum, "no process to ask for %s", what);
    return end_answer(child, in_time, what);
}
