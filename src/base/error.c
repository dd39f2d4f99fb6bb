#include "base/error.h"

#include "base/files/fd.h"
#include "base/text/format.h"
#include "base/text/plain_text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static _Thread_local struct {
    tt_status status;
    unsigned clearings;
    uint64_t count;
    bool alike;
    bool reported; /* the error file has an error of this thread, recorded since tt_clear_error() */
    char text[TT__ERROR_TEXT_SIZE];
} last;

static _Thread_local const tt__saved_error *reason; /* tt__error_save_reason(); NULL: none */

/* The launcher's error file holds nothing yet, a failure that another rank caused, a failure of this process, or an
 * error that tt_clear_error() has settled since. */
static _Atomic enum { LEFT_NOTHING, LEFT_CONSEQUENCE, LEFT_CAUSE, LEFT_HANDLED } left;

static const char *const status_names[] = {
#define STATUS_NAME(name, text) "TT_" #name,
    TT_STATUS_LIST(STATUS_NAME)};

static const char *const status_texts[] = {
#define STATUS_TEXT(name, text) text,
    TT_STATUS_LIST(STATUS_TEXT)};

enum { STATUS_COUNT = sizeof status_names / sizeof status_names[0] };

const char *tt_status_name(tt_status status) {
    return (unsigned)status < STATUS_COUNT ? status_names[status] : "TT_ERR_?";
}

const char *tt_status_text(tt_status status) {
    return (unsigned)status < STATUS_COUNT ? status_texts[status] : "unknown status";
}

tt_status tt_last_status(void) { return last.status; }

const char *tt_last_error(void) { return last.text; }

unsigned tt__error_clearings(void) { return last.clearings; }

void tt__error_drop(void) {
    last.status = TT_OK;
    last.text[0] = '\0';
}

void tt_clear_error(void) {
    last.clearings++;
    if (last.reported)
        left = LEFT_HANDLED;
    last.reported = false;
    tt__error_drop();
}

/* Record an error. Arguments may point into the last error's text, so the new text is formatted elsewhere first. It may
 * quote other processes' bytes, and be cut within a character. */
static void record_error(tt_status status, const char *format, va_list args) {
    char text[TT__ERROR_TEXT_SIZE];
    tt__format_short(text, sizeof text, format, args);
    tt__make_readable(text);
    memcpy(last.text, text, sizeof text);
    last.status = status;
    last.alike = false;
    last.count++;
}

tt_status tt_fail(tt_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    record_error(status, format, args);
    va_end(args);
    return status;
}

tt_status tt__fail(tt_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    record_error(status, format, args);
    va_end(args);
    return status;
}

void *tt__fail_null(tt_status status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    record_error(status, format, args);
    va_end(args);
    return NULL;
}

tt_status tt__fail_argument(const char *format, ...) {
    va_list args;
    if (last.status)
        return last.status;
    va_start(args, format);
    record_error(TT_ERR_INVALID, format, args);
    va_end(args);
    return TT_ERR_INVALID;
}

tt_status tt__fail_prefix(const char *format, ...) {
    char prefix[TT__ERROR_TEXT_SIZE / 2];
    va_list args;
    va_start(args, format);
    tt__format_short(prefix, sizeof prefix, format, args);
    va_end(args);
    return tt__fail(last.status, "%s: %s", prefix, last.text);
}

const char *tt__error_quote(char *out, size_t size) {
    static const char mark[] = "; the last error before: ";
    const char *text = last.text, *quoted = strstr(text, mark);
    if (quoted)
        text = quoted + sizeof mark - 1;
    snprintf(out, size, "%s%s", last.status ? mark : "", last.status ? text : "");
    return out;
}

tt_status tt__fail_alike(void) {
    last.alike = true;
    return last.status;
}

uint64_t tt__error_count(void) { return last.count; }

tt_status tt__fail_callback(uint64_t before, tt_status status, const char *format, ...) {
    char prefix[TT__ERROR_TEXT_SIZE / 2];
    va_list args;
    va_start(args, format);
    tt__format_short(prefix, sizeof prefix, format, args);
    va_end(args);
    return tt__fail(status, "%s: %s", prefix, last.count == before ? tt_status_text(status) : last.text);
}

tt_status tt__fail_errno(tt_status status, int errnum, const char *format, ...) {
    char what[TT__ERROR_TEXT_SIZE / 2];
    va_list args;
    va_start(args, format);
    tt__format_short(what, sizeof what, format, args);
    va_end(args);
    return tt__fail(errnum == ENOMEM ? TT_ERR_MEMORY : status, "%s: %s%s", what, strerror(errnum),
                    errnum == EMFILE ? " (descriptors: ulimit -n sets how many)" : "");
}

/* Write `text` as the inside of a JSON string; cut where `size` ends. */
static void json_escape(char *out, size_t size, const char *text) {
    size_t n = 0;
    for (const unsigned char *c = (const unsigned char *)text; *c && n + 7 < size; c++) {
        if (*c == '"' || *c == '\\' || *c == '\n')
            n += (size_t)snprintf(out + n, size - n, "\\%c", *c == '\n' ? 'n' : *c);
        else if (*c < 0x20)
            n += (size_t)snprintf(out + n, size - n, "\\u%04x", *c);
        else
            out[n++] = (char)*c;
    }
    out[n] = '\0';
}

static void (*_Atomic report_taker)(const char *message, bool secondary);

void tt__error_file_divert(void (*take)(const char *message, bool secondary)) { report_taker = take; }

/* May a report replace the one in the file? Always, if tt_clear_error() has settled that one. Else only a failure of
 * this process's own replaces another of its own: the newest ended the process. Once a failure of others is in the
 * file, later ones only follow from it. */
