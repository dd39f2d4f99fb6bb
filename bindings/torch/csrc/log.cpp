#include "log.hpp"

#include <tutti/base.h>

#include <deque>
#include <mutex>
#include <string>

namespace tutti_torch {
namespace {

constexpr size_t MOST_LINES = 1000; // that wait

struct Line {
    tt_log_level level;
    std::string text;
};

struct Log {
    std::mutex lock; // of what follows; nothing is called while it is held
    std::deque<Line> lines;
    size_t lost = 0;
    bool open = false, asked = false; // asked: the main thread is to deliver
    PyObject *write = nullptr;        // guarded by the interpreter's lock
};

Log &the_log() {
    static auto *log = new Log;
    return *log;
}

int deliver_pending(void *) {
    deliver_log_lines();
    return 0;
}

void take(tt_log_level level, const char *line, void *) {
    Log &log = the_log();
    bool ask;
    {
        std::lock_guard<std::mutex> guard(log.lock);
        if (!log.open)
            return;
        if (log.lines.size() >= MOST_LINES)
            log.lost++;
        else
            log.lines.push_back({level, line});
        ask = !log.asked;
        log.asked = true;
    }
    if (ask && Py_AddPendingCall(deliver_pending, nullptr)) { // which needs no lock; too many of others' wait
        std::lock_guard<std::mutex> guard(log.lock);
        log.asked = false;
    }
}

std::deque<Line> taken_lines() {
    Log &log = the_log();
    std::deque<Line> lines;
    std::lock_guard<std::mutex> guard(log.lock);
    lines.swap(log.lines);
    if (log.lost)
        lines.push_back({TT_LOG_WARNING, std::to_string(log.lost) + " more log lines came at once, and are lost"});
    log.lost = 0;
    log.asked = false;
    return lines;
}

} // namespace

void log_to(PyObject *write) {
    Log &log = the_log();
    Py_INCREF(write);
    log.write = write;
    {
        std::lock_guard<std::mutex> guard(log.lock);
        log.open = true;
    }
    tt_set_log(take, nullptr);
}

void deliver_log_lines() {
    Log &log = the_log();
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback); // it may be called while one is on its way
    for (const Line &line : taken_lines()) {
        PyObject *done = log.write ? PyObject_CallFunction(log.write, "is", static_cast<int>(line.level),
                                                           line.text.c_str())
                                   : nullptr;
        if (!done && PyErr_Occurred())
            PyErr_WriteUnraisable(log.write);
        Py_XDECREF(done);
    }
    PyErr_Restore(type, value, traceback);
}

void end_log() {
    Log &log = the_log();
    deliver_log_lines();
    std::lock_guard<std::mutex> guard(log.lock);
    log.open = false;
}

} // namespace tutti_torch
