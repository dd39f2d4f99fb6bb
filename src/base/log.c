#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>

static tt_log_fn log_write;
static void *log_user;

void tt_set_log(tt_log_fn write, void *user) {
    log_write = write;
    log_user = user;
}

void tt__log(tt_log_level level, const char *format, ...) {
    if (!log_write)
        return;
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    log_write(level, line, log_user);
}
