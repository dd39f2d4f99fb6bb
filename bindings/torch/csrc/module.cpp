// tutti_torch._C: what Python calls.
#include "errors.hpp"
#include "log.hpp"
#include "process_group.hpp"
#include "symmetric.hpp"

#include <torch/csrc/utils/pybind.h>

#include <pybind11/chrono.h>
#include <pybind11/stl.h>

#if TUTTI_TORCH_2
namespace tutti_torch {
void define_rpc(py::module_ &m);    // rpc_module.cpp
void define_rounds(py::module_ &m); // rounds.cpp
} // namespace tutti_torch
#endif

namespace {

using namespace tutti_torch;

// `later`: the group is made by reconfigure().
c10::intrusive_ptr<Base> create(const c10::intrusive_ptr<c10d::Store> &store, int rank, int size,
                                const std::chrono::duration<float> &timeout, bool later) {
    if (timeout.count() <= 0)
        refuse(c10::str("init_process_group: expected a timeout of more than 0 s, got ", timeout.count(),
                        timeout.count() < -1e9f ? " (longer ones than 292 years overflow)" : ""));
    if (size < 1 || rank < 0 || rank >= size)
        refuse(c10::str("init_process_group: expected a rank of 0 to world_size - 1, got rank ", rank, " of ", size));
    const auto ms = std::max(std::chrono::duration_cast<std::chrono::milliseconds>(timeout),
                             std::chrono::milliseconds(1));
    if (later)
        return c10::make_intrusive<ProcessGroupTutti>(nullptr, store, rank, size, ms);
    return c10::make_intrusive<ProcessGroupTutti>(store, rank, size, ms);
}

std::shared_ptr<Group> group_of(const c10::intrusive_ptr<Base> &backend) {
    auto *ours = dynamic_cast<ProcessGroupTutti *>(backend.get());
    if (!ours)
        refuse("symmetric_memory: expected a process group of the back end tutti, got one of " +
               backend->getBackendName());
    return ours->group();
}

// What use_symmetric_memory() had before, to be set again.
struct Used {
    std::shared_ptr<Group> before;
};

// PyTorch's own back ends raise RuntimeError for such arguments, and scripts may catch that.
void define_argument_error(py::module_ &m) {
    py::tuple bases = py::make_tuple(py::handle(PyExc_ValueError), py::handle(PyExc_RuntimeError));
    PyObject *made = PyErr_NewExceptionWithDoc("tutti_torch.ArgumentError",
                                               "What a collective was called with is wrong.", bases.ptr(), nullptr);
    if (!made)
        throw py::error_already_set();
    m.attr("ArgumentError") = py::handle(made);
    set_argument_error(made); // for as long as the process lives
}

} // namespace

PYBIND11_MODULE(_C, m) {
    define_argument_error(m);
    m.def("create", &create, py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"),
          py::arg("later") = false, py::call_guard<py::gil_scoped_release>());
#if TUTTI_TORCH_NEWEST
    // What new_group() calls on ranks that are in no part, where a device is bound to the group. It makes groups by a
    // meeting of their members alone, so the others have nothing to do.
    py::class_<ProcessGroupTutti, c10d::Backend, c10::intrusive_ptr<ProcessGroupTutti>>(m, "ProcessGroupTutti")
        .def("perform_nocolor_split", [](ProcessGroupTutti &, const py::object &) {});
#endif
    m.def("shutdown_all", &Group::shutdown_all, py::arg("failure"), py::call_guard<py::gil_scoped_release>());
    m.def("has_joined", &Group::has_joined); // this process, or it tried
    m.def("pass_over", &pass_over);
    m.def("log_to", [](const py::object &write) { log_to(write.ptr()); });
    m.def("end_log", &end_log);
    py::class_<Used>(m, "Used").def("restore", [](Used &used) { use_symmetric_memory(std::move(used.before)); });
    m.def("use_symmetric_memory",
          [](const c10::intrusive_ptr<Base> &backend) { return Used{use_symmetric_memory(group_of(backend))}; });
    m.def(
        "is_symmetric",
        [](const c10::intrusive_ptr<Base> &backend, const at::Tensor &x) {
            return is_symmetric(*group_of(backend), x);
        },
        py::call_guard<py::gil_scoped_release>());
#if TUTTI_TORCH_NEWEST
    define_rounds(m);
#endif
#if TUTTI_TORCH_2
    m.def("define_rpc", [m]() mutable { define_rpc(m); });
#endif
#if !TUTTI_TORCH_2
    CommError::type = py::register_exception<CommError>(m, "DistBackendError", PyExc_RuntimeError).inc_ref().ptr();
#endif
}
