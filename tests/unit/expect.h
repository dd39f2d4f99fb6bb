/* What a test expects of the thread's last error. */
#ifndef TT_TESTS_UNIT_EXPECT_H
#define TT_TESTS_UNIT_EXPECT_H

#include <string.h>

#include <tutti/base.h>

/* The last error has this status, and its text contains `what`; then it is cleared. After cmocka.h. */
static inline void expect_error(tt_status status, const char *what) {
    if (tt_last_status() != status || !strstr(tt_last_error(), what))
        fail_msg("expected %s with \"%s\", got %s: %s", tt_status_name(status), what, tt_status_name(tt_last_status()),
                 tt_last_error());
    tt_clear_error();
}

#endif
