#include "interpreter.hpp"

#include "log.hpp"

#include <torch/csrc/utils/pybind.h>

#include <unistd.h>

namespace tutti_torch {

void attend_to_python() {
    if (getpid() != gettid() || !Py_IsInitialized() || !PyGILState_GetThisThreadState())
        return;
    py::gil_scoped_acquire held;
    deliver_log_lines();
    if (PyErr_CheckSignals())
        throw py::error_already_set();
}

} // namespace tutti_torch
