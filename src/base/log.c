#include "base/log.h"

#include "base/files/fd.h"
#include "base/text/format.h"
#include "base/text/plain_text.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { UNREAD = -1, SILENT = TT_LOG_WARNING + 1, LINE_SIZE = 1024 };

static tt_log_fn log_write;
static void *log_user;
static _Atomic int log_rank = -1;

/* Lines from this level on go to stderr; UNREAD until the first line. */
static _Atomic int stderr_level = UNREAD;
static _Atomic int stderr_fd = STDERR_FILENO;
static const char *stderr_who = "tutti";
static int stderr_default = SILENT;
static bool stderr_timed; /* TT_LOG was given: each line says when it was written */

static const char *const level_names[] = {
    [TT_LOG_DEBUG] = "debug", [TT_LOG_INFO] = "info", [TT_LOG_WARNING] = "warning"};

void tt_set_log(tt_log_fn write, void *user) {
    log_write = write;
    log_user = user;
}

void tt__set_report_rank(int rank) { log_rank = rank; }

int tt__report_rank(void) { return log_rank; }

/* Find the level called `name`; false: none. */
static bool log_level_named(const char *name, tt_log_level *level) {
    for (int i = TT_LOG_DEBUG; i <= TT_LOG_WARNING; i++)
        if (!strcmp(name, level_names[i])) {
            *level = (tt_log_level)i;
            return true;
        }
    return false;
}

/* "01:02:03.456 ". */
static void clock_text(char *text, size_t size) {
    struct timespec now;
    struct tm local;
    size_t n = 0;
    clock_gettime(CLOCK_REALTIME, &now);
    if (localtime_r(&now.tv_sec, &local))
        n = strftime(text, size, "%H:%M:%S", &local);
    snprintf(text + n, size - n, ".%03d ", (int)(now.tv_nsec / 1000000));
}

/* Write a line to stderr in one call, so that lines of several ranks don't mix. What can't be written is lost. */
static void write_stderr(tt_log_level level, const char *text) {
    char line[LINE_SIZE + 96], rank[24] = "", clock[24] = "", name[16] = "";
    if (log_rank >= 0)
        snprintf(rank, sizeof rank, "rank %d: ", log_rank);
    if (stderr_timed) {
        clock_text(clock, sizeof clock);
        snprintf(name, sizeof name, "%s: ", level_names[level]);
    }
    int n = snprintf(line, sizeof line, "%s: %s%s%s%s\n", stderr_who, clock, rank, name, text);
    if (n > 0 && tt__quiet_write(stderr_fd, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1) < 0)
        return;
}

static int read_level(void) {
    const char *name = getenv("TT_LOG");
    tt_log_level level = TT_LOG_WARNING;
    if (!name || !*name)
        return stderr_default;
    stderr_timed = true;
    if (!log_level_named(name, &level)) {
        char text[128];
        snprintf(text, sizeof text, "TT_LOG: expected debug, info or warning, got \"%.40s\"", name);
        write_stderr(TT_LOG_WARNING, text);
    }
    return (int)level;
}

/* Return the level of stderr, read from TT_LOG at first. Two threads may read it at once: both find the same. */
static int stderr_threshold(void) {
    int level = atomic_load_explicit(&stderr_level, memory_order_acquire);
    if (level == UNREAD) {
        level = read_level();
        atomic_store_explicit(&stderr_level, level, memory_order_release);
    }
    return level;
}

void tt__log_to_stderr(const char *who, tt_log_level level) {
    stderr_who = who;
    stderr_default = (int)level;
    atomic_store_explicit(&stderr_level, UNREAD, memory_order_release);
}

void tt__log_to_descriptor(int fd) { stderr_fd = fd; }

bool tt__log_wanted(tt_log_level level) { return log_write || (int)level >= stderr_threshold(); }

void tt__log(tt_log_level level, const char *format, ...) {
    if (!tt__log_wanted(level))
        return;
    char line[LINE_SIZE];
    va_list args;
    va_start(args, format);
    tt__vformat(line, sizeof line, format, args);
    va_end(args);
    tt__make_plain(line); /* it may quote files and other processes */
    for (char *end = line; (end = strchr(end, '\n'));)
        *end = ' ';
    if (log_write)
        log_write(level, line, log_user);
    if ((int)level >= stderr_threshold())
        write_stderr(level, line);
}
