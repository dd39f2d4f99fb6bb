// What waits owe to the interpreter.
#pragma once

#include <Python.h>

namespace tutti_torch {

// Python's threads but the main one that come back from a wait when the interpreter is about to end stay where they
// are: it would end them as they take its lock, which C++ code can't be in the midst of. Without its lock.
void python_ends();
void stay_if_python_ends();

// Without the interpreter's lock, which the callbacks of futures may need to end.
class WithoutGil {
  public:
    WithoutGil() : state_(Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}
    ~WithoutGil() {
        if (!state_)
            return;
        stay_if_python_ends();
        PyEval_RestoreThread(state_);
    }
    WithoutGil(const WithoutGil &) = delete;
    WithoutGil &operator=(const WithoutGil &) = delete;

  private:
    PyThreadState *state_;
};

// How long a wait may keep the main thread from attend_to_python(), in ms.
constexpr int ATTENTION_MS = 100;

// In the main thread, whose waits come by here: run handlers of signals that have come, and hand over log lines. Throws
// what a handler raises, as Ctrl-C's KeyboardInterrupt. In other threads it does nothing. The lock need not be held.
// Also before an error is thrown: Ctrl-C reaches all ranks, so it is pending here when it has ended another one, and
// Python's traceback of our error would be cut off by it.
void attend_to_python();

} // namespace tutti_torch
