/* Log lines: to the callback of tt_set_log(), and to stderr if TT_LOG asks for them. */
#ifndef TT_BASE_LOG_H
#define TT_BASE_LOG_H

#include "base/export.h"

/* Log one line at `level`. */
TT__EXPORT void tt__log(tt_log_level level, const char *format, ...) TT_PRINTF(2, 3);

/* Is anything logged at `level`? Asked before making a text that is costly. */
bool tt__log_wanted(tt_log_level level);

/* Write lines from `level` on to stderr, as "WHO: text", unless TT_LOG names another level. For commands, before their
 * first line; `who` is kept. */
void tt__log_to_stderr(const char *who, tt_log_level level);

/* Write those lines to `fd` from now on, a descriptor that never blocks. For launchers, whose stderr may stall. */
void tt__log_to_descriptor(int fd);

/* This process's rank, for tt_report() and log lines; -1: none. Set by comm. */
void tt__set_report_rank(int rank);
int tt__report_rank(void);

#endif
