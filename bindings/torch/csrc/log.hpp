// The library's log lines, handed to Python's logging: the logger "tutti".
#pragma once

#include <Python.h>

namespace tutti_torch {

// From now on lines go to `write(level, line)`, which is called with the interpreter's lock held: by the main thread
// soon, or by whichever thread comes to deliver_log_lines() first. A line may come from any thread that holds any lock,
// so it is only put down there.
void log_to(PyObject *write);

// Hand over what has come. The interpreter's lock is held. What `write` raises is printed, as it can't be raised here.
void deliver_log_lines();

// The same; then lines are dropped: the interpreter is about to end.
void end_log();

} // namespace tutti_torch
