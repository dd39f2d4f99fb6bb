#include "interpreter.hpp"

#include "log.hpp"

#include <torch/csrc/utils/pybind.h>

#include <atomic>
#include <chrono>
#include <thread>

#include <unistd.h>

namespace tutti_torch {
namespace {

std::atomic<bool> python_is_ending{false}, others_have_waited{false};

bool is_main_thread() {
    static thread_local const bool is = getpid() == gettid();
    return is;
}

} // namespace

void python_ends() {
    constexpr std::chrono::milliseconds MOMENT{200}; // for threads that are past the question, and take the lock
    python_is_ending = true;
    if (others_have_waited)
        std::this_thread::sleep_for(MOMENT);
}

void stay_if_python_ends() {
    if (is_main_thread() || !Py_IsInitialized() || !PyGILState_GetThisThreadState())
        return;
    others_have_waited = true;
    while (python_is_ending)
        pause();
}

void attend_to_python() {
    if (!is_main_thread() || !Py_IsInitialized() || !PyGILState_GetThisThreadState())
        return;
    py::gil_scoped_acquire held;
    deliver_log_lines();
    if (PyErr_CheckSignals())
        throw py::error_already_set();
}

} // namespace tutti_torch
