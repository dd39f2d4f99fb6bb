#include "launch/local/follow.h"

#include "base/error.h"
#include "base/files/fd.h"
#include "base/machine/clock.h"
#include "base/machine/host_name.h"
#include "launch/polling.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct tt__filling {
    const char *name, *value;
} tt__filling;

static bool is_of_name(char c, bool first) {
    return c == '_' || isalpha((unsigned char)c) || (!first && isdigit((unsigned char)c));
}

/* Find the name after a dollar sign: where it begins and how long it is, 0 = none. Returns how much of `text` is read,
 * braces included. */
static size_t find_template_name(const char *text, const char **name, size_t *n) {
    bool braces = *text == '{';
    *name = text + braces;
    for (*n = 0; is_of_name((*name)[*n], *n == 0);)
        ++*n;
    if (braces && (*name)[*n] != '}')
        *n = 0;
    return *n ? *n + 2 * (size_t)braces : 0;
}

static const char *value_of(const char *name, size_t n, const tt__filling *fillings) {
    for (; fillings->name; fillings++)
        if (strlen(fillings->name) == n && !strncmp(name, fillings->name, n))
            return fillings->value;
    return NULL;
}

/* Fill in the names that `fillings` has (the last one's name is NULL); others stay as they are. Allocated; NULL: no
 * memory. */
static char *template_fill(const char *text, const tt__filling *fillings) {
    char *out = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&out, &size);
    if (!stream)
        return NULL;
    while (*text) {
        const char *name = NULL, *value = NULL;
        size_t n = 0, used = *text == '$' ? find_template_name(text + 1, &name, &n) : 0;
        if (used)
            value = value_of(name, n, fillings);
        if (value) {
            fputs(value, stream);
            text += 1 + used;
        } else {
            fputc(*text, stream);
            text += *text == '$' && text[1] == '$' ? 2 : 1;
        }
    }
    bool failed = ferror(stream) != 0;
    if (fclose(stream) || failed) {
        free(out);
        return NULL;
    }
    return out;
}

/* inotify tells when a file grew, but not on every file system, and a user may have only so many
 * (max_user_instances). So all files are also looked at now and then. */
enum { TEXT_SIZE = 65536, LOOK_MS = 1000, LOOK_OFTEN_MS = 100 };

/* One file that is followed. */
typedef struct followed {
    int attempt, worker, std;
    int fd;    /* -1 = the worker has not opened it yet */
    int watch; /* inotify's number of its folder, or -1 */
    bool look; /* it may have grown */
    bool over; /* its writers have ended */
    bool part; /* what was passed on last does not end a line */
    char *prefix;
    char *text; /* (TEXT_SIZE) read, but not passed on; used: so much of it */
    size_t used;
} followed;

/* A file that keeps the lines that match a filter. */
typedef struct kept {
    int attempt, fd; /* fd -1 = not open */
    bool failed;
} kept;

struct tt__follow {
    const tt__job *job;
    int inotify; /* or -1 */
    int64_t look_ms;
    tt__streams *errors, output; /* output: for our stdout only */
    followed *files;
    int n, attempt; /* attempt: the last that began, -1 = none */
    kept kept[2];
    size_t progress;
};

static const int both[] = {TT__STDOUT, TT__STDERR};

static bool is_teed(const tt__logs *logs, int i, int std) {
    return logs->dir && logs->tee[i] & std && !logs->hidden[i];
}

static int count_teed(const tt__job *job) {
    int n = 0;
    for (int i = 0; job->logs && i < job->workers; i++)
        n += is_teed(job->logs, i, TT__STDOUT) + is_teed(job->logs, i, TT__STDERR);
    return n;
}

int tt__follow_descriptors(const tt__job *job) {
    int n = count_teed(job);
    return n ? n + 4 : 0;
}

