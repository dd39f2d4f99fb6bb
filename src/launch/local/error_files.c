#include "launch/local/error_files.h"

#include "base/error.h"
#include "base/files/fd.h"
#include "base/random_bytes.h"
#include "base/text/json.h"
#include "base/text/parse.h"
#include "base/text/plain_text.h"
#include "launch/polling.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Return where temporary files go: TMPDIR, else /tmp. */
static const char *parent_folder(void) {
    const char *parent = secure_getenv("TMPDIR");
    return parent && *parent ? parent : "/tmp";
}

tt_status tt__job_error_dir_name(tt__job *job) {
    uint64_t number;
    TT__TRY(tt__random_bytes(&number, sizeof number));
    int n = snprintf(job->error_dir, sizeof job->error_dir, "%s/tutti-%016llx", parent_folder(),
                     (unsigned long long)number);
    return n > 0 && (size_t)n < sizeof job->error_dir ? TT_OK : tt__job_error_dir_failed(ENAMETOOLONG);
}

static tt__folder_id folder_id_of(const struct stat *info) {
    return (tt__folder_id){.device = info->st_dev, .inode = info->st_ino};
}

static int open_error_dir(const tt__job *job) {
    return tt__fd(open(job->error_dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}

/* Open the folder only if it is the one that the keeper made: in a TMPDIR where others may write they can put any
 * other folder of ours under that name. -1: it is another one, or not there. */
static int open_known_error_dir(const tt__job *job) {
    struct stat info;
    int fd = job->error_dir[0] ? open_error_dir(job) : -1;
    if (fd < 0)
        return -1;
    bool known = fstat(fd, &info) == 0;
    tt__folder_id found = known ? folder_id_of(&info) : (tt__folder_id){0};
    if (!known || memcmp(&found, &job->error_dir_id, sizeof found) != 0)
        tt__close_fd(&fd);
    return fd;
}

/* Is nothing in the folder? `fd` is taken over. */
static bool is_empty_folder(int fd) {
    DIR *dir = fdopendir(fd);
    int entries = 0;
    if (!dir)
        close(fd);
    while (dir && entries <= 2 && readdir(dir)) /* "." and ".." */
        entries++;
    if (dir)
        closedir(dir);
    return dir && entries <= 2;
}

int tt__job_error_dir_make(tt__job *job) {
    struct stat info;
    mode_t before = umask(077); /* another umask could take rights from us, too */
    int failed = mkdir(job->error_dir, 0700) ? errno : 0, fd = -1;
    umask(before);
    if (failed)
        return failed;
    if ((fd = open_error_dir(job)) < 0 || fstat(fd, &info)) {
        failed = errno;
        tt__close_fd(&fd);
        return failed;
    }
    job->error_dir_id = folder_id_of(&info);
    return is_empty_folder(fd) ? 0 : EPERM; /* another user has put one in its place */
}

tt_status tt__job_error_dir_failed(int errnum) {
    return tt__fail_errno(TT_ERR_IO, errnum,
                          "can't make a directory for error files in %.200s (TMPDIR chooses another)", parent_folder());
}

static bool is_in_logs(const tt__job *job) { return job->logs && job->logs->dir; }

static const char logs_name[] = "error.json";

static const char *name_in_error_dir(int i, char name[32]) {
    snprintf(name, 32, "worker-%d.json", i);
    return name;
}

const char *tt__job_error_file(const tt__job *job, int i, char path[PATH_MAX]) {
    char name[32];
    if (is_in_logs(job))
        return tt__logs_path(job->logs, job->attempt, i, logs_name, path);
    snprintf(path, PATH_MAX, "%s/%s", job->error_dir, name_in_error_dir(i, name));
    return path;
}

void tt__job_error_file_remove(const tt__job *job, int i) {
    char name[32];
    if (is_in_logs(job)) {
        tt__logs_remove(job->logs, job->attempt, i, logs_name);
        return;
    }
    int folder = open_known_error_dir(job);
    if (folder >= 0)
        unlinkat(folder, name_in_error_dir(i, name), 0);
    tt__close_fd(&folder);
}

/* Open the worker's error file for reading, without waiting; -1: there is none. */
static int open_workers_error_file(const tt__job *job, int i) {
    enum { FLAGS = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC };
    char name[32];
    if (is_in_logs(job))
        return tt__logs_open(job->logs, job->attempt, i, logs_name);
    int folder = open_known_error_dir(job);
    int fd = folder < 0 ? -1 : tt__fd(openat(folder, name_in_error_dir(i, name), FLAGS));
    tt__close_fd(&folder);
    return fd;
}

/* Seconds since 1970, as a number or as text; 0: neither. */
static int64_t file_seconds(const json_t *when) {
    int64_t seconds = json_is_integer(when) ? json_integer_value(when) : 0;
    if (json_is_string(when) && tt__parse_i64("timestamp", json_string_value(when), 0, INT64_MAX, &seconds))
        seconds = 0;
    return seconds < 0 ? 0 : seconds;
}

/* Return the code of the escape \u12ab at `at`; -1: there is none. */
static long escaped_code(const char *at) {
    char digits[5] = "";
    if (at[0] != '\\' || at[1] != 'u')
        return -1;
    memcpy(digits, at + 2, strnlen(at + 2, 4));
    return strspn(digits, "0123456789abcdefABCDEF") == 4 ? strtol(digits, NULL, 16) : -1;
}

/* Replace by '?' what jansson refuses, though Python writes it: \u0000 and half a surrogate pair. In a text that is not
 * UTF-8, also each byte that is not ASCII. */
static void make_loadable(char *json) {
    static const char other[] = "\\u003f";
    bool is_utf8 = tt__is_utf8(json);
    for (char *c = json; *c; c++) {
        long code = escaped_code(c), next = code < 0 ? -1 : escaped_code(c + 6);
        if (code >= 0xd800 && code < 0xdc00 && next >= 0xdc00 && next < 0xe000)
            c += 11;
        else if (!code || (code >= 0xd800 && code < 0xe000))
            memcpy(c, other, sizeof other - 1);
        else if (c[0] == '\\' && c[1])
            c++;
        else if (*c & 0x80 && !is_utf8)
            *c = '?';
    }
}

/* Read all of a file of `size` bytes, allocated; NULL: no memory. */
static char *read_error_text(int fd, size_t size) {
    char *text = malloc(size + 1);
    size_t done = 0;
    for (ssize_t n = 1; text && done < size && n > 0; done += n > 0 ? (size_t)n : 0)
        n = read(fd, text + done, size - done);
    if (text)
        text[done] = '\0';
    return text;
}

/* Read an error file, `fd`, which is closed. A worker wrote it, so it may hold anything, of any size. NULL: it is no
 * JSON, or too large. */
static json_t *load_error_file(int fd) {
    enum { MOST_BYTES = 1 << 20 };
    struct stat info;
    char *text = NULL;
    if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_size <= MOST_BYTES)
        text = read_error_text(fd, (size_t)info.st_size);
    tt__close_fd(&fd);
    if (!text)
        return NULL;
    make_loadable(text);
    /* it may have been killed as it wrote a shorter one */
    json_t *root = tt__json_loads(text, JSON_DISABLE_EOF_CHECK, NULL);
    free(text);
    return root;
}

static void take_error_file(int fd, tt__worker *worker) {
    /* {"message": "text", "timestamp": 1}, or {"message": {"message": "text", "extraInfo": {"timestamp": "1",
     * "py_callstack": "text", "secondary": true}}} */
    json_t *root = load_error_file(fd), *inner = json_object_get(root, "message");
    const json_t *more = json_object_get(inner, "extraInfo");
    const char *text = json_string_value(json_is_object(inner) ? json_object_get(inner, "message") : inner),
               *traceback = json_string_value(json_object_get(more, "py_callstack"));
    size_t n = text ? strlen(text) + 1 : 0, more_n = traceback ? strlen(traceback) + 1 : 0;
    free(worker->message);
    worker->traceback = NULL;
    worker->message = text ? malloc(n + more_n) : NULL;
    if (worker->message)
        memcpy(worker->message, text, n);
    if (worker->message && traceback)
        worker->traceback = memcpy(worker->message + n, traceback, more_n);
    worker->error_s = file_seconds(json_object_get(json_is_object(inner) ? more : root, "timestamp"));
    worker->secondary = json_is_true(json_object_get(more, "secondary"));
    json_decref(root);
}

/* What torchrun writes of the failed worker: its error file, and with it "errorCode", as Python counts exit codes. */
static json_t *failure_json(const tt__worker *w) {
    char seconds[24];
    int64_t when_s = w->error_s ? w->error_s : w->when.realtime_ns / 1000000000;
    snprintf(seconds, sizeof seconds, "%lld", (long long)when_s);
    return json_pack("{s:{s:s, s:i, s:{s:s*, s:s, s:b}}}", "message", "message", w->message, "errorCode",
                     WIFSIGNALED(w->status) ? -WTERMSIG(w->status) : WEXITSTATUS(w->status), "extraInfo",
                     "py_callstack", w->traceback, "timestamp", seconds, "secondary", (int)w->secondary);
}

/* Write the text into a regular file, not through another user's link. */
static int write_error_file(const char *path, const char *text) {
    struct stat info;
    size_t n = strlen(text);
    int fd = tt__fd(open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600));
    if (fd < 0)
        return errno;
    int failed = fstat(fd, &info) || (S_ISREG(info.st_mode) && ftruncate(fd, 0)) ? errno
                 : !S_ISREG(info.st_mode)                                        ? EINVAL
                 : write(fd, text, n) != (ssize_t)n                              ? EIO
                                                                                 : 0;
    close(fd);
    return failed;
}

