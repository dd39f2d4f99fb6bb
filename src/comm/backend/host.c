/* What the library offers plug-ins (tutti/backend.h). */
#include "comm/backend/host.h"

#include "base/error.h"
#include "base/text/format.h"

#include <stdarg.h>
#include <stdio.h>

static tt_status host_fail(tt_status status, const char *format, ...) {
    char text[TT__ERROR_TEXT_SIZE];
    va_list arguments;
    va_start(arguments, format);
    tt__vformat(text, sizeof text, format, arguments);
    va_end(arguments);
    return tt__fail(status, "%s", text);
}

static void log_line(tt_log_level level, const char *format, ...) {
    char text[TT__ERROR_TEXT_SIZE];
    va_list arguments;
    va_start(arguments, format);
    tt__vformat(text, sizeof text, format, arguments);
    va_end(arguments);
    tt__log(level, "%s", text);
}

const tt_backend_host tt__backend_host = {
    .abi = TT_BACKEND_ABI,
    .size = sizeof(tt_backend_host),
    .call_size = sizeof(tt_call),
    .member_size = sizeof(tt_backend_member),
    .fail = host_fail,
    .log = log_line,
    .last_error = tt_last_error,
    .dtype_size = tt_dtype_size,
    .dtype_name = tt_dtype_name,
    .reduce_op_name = tt_reduce_op_name,
    .op_name = tt_op_name,
    .store_set = tt_store_set,
    .store_get = tt_store_get,
    .store_add = tt_store_add,
    .store_check = tt_store_check,
    .store_wait = tt_store_wait,
    .store_value_free = tt_store_value_free,
};
