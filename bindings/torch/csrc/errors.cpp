#include <torch/csrc/Exceptions.h>

#include "errors.hpp"

#include <c10/util/Exception.h>

namespace tutti_torch {

#if !TUTTI_TORCH_2
PyObject *CommError::type = nullptr;
#endif

namespace {

PyObject *argument_error = nullptr;

struct ArgumentError : torch::PyTorchError {
    explicit ArgumentError(const std::string &text) { msg = text; }
    PyObject *python_type() override { return argument_error; }
};

} // namespace

void set_argument_error(void *python_class) { argument_error = static_cast<PyObject *>(python_class); }

void refuse(const std::string &text) { throw ArgumentError(text); }

void raise(tt_status status, const char *timeout_hint) {
    const char *said = tt_last_status() == status ? tt_last_error() : tt_status_text(status);
    const std::string text =
        std::string(tt_status_name(status)) + ": " + said + (status == TT_ERR_TIMEOUT ? timeout_hint : "");
    if (status == TT_ERR_INVALID || status == TT_ERR_UNSUPPORTED)
        refuse(text);
#if TUTTI_TORCH_2
    throw CommError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, text);
#else
    throw CommError(text);
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
