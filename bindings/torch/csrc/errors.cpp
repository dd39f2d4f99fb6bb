#include "errors.hpp"

#include <c10/util/Exception.h>

namespace tutti_torch {

#if !TUTTI_TORCH_2
PyObject *CommError::type = nullptr;
#endif

void refuse(const std::string &text) {
    throw c10::ValueError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, text);
}

static std::string text_of(tt_status status) {
    const char *text = tt_last_status() == status ? tt_last_error() : tt_status_text(status);
    return std::string(tt_status_name(status)) + ": " + text;
}

void raise(tt_status status) {
#if TUTTI_TORCH_2
    throw CommError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, text_of(status));
#else
    throw CommError(text_of(status));
#endif
}

std::exception_ptr last_error(tt_status status) {
    try {
        raise(status);
    } catch (...) {
        return std::current_exception();
    }
}

} // namespace tutti_torch
