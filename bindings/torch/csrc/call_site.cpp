// Python.h comes first, as it asks for.
#include <Python.h>
#include <frameobject.h>

#include "call_site.hpp"

#include <cstring>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace tutti_torch {
namespace {

// Whose code a frame runs, by its file.
enum class Owner {
    SCRIPT,
    PACKAGE,  // one that is installed: named where no frame of the script is there
    LIBRARY,  // passed over
    GENERATED // "<string>", "<stdin>": whose it is, its module says
};

struct File {
    Owner owner;
    const char *name; // lives as long as the process
};

std::vector<std::string> &folders() {
    static auto *all = new std::vector<std::string>;
    return *all;
}

bool begins_with(const char *text, const char *start) { return !std::strncmp(text, start, std::strlen(start)); }

Owner owner_of(const char *file) {
    if (begins_with(file, "<frozen ") || begins_with(file, "<eval_with_key>")) // the latter: what torch.fx makes
        return Owner::LIBRARY;
    if (file[0] == '<')
        return Owner::GENERATED;
    for (const std::string &folder : folders()) {
        if (!begins_with(file, folder.c_str()))
            continue;
        const char *rest = file + folder.size(); // packages may lie within Python's library
        if (!begins_with(rest, "site-packages/") && !begins_with(rest, "dist-packages/"))
            return Owner::LIBRARY;
    }
    const bool installed = std::strstr(file, "/site-packages/") || std::strstr(file, "/dist-packages/");
    return installed ? Owner::PACKAGE : Owner::SCRIPT;
}

// Errors keep names for good, and a script has few files.
const char *interned(const char *file) {
    static std::mutex lock;
    static auto *names = new std::unordered_set<std::string>;
    std::lock_guard<std::mutex> guard(lock);
    return names->insert(file).first->c_str();
}

// What is known of a file, found by the string object that all code of a file has in common; that is kept, so that its
// address stays its own. Guarded by the interpreter's lock. Programs that go on making code have their number bounded.
const File &file_of(PyObject *name) {
    constexpr size_t MOST = 1024;
    static auto *known = new std::unordered_map<PyObject *, File>;
    auto found = known->find(name);
    if (found != known->end())
        return found->second;
    if (known->size() >= MOST) {
        for (auto &each : *known)
            Py_DECREF(each.first); // a string: runs no code
        known->clear();
    }
    const char *text = PyUnicode_AsUTF8(name);
    if (!text) {
        PyErr_Clear();
        text = "<a file whose name can't be read>";
    }
    Py_INCREF(name);
    return (*known)[name] = {owner_of(text), interned(text)};
}

// Is generated code PyTorch's? Its module says; a script's own exec() or a notebook's cell is __main__, or nothing.
bool is_of_torch(PyFrameObject *frame) {
    PyObject *globals = PyObject_GetAttrString(reinterpret_cast<PyObject *>(frame), "f_globals");
    PyObject *module = globals && PyDict_Check(globals) ? PyDict_GetItemString(globals, "__name__") : nullptr;
    const char *name = module && PyUnicode_Check(module) ? PyUnicode_AsUTF8(module) : "";
    const bool is = name && (!std::strcmp(name, "torch") || begins_with(name, "torch."));
    PyErr_Clear();
    Py_XDECREF(globals);
    return is;
}

File file_of(PyFrameObject *frame) {
    PyCodeObject *code = PyFrame_GetCode(frame);
    File file = file_of(code->co_filename);
    Py_DECREF(code); // the frame has it
    if (file.owner == Owner::GENERATED)
        file.owner = is_of_torch(frame) ? Owner::LIBRARY : Owner::SCRIPT;
    return file;
}

// To find a line takes a look through the table of its function's, so only the line that is asked for is found.
CallSite site_of(PyFrameObject *frame) { return {file_of(frame).name, PyFrame_GetLineNumber(frame)}; }

void find_site(CallSite *site) {
    PyFrameObject *frame = PyEval_GetFrame();
    PyFrameObject *next_best = frame; // the innermost frame, which says more than none, or the innermost package's
    Py_XINCREF(frame);
    Py_XINCREF(next_best);
    bool found = false, package = false;
    while (frame) {
        const Owner owner = file_of(frame).owner;
        found = owner == Owner::SCRIPT;
        if (found)
            break;
        if (owner == Owner::PACKAGE && !package) {
            package = true;
            Py_INCREF(frame);
            Py_SETREF(next_best, frame);
        }
        PyFrameObject *caller = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = caller;
    }
    if (found || next_best)
        *site = site_of(found ? frame : next_best);
    Py_XDECREF(frame);
    Py_XDECREF(next_best);
}

} // namespace

void pass_over(const char *folder) { folders().push_back(std::string(folder) + "/"); }

CallSite call_site(const char *otherwise) {
    CallSite site = {otherwise, 0};
    if (!Py_IsInitialized() || !PyGILState_GetThisThreadState())
        return site;
    PyGILState_STATE held = PyGILState_Ensure();
    find_site(&site);
    PyGILState_Release(held);
    return site;
}

} // namespace tutti_torch
