/* What a child leaves for its parent, in memory that both have. Bounded, and there even if the child crashes. */
#ifndef TT_SPAWN_CHILD_REPORT_H
#define TT_SPAWN_CHILD_REPORT_H

#include "base/error.h"

#include <stdatomic.h>

enum { TT__REPORT_TEXT_SIZE = TT__ERROR_TEXT_SIZE + 64 };

typedef struct tt__child_report {
    /* Set by the child's last act. Then `code` is its exit code, if nothing kills it in the very moment between. */
    _Atomic int has_ended;
    int code;
    int64_t ended_ns;
    tt_status status; /* the last error of the thread that ended it */
    char last_error[TT__REPORT_TEXT_SIZE];

    /* What it reported for its launcher, last of all. */
    _Atomic int telling, has_told;
    _Atomic bool secondary; /* it ends because another rank did */
    char told[TT__REPORT_TEXT_SIZE];
} tt__child_report;

#endif