static bool replaces(bool secondary) { return left == LEFT_HANDLED || (!secondary && left != LEFT_CONSEQUENCE); }

/* Replace the file's content. A process that is killed meanwhile leaves JSON at the beginning. */
static bool rewrite(int fd, const char *text, size_t n) {
    return lseek(fd, 0, SEEK_SET) == 0 && tt__quiet_write(fd, text, n) == (ssize_t)n && ftruncate(fd, (off_t)n) == 0;
}

/* Open the folder of `path`, whose last name is *name; AT_FDCWD: it has none. A link is followed if it is this user's
 * or root's: others may have exchanged the folder above. -1: errno says why. */
static int open_error_folder(const char *path, const char **name) {
    char folder[PATH_MAX];
    struct stat link;
    const char *slash = strrchr(path, '/');
    *name = slash ? slash + 1 : path;
    if (!slash)
        return AT_FDCWD;
    int length = slash == path ? 1 : (int)(slash - path);
    if (snprintf(folder, sizeof folder, "%.*s", length, path) >= (int)sizeof folder) {
        errno = ENAMETOOLONG;
        return -1;
    }
    bool follows = !lstat(folder, &link) && S_ISLNK(link.st_mode) && (link.st_uid == geteuid() || link.st_uid == 0);
    return tt__fd(open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC | (follows ? 0 : O_NOFOLLOW)));
}

static int open_error_file(const char *path) {
    const char *name;
    int folder = open_error_folder(path, &name);
    if (folder < 0 && folder != AT_FDCWD)
        return -1;
    int fd = tt__fd(openat(folder, name, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600));
    if (folder >= 0)
        close(folder);
    return fd;
}

void tt__error_file_write(const char *message, bool secondary) {
    void (*take)(const char *, bool) = report_taker;
    if (take) {
        take(message, secondary);
        return;
    }
    const char *path = secure_getenv("TORCHELASTIC_ERROR_FILE");
    if (!path || !*path)
        return;
    char escaped[2 * TT__ERROR_TEXT_SIZE], json[2 * TT__ERROR_TEXT_SIZE + 256];
    json_escape(escaped, sizeof escaped, message);
    int n =
        snprintf(json, sizeof json,
                 "{\"message\": {\"message\": \"%s\", \"extraInfo\": {\"timestamp\": \"%lld\", \"secondary\": %s}}}\n",
                 escaped, (long long)time(NULL), secondary ? "true" : "false");
    struct stat file;
    int fd = open_error_file(path);
    if (fd < 0)
        return;
    /* another user may have put a link or a FIFO there */
    bool ours = fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && file.st_uid == geteuid() && file.st_nlink == 1;
    if (ours && (!file.st_size || replaces(secondary))) {
        if (!rewrite(fd, json, (size_t)n))
            tt__log(TT_LOG_WARNING, "could not write %s: %s", path, strerror(errno));
        left = secondary ? LEFT_CONSEQUENCE : LEFT_CAUSE;
        last.reported = true;
    }
    close(fd);
}

void tt_report(void) {
    if (!last.status)
        return;
    char where[32] = "";
    if (tt__report_rank() >= 0)
        snprintf(where, sizeof where, "rank %d: ", tt__report_rank());
    if (!last.alike || tt__report_rank() <= 0) {
        char plain[TT__ERROR_TEXT_SIZE]; /* it may quote a file, or another process */
        snprintf(plain, sizeof plain, "%s", last.text);
        fprintf(stderr, "tutti: %s%s: %s\n", where, tt_status_name(last.status), tt__make_plain(plain));
    }
    char message[TT__ERROR_TEXT_SIZE + 64];
    snprintf(message, sizeof message, "%s: %s", tt_status_name(last.status), last.text);
    tt__error_file_write(message, last.status == TT_ERR_PEER);
}

void tt__error_save(tt__saved_error *saved) {
    saved->status = last.status;
    saved->alike = last.status && last.alike;
    if (saved->status) /* this is rare, and saving nothing is cheap */
        snprintf(saved->text, sizeof saved->text, "%s", last.text);
    tt__error_drop();
}

void tt__error_restore(const tt__saved_error *saved) {
    if (saved->status)
        tt__fail(saved->status, "%s", saved->text);
    else
        tt__error_drop();
    if (saved->alike)
        tt__fail_alike();
}

void tt__error_save_reason(tt__saved_error *saved) {
    tt__error_save(saved);
    saved->outer = reason;
    if (!reason && saved->status)
        reason = saved;
}

void tt__error_restore_reason(const tt__saved_error *saved) {
    reason = saved->outer;
    tt__error_restore(saved);
}

const char *tt__error_reason(tt_status *status) {
    *status = reason ? reason->status : last.status;
    return reason ? reason->text : last.text;
}

void tt__problem_add(tt__problem_list *list, tt_status status, const char *format, ...) {
    size_t room = sizeof list->text - list->used;
    va_list args;
    va_start(args, format);
    int n = snprintf(list->text + list->used, room, "%s", list->count ? "; " : "");
    n += tt__vformat(list->text + list->used + n, room - (size_t)n, format, args);
    va_end(args);
    list->first = list->count++ ? list->first : status;
    if ((size_t)n + sizeof "; " < room) { /* the next one's separator must fit, too */
        list->used += (size_t)n;
        list->shown++;
    }
    list->text[list->used] = 0;
}

tt_status tt__problems_report(const tt__problem_list *list, const char *who) {
    if (list->count == 0)
        return TT_OK;
    if (list->shown < list->count)
        return tt__fail(list->first, "%s: %s; and %zu more", who, list->text, list->count - list->shown);
    return tt__fail(list->first, "%s: %s", who, list->text);
}