tt_status tt__follow_new(tt__follow **out, const tt__job *job, tt__streams *errors) {
    *out = NULL;
    if (!count_teed(job))
        return TT_OK;
    tt__follow *f = calloc(1, sizeof *f);
    if (!f)
        return tt__fail(TT_ERR_MEMORY, "no memory for the output of %d workers", job->workers);
    *f = (tt__follow){.job = job, .errors = errors, .attempt = -1, .kept = {{.fd = -1}, {.fd = -1}}};
    f->inotify = tt__fd(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
    tt_status status = tt__streams_open(&f->output, 0, STDOUT_FILENO, NULL);
    if (!status)
        *out = f;
    else
        tt__follow_free(f);
    return status;
}

static void end_followed(tt__follow *f, int i) {
    followed *file = &f->files[i];
    tt__close_fd(&file->fd);
    free(file->prefix);
    free(file->text);
    *file = f->files[--f->n];
}

void tt__follow_free(tt__follow *f) {
    if (!f)
        return;
    while (f->n)
        end_followed(f, f->n - 1);
    for (int k = 0; k < 2; k++)
        tt__close_fd(&f->kept[k].fd);
    tt__close_fd(&f->inotify);
    tt__streams_close(&f->output);
    free(f->files);
    free(f);
}

/* ---- the beginning of an attempt */

static char *make_prefix(const tt__job *job, int i) {
    char rank[16], local_rank[16], host[256] = "";
    snprintf(rank, sizeof rank, "%d", job->first_rank + i);
    snprintf(local_rank, sizeof local_rank, "%d", i);
    tt__host_name(host, sizeof host);
    const tt__filling fillings[] = {
        {"role_name", job->role}, {"local_rank", local_rank}, {"rank", rank}, {"hostname", host}, {NULL, NULL}};
    return template_fill(job->logs->prefix, fillings);
}

/* Return the file for lines that match a filter of this stream, open for `attempt`; -1: there is none. */
static int kept_file(tt__follow *f, int std, int attempt) {
    kept *k = &f->kept[std == TT__STDERR];
    const char *name = std == TT__STDOUT ? "filtered_stdout.log" : "filtered_stderr.log";
    char path[PATH_MAX];
    if (!f->job->logs->filters[std == TT__STDERR] || k->failed)
        return -1;
    if (k->fd >= 0 && k->attempt == attempt)
        return k->fd;
    tt__close_fd(&k->fd);
    k->attempt = attempt;
    k->fd = tt__logs_append(f->job->logs, attempt, -1, name);
    if (k->fd < 0) {
        k->failed = true;
        tt__streams_print(f->errors, "tutti run: can't open %s: %s",
                          tt__logs_path(f->job->logs, attempt, -1, name, path), strerror(errno));
    }
    return k->fd;
}

static bool follow_worker(tt__follow *f, int i, int std, int watch) {
    followed file = {.attempt = f->attempt, .worker = i, .std = std, .fd = -1, .watch = watch, .look = true};
    followed *files = realloc(f->files, (size_t)(f->n + 1) * sizeof *files);
    if (!files)
        return false;
    f->files = files;
    file.prefix = make_prefix(f->job, i);
    file.text = malloc(TEXT_SIZE);
    f->files[f->n++] = file;
    if (file.prefix && file.text)
        return true;
    end_followed(f, f->n - 1);
    return false;
}

void tt__follow_begin(tt__follow *f) {
    char path[PATH_MAX];
    if (!f || f->attempt == f->job->attempt)
        return;
    tt__follow_end(f);
    f->attempt = f->job->attempt;
    const tt__logs *logs = f->job->logs;
    for (int i = 0; i < f->job->workers; i++) {
        int watch = -1;
        if (!is_teed(logs, i, TT__STDOUT) && !is_teed(logs, i, TT__STDERR))
            continue;
        if (tt__logs_make_folder(logs, f->attempt, i) && f->inotify >= 0)
            watch = inotify_add_watch(f->inotify, tt__logs_path(logs, f->attempt, i, "", path), IN_CREATE | IN_MODIFY);
        for (int k = 0; k < 2; k++)
            if (is_teed(logs, i, both[k]) && !follow_worker(f, i, both[k], watch))
                tt__streams_print(f->errors, "tutti run: no memory to show %s",
                                  tt__logs_path(logs, f->attempt, i, tt__logs_file(both[k]), path));
    }
    for (int k = 0; k < 2; k++)
        kept_file(f, both[k], f->attempt);
}

/* ---- lines */

/* Why a line was written in part (`wrote` of its bytes), or not at all. */
static const char *why_not_kept(int fd, ssize_t wrote, int errnum, char *text, size_t size) {
    struct stat info;
    struct rlimit most;
    if ((wrote < 0 && errnum != EFBIG) || fstat(fd, &info) || getrlimit(RLIMIT_FSIZE, &most) ||
        (rlim_t)info.st_size < most.rlim_cur)
        return strerror(wrote < 0 ? errnum : ENOSPC);
    snprintf(text, size, "the limit on a file's size is %lld bytes (ulimit -f)", (long long)most.rlim_cur);
    return text;
}

static void keep_line(tt__follow *f, const followed *file, const char *line, size_t n) {
    char **filter = f->job->logs->filters[file->std == TT__STDERR];
    for (; filter && *filter; filter++)
        if (memmem(line, n, *filter, strlen(*filter)))
            break;
    int fd = filter && *filter ? kept_file(f, file->std, file->attempt) : -1;
    if (fd < 0)
        return;
    size_t prefix = strlen(file->prefix), length = prefix + n + 1;
    char *whole = malloc(length), limit[64];
    if (whole) {
        memcpy(whole, file->prefix, prefix);
        memcpy(whole + prefix, line, n);
        whole[length - 1] = '\n';
    }
    ssize_t wrote = whole ? tt__quiet_write(fd, whole, length) : -1;
    int errnum = errno;
    free(whole);
    if (wrote == (ssize_t)length)
        return;
    tt__streams_print(f->errors, "tutti run: lines that match a filter are not kept any more: %s",
                      why_not_kept(fd, wrote, errnum, limit, sizeof limit));
    f->kept[file->std == TT__STDERR].failed = true;
}

static tt__streams *shown_on(tt__follow *f, const followed *file) {
    return file->std == TT__STDOUT ? &f->output : f->errors;
}

/* Pass on a line without its line end, or, unless `whole`, a part of a line that is too long. */
static void pass_line(tt__follow *f, followed *file, const char *line, size_t n, bool whole) {
    tt__streams *streams = shown_on(f, file);
    if (!file->part) {
        tt__streams_begin_line(streams);
        tt__streams_write(streams, file->prefix, strlen(file->prefix));
    }
    tt__streams_write(streams, line, n);
    if (whole)
        tt__streams_write(streams, "\n", 1);
    file->part = !whole;
    f->progress += n + 1;
    keep_line(f, file, line, n);
}

/* Pass on the lines that are whole; `all`: the last one, too. A line ends as in Python's text files: \n, \r\n, or \r
 * alone, which progress bars write. */
static void pass_lines(tt__follow *f, followed *file, bool all) {
    bool more = !all && file->used && file->text[file->used - 1] == '\r'; /* \n may come */
    size_t at = 0, end = file->used - more;
    for (size_t i = 0; i < end; i++) {
        char c = file->text[i];
        if (c != '\n' && c != '\r')
            continue;
        pass_line(f, file, file->text + at, i - at, true);
        i += c == '\r' && i + 1 < file->used && file->text[i + 1] == '\n';
        at = i + 1;
    }
    if (at < end && (all || (at == 0 && file->used == TEXT_SIZE))) {
        pass_line(f, file, file->text + at, end - at, all);
        at = end;
    } else if (all && file->part) {
        pass_line(f, file, "", 0, true);
    }
    memmove(file->text, file->text + at, file->used - at);
    file->used -= at;
}

static bool open_followed(const tt__follow *f, followed *file) {
    struct stat info;
    file->fd = tt__logs_open(f->job->logs, file->attempt, file->worker, tt__logs_file(file->std));
    if (file->fd < 0)
        return false;
    if (fstat(file->fd, &info) == 0 && S_ISREG(info.st_mode))
        return true;
    close(file->fd);
    file->fd = -1;
    return false;
}

/* Read what has come; false: the file is at its end, and over. */
static bool read_followed(tt__follow *f, followed *file) {
    ssize_t n = 0;
    if (file->fd >= 0 || open_followed(f, file))
        n = read(file->fd, file->text + file->used, TEXT_SIZE - file->used);
    if (n < 0 && errno == EINTR)
        return true;
    if (n > 0)
        file->used += (size_t)n;
    else
        file->look = false;
    pass_lines(f, file, n <= 0 && file->over);
    return n > 0 || !file->over;
}

/* ---- the launcher's loop */

static void take_notices(tt__follow *f) {
    _Alignas(struct inotify_event) char bytes[4096];
    for (ssize_t n; f->inotify >= 0 && (n = read(f->inotify, bytes, sizeof bytes)) > 0;)
        for (char *at = bytes; at < bytes + n; at += sizeof(struct inotify_event) + ((struct inotify_event *)at)->len)
            for (int i = 0; i < f->n; i++)
                if (((struct inotify_event *)at)->wd == f->files[i].watch || ((struct inotify_event *)at)->wd < 0)
                    f->files[i].look = true;
}

int tt__follow_poll(const tt__follow *f, struct pollfd *fds, int *timeout_ms) {
    int n = 0;
    if (!f)
        return 0;
    for (int i = 0; i < f->n; i++)
        if (f->files[i].look && !tt__streams_are_full(f->files[i].std == TT__STDOUT ? &f->output : f->errors))
            *timeout_ms = 0;
    if (f->n)
        tt__lower_timeout(timeout_ms, f->look_ms);
    if (f->inotify >= 0)
        fds[n++] = (struct pollfd){.fd = f->inotify, .events = POLLIN};
    return n + tt__streams_poll(&f->output, fds + n, timeout_ms);
}

void tt__follow_serve(tt__follow *f) {
    if (!f)
        return;
    tt__follow_begin(f);
    take_notices(f);
    if (!tt__left_ms(f->look_ms)) {
        f->look_ms = tt__deadline_ms(f->inotify >= 0 ? LOOK_MS : LOOK_OFTEN_MS);
        for (int i = 0; i < f->n; i++)
            f->files[i].look = true;
    }
    for (int i = f->n - 1; i >= 0; i--)
        if (f->files[i].look && !tt__streams_are_full(shown_on(f, &f->files[i])) && !read_followed(f, &f->files[i]))
            end_followed(f, i);
    tt__streams_serve(&f->output);
}

void tt__follow_end(tt__follow *f) {
    for (int i = 0; f && i < f->n; i++)
        f->files[i].look = f->files[i].over = true;
}

bool tt__follow_is_behind(const tt__follow *f, size_t *progress) {
    if (!f)
        return false;
    *progress = f->progress - f->output.out_used - f->errors->out_used;
    return f->n || (f->output.out_used && !f->output.broken);
}
