/* Log lines: to the callback of tt_set_log(), and to stderr if TT_LOG asks for them. */
#ifndef TT_BASE_LOG_H
#define TT_BASE_LOG_H

#include "base/export.h"

/* One log line at `level`. */
TT__EXPORT void tt__log(tt_log_level level, const char *format, ...) TT_PRINTF(2, 3);

/* Whether anybody reads lines of `level`: a guard before what is costly to describe. */
bool tt__log_wanted(tt_log_level level);

/* Write lines from `level` on to stderr, as "WHO: text", unless TT_LOG names another level. For commands, before their
 * first line; `who` is kept. */
void tt__log_to_stderr(const char *who, tt_log_level level);

/* The level that `name` ("debug", "info", "warning") means; false: none. */
bool tt__log_level_named(const char *name, tt_log_level *level);

/* Which rank this process is, for tt_report() and log lines; -1 = none. Set by comm. */
void tt__set_report_rank(int rank);
int tt__report_rank(void);

#endif
