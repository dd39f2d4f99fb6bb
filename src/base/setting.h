/* Environment variables TT_* that are read where no error can be returned. A wrong value is never ignored in silence:
 * joining a job and starting one check all variables first; elsewhere the first reader logs it, and the default is
 * used. */
#ifndef TT_BASE_SETTING_H
#define TT_BASE_SETTING_H

#include "base/export.h"

#include <stdbool.h>
#include <stdint.h>

/* Times, in seconds. */
typedef enum tt__setting_time { TT__WAIT_NOTICE, TT__CRASH_STACKS, TT__SETTING_TIMES } tt__setting_time;

/* Switches, 1 or 0. */
typedef enum tt__setting_switch { TT__DEBUG, TT__BACKEND_CHECK, TT__SETTING_SWITCHES } tt__setting_switch;

/* Return the variable's value, or its default. The environment is read anew each time. */
double tt__setting_seconds(tt__setting_time setting);
bool tt__setting_is_on(tt__setting_switch setting);

/* Check all of these variables. TT_ERR_INVALID names the first wrong one, its value, and what was expected. */
tt_status tt__settings_check(void);

/* Return TT_WAIT_NOTICE, after which a wait is worth a line in the log, in nanoseconds; 0: never. It is read once. */
int64_t tt__wait_notice_ns(void);

#endif
