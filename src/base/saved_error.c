#include "base/saved_error.h"

#include <stdio.h>

static _Thread_local const tt__saved_error *reason;

void tt__error_save(tt__saved_error *saved) {
    saved->status = tt_last_status();
    saved->alike = tt__error_is_alike();
    if (saved->status) /* which is rare: saving nothing is cheap */
        snprintf(saved->text, sizeof saved->text, "%s", tt_last_error());
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
    *status = reason ? reason->status : tt_last_status();
    return reason ? reason->text : tt_last_error();
}
