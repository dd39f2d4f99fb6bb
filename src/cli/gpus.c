#include "cli/gpus.h"

#include "base/error.h"
#include "base/machine/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* CUDA reads numbers as strtol() does: other text may follow. */
static bool find_number(tt__visible_entry *entry, int devices) {
    char *end;
    long number = strtol(entry->text, &end, 10);
    entry->device = (int)number;
    return end > entry->text && end <= entry->text + entry->length && number >= 0 && number < devices;
}

static bool find_uuid(tt__visible_entry *entry, int devices, const char *(*uuid)(const void *user, int i),
                      const void *user) {
    int found = 0;
    for (int i = 0; i < devices && uuid; i++)
        if (!strncmp(uuid(user, i), entry->text, entry->length)) {
            entry->device = i;
            found++;
        }
    return found == 1 || !uuid;
}

static bool is_same_entry(const tt__visible_entry *a, const tt__visible_entry *b) {
    return a->device >= 0 ? a->device == b->device : a->length == b->length && !strncmp(a->text, b->text, a->length);
}

static const char *kind_of(const char *list) {
    return !strncmp(list, "GPU-", 4) ? "GPU-" : !strncmp(list, "MIG-", 4) ? "MIG-" : "";
}

void tt__visible_read(tt__visible *out, const char *list, int devices, const char *(*uuid)(const void *user, int i),
                      const void *user) {
    const char *kind = kind_of(list);
    memset(out, 0, sizeof *out);
    for (const char *at = list; out->count < TT__VISIBLE_MAX; at += strcspn(at, ",") + 1) {
        tt__visible_entry entry = {.text = at, .length = strcspn(at, ","), .device = -1};
        bool is_kind = !strncmp(at, kind, strlen(kind));
        bool is_there = !*kind         ? find_number(&entry, devices)
                        : *kind == 'M' ? is_kind
                                       : is_kind && find_uuid(&entry, devices, uuid, user);
        if (!is_there) {
            out->bad = entry;
            return;
        }
        for (int i = 0; i < out->count; i++)
            out->repeats |= is_same_entry(&entry, &out->list[i]);
        out->list[out->count++] = entry;
        if (!at[entry.length])
            return;
    }
}

enum { PATIENCE_MS = 60000 };

/* Read until the child ends its output; what has no room is dropped. False: it took too long. */
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
    if (!in_time) { /* it may hang in the kernel: nobody waits for that */
        kill(child, SIGKILL);
        waitpid(child, NULL, WNOHANG);
        return tt__fail(TT_ERR_TIMEOUT, "%s has not answered for %d s", what, PATIENCE_MS / 1000);
    }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFSIGNALED(status))
        return tt__fail(TT_ERR_SYSTEM, "%s crashed: %s", what, strsignal(WTERMSIG(status)));
    if (WEXITSTATUS(status)) /* a library called exit(): the answer may be incomplete */
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
