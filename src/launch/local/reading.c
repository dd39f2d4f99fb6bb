#include "launch/local/reading.h"

#include "base/files/fd.h"
#include "base/machine/clock.h"
#include "base/text/format.h"
#include "base/text/plain_text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_TEXT = 64 << 10 };

/* Become the child. It closes the launcher's sockets, whose open ends would tell others that the launcher lives. */
static _Noreturn void reading_child(const tt__job *job, pid_t launcher, int to, pid_t pid, pid_t thread, uint64_t pc) {
    enum { ITS_END = STDERR_FILENO + 1 };
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != launcher || dup2(to, ITS_END) < 0)
        _exit(1);
    closefrom(ITS_END + 1);
    FILE *out = fdopen(ITS_END, "w");
    if (out) {
        job->stacks(pid, thread, pc, out);
        fclose(out);
    }
    _exit(0);
}

bool tt__reading_begin(tt__reading *reading, const tt__job *job, pid_t pid, pid_t thread, uint64_t pc,
                       int64_t patience_ms) {
    int ends[2];
    pid_t self = getpid();
    *reading = (tt__reading){.from = -1, .patience_ms = patience_ms, .deadline_ms = tt__deadline_ms(patience_ms)};
    if (!job->stacks || !(reading->text = calloc(1, MOST_TEXT + 1)))
        return false;
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK)) {
        free(tt__reading_take(reading));
        return false;
    }
    fcntl(ends[1], F_SETFL, 0); /* blocking: the child waits for room */
    pid_t child = fork();
    if (child == 0)
        reading_child(job, self, ends[1], pid, thread, pc);
    close(ends[1]);
    if (child > 0) {
        reading->child = child;
        reading->from = ends[0];
        return true;
    }
    close(ends[0]);
    free(tt__reading_take(reading));
    return false;
}

static void append_text(tt__reading *r, const char *line) {
    size_t n = strlen(line);
    if (r->size + n > MOST_TEXT)
        r->size = MOST_TEXT - n;
    memcpy(r->text + r->size, line, n + 1);
    r->size += n;
}

/* Cut a line that the child has not finished. */
static void cut_line(tt__reading *r) {
    while (r->size && r->text[r->size - 1] != '\n')
        r->size--;
    r->text[r->size] = '\0';
}

static void stop_reading(tt__reading *r) {
    if (!r->child)
        return;
    kill(r->child, SIGKILL);
    while (waitpid(r->child, NULL, 0) < 0 && errno == EINTR)
        ;
    close(r->from);
    r->child = 0;
    r->from = -1;
    cut_line(r);
}

bool tt__reading_step(tt__reading *r) {
    char line[80];
    while (r->child) {
        ssize_t n = read(r->from, r->text + r->size, MOST_TEXT - r->size);
        if (n > 0) {
            r->size += (size_t)n;
        } else if (!n) { /* its end, or no room is left */
            stop_reading(r);
        } else if (errno != EINTR && tt__left_ms(r->deadline_ms) > 0) {
            return false;
        } else if (errno != EINTR) {
            stop_reading(r);
            tt__format(line, sizeof line, "  the rest is missing: it took longer than %.1f s to read\n",
                       (double)r->patience_ms / 1000);
            append_text(r, line);
        }
    }
    return true;
}

char *tt__reading_take(tt__reading *r) {
    char *text = r->text;
    stop_reading(r);
    r->text = NULL;
    if (text)
        tt__make_plain(text); /* names come out of another process's files */
    return text;
}
