#include "interpreter.hpp"

#include "log.hpp"

#include <torch/csrc/utils/pybind.h>

#include <atomic>
#include <exception>

#include <unistd.h>

namespace tutti_torch {
namespace {

std::atomic<bool> python_is_ending{false};
std::terminate_handler terminate_before;

bool is_main_thread() {
    static thread_local const bool is = getpid() == gettid();
    return is;
}

[[noreturn]] void stay() {
    for (;;)
        pause();
}

// A thread that was past the question, and takes the lock only now, is ended by Python within a destructor, which C++
// answers so: with no exception under way.
void terminate_or_stay() {
    if (!is_main_thread() && !std::current_exception())
        stay();
    terminate_before();
}

} // namespace

void python_ends() {
    if (python_is_ending.exchange(true))
        return;
    terminate_before = std::get_terminate(); // before a thread may ask for it
    std::set_terminate(terminate_or_stay);
}

void stay_if_python_ends() {
    if (python_is_ending && !is_main_thread() && Py_IsInitialized() && PyGILState_GetThisThreadState())
        stay();
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
