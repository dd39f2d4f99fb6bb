// The RPC agent as Python sees it. PyTorch 1.13 can't have agents of others, so its module is built without these
// files.
#include "rpc_faults.hpp"

#include <torch/csrc/utils/pybind.h>

#include <pybind11/stl.h>

namespace tutti_torch {
namespace {

std::shared_ptr<AgentTutti> create_rpc_agent(const c10::intrusive_ptr<c10d::Store> &store, const std::string &name,
                                             int rank, int world_size, int threads, float timeout) {
    return std::make_shared<AgentTutti>(store, AgentOptions{name, rank, world_size, threads, timeout});
}

// `failing`: types of requests, which fail `times` times each; `delays`: of types, in seconds.
std::shared_ptr<AgentTutti> create_faulty_rpc_agent(const c10::intrusive_ptr<c10d::Store> &store,
                                                    const std::string &name, int rank, int world_size, int threads,
                                                    float timeout, std::set<int> failing, int times,
                                                    std::unordered_map<int, float> delays) {
    return std::make_shared<FaultyAgent>(store, AgentOptions{name, rank, world_size, threads, timeout},
                                         Faults{std::move(failing), times, std::move(delays)});
}

} // namespace

void define_rpc(py::module_ &m);

void define_rpc(py::module_ &m) {
    // Its base class is defined by a part of PyTorch that Python imports before.
    py::class_<AgentTutti, trpc::RpcAgent, std::shared_ptr<AgentTutti>>(m, "RpcAgent")
        .def("get_worker_info", [](const AgentTutti &agent) { return agent.getWorkerInfo(); })
        .def(
            "get_worker_info",
            [](const AgentTutti &agent, const std::string &name) { return agent.getWorkerInfo(name); },
            py::call_guard<py::gil_scoped_release>())
        .def(
            "get_worker_info", [](const AgentTutti &agent, trpc::worker_id_t id) { return agent.getWorkerInfo(id); },
            py::call_guard<py::gil_scoped_release>())
        .def_property_readonly("is_static_group", &AgentTutti::is_static_group);
    m.def("create_rpc_agent", &create_rpc_agent, py::call_guard<py::gil_scoped_release>());
    m.def("create_faulty_rpc_agent", &create_faulty_rpc_agent, py::call_guard<py::gil_scoped_release>());
    m.def("begin_rpc_call", &AgentTutti::begin_call);
    m.def("finish_rpc_call", &AgentTutti::finish_call, py::call_guard<py::gil_scoped_release>());
    m.def("leave_rpc", &AgentTutti::shutdown_current, py::call_guard<py::gil_scoped_release>());
}

} // namespace tutti_torch