char *tt__error_file_text(const tt__worker *worker) {
    json_t *root = worker->message ? failure_json(worker) : json_pack("{s:s}", "message", "<NONE>");
    char *text = root ? tt__json_dumps(root, 0) : NULL;
    json_decref(root);
    return text;
}

int tt__error_file_hand_on(const char *path, const tt__worker *worker) {
    char *text = tt__error_file_text(worker);
    int failed = text ? write_error_file(path, text) : EILSEQ;
    free(text);
    return failed;
}

void tt__job_error_file_read(const tt__job *job, int i, tt__worker *worker) {
    take_error_file(open_workers_error_file(job, i), worker);
}

/* Remove what is in a folder, which workers may have filled with anything; `fd` is taken over. */
static void clear_folder(int fd, int depth) {
    enum { DEEPEST = 16 };
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir && fd >= 0)
        close(fd);
    if (!dir)
        return;
    for (const struct dirent *entry; (entry = readdir(dir));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") || !unlinkat(dirfd(dir), entry->d_name, 0))
            continue;
        if (depth < DEEPEST)
            clear_folder(tt__fd(openat(dirfd(dir), entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)),
                         depth + 1);
        unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR);
    }
    closedir(dir);
}

void tt__job_error_dir_clear(const tt__job *job) { clear_folder(open_known_error_dir(job), 0); }

void tt__job_error_dir_remove(const tt__job *job) {
    int fd = open_known_error_dir(job);
    if (fd < 0)
        return;
    clear_folder(fd, 0);
    rmdir(job->error_dir);
}
