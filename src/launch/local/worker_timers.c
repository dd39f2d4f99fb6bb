#include "launch/local/worker_timers.h"

#include "base/error.h"
#include "base/files/fd.h"
#include "base/machine/clock.h"
#include "base/text/format.h"
#include "base/text/json.h"
#include "base/text/plain_text.h"
#include "launch/polling.h"
#include "net/job/job_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { TIMERS_LOOK_MS = 250 };

struct tt__timed {
    tt__timed *next;
    int caller, worker, memory, pidfd;
    pid_t pid;
    bool over; /* it has been reported */
};

bool tt__timers_add(tt__timer_list *list, int caller, int worker, pid_t pid, int memory) {
    tt__timed *new = malloc(sizeof *new);
    int pidfd = tt__fd((int)syscall(SYS_pidfd_open, pid, 0));
    /* without one a signal could reach another process, which has the pid by then; old kernels have none */
    if (!new || (pidfd < 0 && errno != ENOSYS)) {
        tt__close_fd(&pidfd);
        free(new);
        close(memory);
        return false;
    }
    *new = (tt__timed){list->first, caller, worker, memory, pidfd, pid, false};
    if (!list->first)
        list->look_ms = tt__now_ms();
    list->first = new;
    list->n++;
    return true;
}

/* Remove the processes of `worker`, and the one of `caller`; NOBODY: of none. */
static void remove_timed(tt__timer_list *list, int worker, int caller) {
    for (tt__timed **at = &list->first; *at;) {
        tt__timed *old = *at;
        if (old->worker != worker && old->caller != caller) {
            at = &old->next;
            continue;
        }
        *at = old->next;
        close(old->memory);
        tt__close_fd(&old->pidfd);
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

/* Has a timer of the process expired? Takes the one that expired first; *next_ms is lowered to when the next one
 * does. */
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

enum { MOST_FILE_TIMERS = 4096 };

struct tt__file_timer {
    tt__file_timer *next;
    pid_t pid;
    int signal;
    double expires_s; /* since 1970 */
    char scope[200];
};

static bool is_wanted(void) {
    const char *enabled = getenv("TORCHELASTIC_ENABLE_FILE_TIMER");
    return enabled && !strcmp(enabled, "1");
}

const char *tt__file_timers_path(const tt__job *job, char path[PATH_MAX]) {
    const char *given = secure_getenv("TORCHELASTIC_TIMER_FILE");
    if (!is_wanted())
        return NULL;
    if (given && *given)
        snprintf(path, PATH_MAX, "%s", given);
    else
        snprintf(path, PATH_MAX, "%s/timers", job->error_dir);
    return path;
}

static void unlink_pipe(const char *path) {
    struct stat info;
    if (!lstat(path, &info) && S_ISFIFO(info.st_mode))
        unlink(path);
}

void tt__file_timers_make(const tt__job *job) {
    char path[PATH_MAX];
    if (!tt__file_timers_path(job, path))
        return;
    unlink_pipe(path);
    mode_t before = umask(077); /* chmod() would follow a link that another user has put there since */
    if (mkfifo(path, 0600))     /* the launcher finds no pipe, and says so */
        tt__log(TT_LOG_DEBUG, "%s: %s", path, strerror(errno));
    umask(before);
}

void tt__file_timers_unlink(const tt__job *job) {
    char path[PATH_MAX];
    if (tt__file_timers_path(job, path))
        unlink_pipe(path);
}

/* The launcher holds a writing end, too, so that reading never meets the pipe's end. A pipe that others may write
 * into is refused: through it anyone could have our workers killed. */
bool tt__file_timers_open(tt__file_timers *timers, const tt__job *job) {
    char path[PATH_MAX];
    struct stat info;
    *timers = (tt__file_timers){.pipe = -1};
    if (!tt__file_timers_path(job, path))
        return true;
    timers->pipe = tt__fd(open(path, O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
    bool there = timers->pipe >= 0 && !fstat(timers->pipe, &info) && S_ISFIFO(info.st_mode);
    if (there && info.st_uid == geteuid() && !(info.st_mode & 077))
        return true;
    int errnum = timers->pipe < 0 ? errno : there ? EPERM : EEXIST;
    tt__file_timers_close(timers);
    errno = errnum;
    return false;
}

void tt__file_timers_close(tt__file_timers *timers) {
    tt__close_fd(&timers->pipe);
    while (timers->first) {
        tt__file_timer *next = timers->first->next;
        free(timers->first);
        timers->first = next;
    }
    timers->used = 0;
    timers->n = 0;
    timers->skip = false;
}

/* ---- requests */

/* Remove the timer of that scope; NULL: all of the process. */
static void remove_file_timers(tt__file_timers *timers, pid_t pid, const char *scope) {
    for (tt__file_timer **at = &timers->first; *at;) {
        tt__file_timer *old = *at;
        if (old->pid != pid || (scope && strcmp(old->scope, scope) != 0)) {
            at = &old->next;
            continue;
        }
        *at = old->next;
        free(old);
        timers->n--;
    }
}

void tt__file_timers_forget(tt__file_timers *timers, pid_t pid) { remove_file_timers(timers, pid, NULL); }

/* A timer of the same process and scope is replaced. One with a signal of 0 or less has no effect. */
static void take_request(tt__file_timers *timers, const char *line) {
    json_t *request = tt__json_loads(line, 0, NULL);
    const json_t *pid = json_object_get(request, "pid"), *expires = json_object_get(request, "expiration_time"),
                 *signal = json_object_get(request, "signal");
    const char *scope = json_string_value(json_object_get(request, "scope_id"));
    tt__file_timer *new = NULL;
    if (!json_is_integer(pid) || json_integer_value(pid) <= 1 || json_integer_value(pid) > INT32_MAX || !scope ||
        !json_is_number(expires) || !json_is_integer(signal)) {
        tt__log(TT_LOG_WARNING, "what is no request for a timer came into TORCHELASTIC_TIMER_FILE");
        json_decref(request);
        return;
    }
    char name[sizeof new->scope];
    snprintf(name, sizeof name, "%s", scope);
    remove_file_timers(timers, (pid_t)json_integer_value(pid), name);
    double when = json_number_value(expires);
    json_int_t sig = json_integer_value(signal);
    if (when >= 0 && sig > 0 && sig < 65 && timers->n < MOST_FILE_TIMERS && (new = malloc(sizeof *new))) {
        *new = (tt__file_timer){timers->first, (pid_t)json_integer_value(pid), (int)sig, when, ""};
        memcpy(new->scope, name, sizeof name);
        timers->first = new;
        timers->n++;
    }
    json_decref(request);
}

static void take_timer_lines(tt__file_timers *timers) {
    char *begin = timers->line, *end;
    timers->line[timers->used] = '\0';
    while ((end = memchr(begin, '\n', timers->used - (size_t)(begin - timers->line)))) {
        *end = '\0';
        if (!timers->skip)
            take_request(timers, begin);
        timers->skip = false;
        begin = end + 1;
    }
    timers->used -= (size_t)(begin - timers->line);
    memmove(timers->line, begin, timers->used);
    if (timers->used == sizeof timers->line - 1) {
        timers->skip = true;
        timers->used = 0;
    }
}

void tt__file_timers_read(tt__file_timers *timers) {
    /* a process that writes without end must not occupy the launcher */
    for (int i = 0; i < 64 && timers->pipe >= 0; i++) {
        ssize_t n = read(timers->pipe, timers->line + timers->used, sizeof timers->line - 1 - timers->used);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return;
        timers->used += (size_t)n;
        take_timer_lines(timers);
    }
}

/* ---- expiry */

static double realtime_s(void) { return (double)tt__realtime_ns() / 1e9; }

static tt__file_timer *next_to_expire(const tt__file_timers *timers) {
    tt__file_timer *found = timers->first;
    for (tt__file_timer *t = timers->first; t; t = t->next)
        if (t->expires_s < found->expires_s)
            found = t;
    return found;
}

/* These times are of a clock that may be set, so it is looked at once a second. */
int64_t tt__file_timers_look_ms(const tt__file_timers *timers) {
    const tt__file_timer *next = next_to_expire(timers);
    double left_s = next ? next->expires_s - realtime_s() : 0;
    return next ? tt__deadline_ms(left_s <= 0 ? 0 : (int64_t)ceil(fmin(left_s, 1) * 1000)) : INT64_MAX;
}

bool tt__file_timers_expired(tt__file_timers *timers, tt__expired *expired) {
    const tt__file_timer *t = next_to_expire(timers);
    if (!t || t->expires_s > realtime_s())
        return false;
    char scope[sizeof t->scope];
    memcpy(scope, t->scope, sizeof scope);
    *expired = (tt__expired){-1, t->pid, -1, 0, t->signal, ""};
    snprintf(expired->text, sizeof expired->text, "the timer \"%s\" has expired", tt__make_plain_name(scope));
    remove_file_timers(timers, t->pid, NULL);
    return true;
}
