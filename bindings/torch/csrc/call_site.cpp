// Python.h comes first, as it asks for.
#include <Python.h>
#include <frameobject.h>

#include "call_site.hpp"

#include <cstring>
#include <mutex>
#include <string>
#include <unordered_set>
#include <vector>

namespace tutti_torch {
namespace {

std::vector<std::string> &folders() {
    static auto *all = new std::vector<std::string>;
    return *all;
}

bool is_passed_over(const char *file) {
    if (file[0] == '<') // "<frozen importlib>", "<string>" of PyTorch's wrappers
        return true;
    for (const std::string &folder : folders())
        if (!std::strncmp(file, folder.c_str(), folder.size()))
            return true;
    return false;
}

// Errors keep names for good, and a script has few files.
const char *interned(const char *file) {
    static std::mutex lock;
    static auto *names = new std::unordered_set<std::string>;
    std::lock_guard<std::mutex> guard(lock);
    return names->insert(file).first->c_str();
}

// The file of the frame's code; NULL: it has none that can be read.
const char *file_of(PyFrameObject *frame) {
    PyCodeObject *code = PyFrame_GetCode(frame);
    const char *file = PyUnicode_AsUTF8(code->co_filename); // as long as the frame is there, so is its code
    Py_DECREF(code);
    if (!file)
        PyErr_Clear();
    return file;
}

bool find_site(CallSite *site) {
    PyFrameObject *frame = PyEval_GetFrame();
    Py_XINCREF(frame);
    while (frame) {
        const char *file = file_of(frame);
        if (file && !is_passed_over(file)) {
            *site = {interned(file), PyFrame_GetLineNumber(frame)};
            Py_DECREF(frame);
            return true;
        }
        PyFrameObject *caller = PyFrame_GetBack(frame);
        Py_DECREF(frame);
        frame = caller;
    }
    return false;
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
