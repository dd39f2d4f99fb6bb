// Tutti's errors as exceptions that Python sees as DistBackendError, with Tutti's text.
#pragma once

#include "compat.hpp"

#if !TUTTI_TORCH_2
#include <torch/csrc/Exceptions.h>
#endif

#include <tutti/base.h>

#include <stdexcept>
#include <string>

namespace tutti_torch {

#if TUTTI_TORCH_2
using CommError = c10::DistBackendError;
#else
// PyTorch before 2.0 has no DistBackendError; module.cpp gives Python tutti_torch.DistBackendError for it. Its own
// functions, as a backward pass, ask an error of this base which exception it is.
class CommError : public torch::PyTorchError {
  public:
    using torch::PyTorchError::PyTorchError;
    PyObject *python_type() override { return type; }
    static PyObject *type; // set when the module is loaded
};
#endif

// What is wrong with an argument before anything was sent: in Python tutti_torch.ArgumentError, which is a ValueError
// and, as PyTorch's own back ends raise it, a RuntimeError.
[[noreturn]] void refuse(const std::string &text);

// Python's class for it, made when the module is loaded; borrowed.
void set_argument_error(void *python_class);

// Throw this thread's last error, which is `status`: a CommError, or what refuse() throws if an argument is at fault.
[[noreturn]] void raise(tt_status status, const char *timeout_hint = "");

// What a timeout's text ends in, where a longer one is given so.
constexpr char TIMEOUT_OF_GROUP[] = "; a longer timeout is given by timeout= of init_process_group() or new_group()";

// Throw unless the call succeeded.
inline void check(tt_status status, const char *timeout_hint = "") {
    if (status)
        raise(status, timeout_hint);
}

// This thread's last error as an exception, for a work that another thread waits for.
std::exception_ptr last_error(tt_status status);

} // namespace tutti_torch
