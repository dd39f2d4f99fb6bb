/* TT_WAIT_NOTICE: after how long a wait is worth a line in the log. */
#ifndef TT_BASE_WAIT_NOTICE_H
#define TT_BASE_WAIT_NOTICE_H

#include <stdint.h>

/* Return it in nanoseconds; 0: never. It is read once (base/setting.h). */
int64_t tt__wait_notice_ns(void);

#endif
