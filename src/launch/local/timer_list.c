#include "launch/local/timer_list.h"

#include "base/files/fd.h"
#include "base/machine/clock.h"
#include "base/text/format.h"
#include "base/text/plain_text.h"
#include "net/job/job_socket.h"

#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { TIMERS_LOOK_MS = 250 };

struct tt__timed {
    tt__timed *next;
    int caller, worker, memory, pidfd;
    pid_t pid;
    bool over; /* it has been found */
};

void tt__timers_add(tt__timer_list *list, int caller, int worker, pid_t pid, int memory) {
    tt__timed *new = malloc(sizeof *new);
    if (!new) {
        close(memory);
        return;
    }
    *new = (tt__timed){list->first, caller, worker, memory, tt__fd((int)syscall(SYS_pidfd_open, pid, 0)), pid, false};
    if (!list->first)
        list->look_ms = tt__now_ms();
    list->first = new;
    list->n++;
}

/* Remove those that are the worker's or the caller's. -2: nobody's. */
static void remove_timed(tt__timer_list *list, int worker, int caller) {
    for (tt__timed **at = &list->first; *at;) {
        tt__timed *old = *at;
        if (old->worker != worker && old->caller != caller) {
            at = &old->next;
            continue;
        }
        *at = old->next;
        close(old->memory);
        if (old->pidfd >= 0)
            close(old->pidfd);
        free(old);
        list->n--;
    }
}

enum { NOBODY = -2 };

void tt__timers_remove(tt__timer_list *list, int caller) { remove_timed(list, NOBODY, caller); }
void tt__timers_forget(tt__timer_list *list, int worker) { remove_timed(list, worker, NOBODY); }

void tt__timers_free(tt__timer_list *list) {
    while (list->first)
        remove_timed(list, list->first->worker, NOBODY);
}

int64_t tt__timers_look_ms(const tt__timer_list *list) { return list->first ? list->look_ms : INT64_MAX; }

static bool read_at(int memory, void *to, size_t size, size_t offset) {
    return pread(memory, to, size, (off_t)offset) == (ssize_t)size;
}

/* Describe timer `i`; false: it was ended meanwhile. */
static bool describe_timer(const tt__timed *timed, int i, int64_t expires_ms, tt__expired *expired) {
    tt__timer_text text;
    int64_t still;
    char name[sizeof text.name + 4] = "", place[sizeof text.file + 40] = "";
    if (!read_at(timed->memory, &text, sizeof text, offsetof(tt__timers, texts) + (size_t)i * sizeof text) ||
        !read_at(timed->memory, &still, sizeof still, (size_t)i * sizeof still) || still != expires_ms)
        return false;
    text.name[sizeof text.name - 1] = text.file[sizeof text.file - 1] = '\0';
    tt__make_plain_name(text.name);
    tt__make_plain_name(text.file);
    if (*text.name)
        snprintf(name, sizeof name, "\"%s\" ", text.name);
    if (*text.file)
        snprintf(place, sizeof place, ", set at %s:%d,", text.file, (int)text.line);
    *expired = (tt__expired){timed->worker, timed->pid, timed->pidfd, text.thread, SIGKILL, ""};
    tt__format(expired->text, sizeof expired->text, "the timer %sof %.6g s%s has expired", name,
               (double)text.after_ms / 1000, place);
    return true;
}

/* Look at a process: has a timer expired? That which did first. *next_ms is lowered to when the next one does. */
static bool look_at_process(const tt__timed *timed, int64_t now_ms, int64_t *next_ms, tt__expired *expired) {
    int64_t expires_ms[TT__TIMERS];
    int first = -1;
    if (!read_at(timed->memory, expires_ms, sizeof expires_ms, 0))
        return false;
    for (int i = 0; i < TT__TIMERS; i++) {
        if (expires_ms[i] <= 0)
            continue;
        if (expires_ms[i] > now_ms)
            *next_ms = expires_ms[i] < *next_ms ? expires_ms[i] : *next_ms;
        else if (first < 0 || expires_ms[i] < expires_ms[first])
            first = i;
    }
    return first >= 0 && describe_timer(timed, first, expires_ms[first], expired);
}

bool tt__timers_expired(tt__timer_list *list, tt__expired *expired) {
    int64_t now_ms = tt__now_ms(), next_ms = now_ms + TIMERS_LOOK_MS;
    if (now_ms < tt__timers_look_ms(list))
        return false;
    for (tt__timed *timed = list->first; timed; timed = timed->next)
        if (!timed->over && look_at_process(timed, now_ms, &next_ms, expired)) {
            timed->over = true;
            return true;
        }
    list->look_ms = next_ms;
    return false;
}
