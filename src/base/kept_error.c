#include "base/kept_error.h"

#include <stdio.h>

void tt__error_keep(tt__kept_error *kept) {
    kept->status = tt_last_status();
    snprintf(kept->text, sizeof kept->text, "%s", tt_last_error());
    tt_clear_error();
}

void tt__error_restore(const tt__kept_error *kept) {
    if (kept->status)
        tt__fail(kept->status, "%s", kept->text);
    else
        tt_clear_error();
}
