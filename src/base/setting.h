/* Environment variables TT_* that are read where no error can be returned. A value that can't be read is never ignored
 * in silence: joining a job and starting one check all of them first, and whoever meets it without that logs it once
 * and goes on with the default. */
#ifndef TT_BASE_SETTING_H
#define TT_BASE_SETTING_H

#include "base/export.h"

#include <stdbool.h>

/* Seconds. */
typedef enum tt__setting_time { TT__WAIT_NOTICE, TT__CRASH_STACKS, TT__SETTING_TIMES } tt__setting_time;

/* Switches, 1 or 0. */
typedef enum tt__setting_switch { TT__DEBUG, TT__BACKEND_CHECK, TT__SETTING_SWITCHES } tt__setting_switch;

/* Return what the variable says, or its default. The text is read anew each time. */
double tt__setting_seconds(tt__setting_time setting);
bool tt__setting_is_on(tt__setting_switch setting);

/* Check all of these variables. TT_ERR_INVALID names the first whose value can't be read, that value, and what was
 * expected. */
tt_status tt__settings_check(void);

#endif
