// The rounds of a job under `tutti run`, for tutti_torch.elastic.
#include "errors.hpp"
#include "interpreter.hpp"
#include "process_group.hpp"

#if TUTTI_TORCH_NEWEST

#include "elastic/job_rounds.h"

#include <torch/csrc/utils/pybind.h>

#include <pybind11/chrono.h>

namespace tutti_torch {
namespace {

// Begun by the process of a rank, once. Without a launcher that tells of rounds it is none.
class Rounds {
  public:
    Rounds(int rank, int world) { check(tt__job_rounds_begin(&rounds_, rank, world, &first)); }
    ~Rounds() { tt__job_rounds_end(rounds_); }
    Rounds(const Rounds &) = delete;
    Rounds &operator=(const Rounds &) = delete;

    bool are_told() const { return rounds_; }
    bool wanted() { return rounds_ && tt__job_rounds_wanted(rounds_); }

    // `because`: the error for which a round is wanted.
    tt__job_place next(const std::string &because, std::chrono::milliseconds wait) {
        tt__job_place place = {};
        tt_ignore(tt_fail(TT_ERR_PEER, "%s", because.c_str()));
        WithoutGil unlocked;
        check(tt__job_rounds_next(rounds_, wait.count(), &place));
        return place;
    }

    void join(const c10::intrusive_ptr<c10d::Backend> &backend, const c10::intrusive_ptr<c10d::Store> &store, int rank,
              int world, std::chrono::milliseconds timeout) {
        auto *ours = dynamic_cast<ProcessGroupTutti *>(backend.get());
        if (!ours)
            refuse("elastic: expected a process group of the back end tutti, got one of " + backend->getBackendName());
        WithoutGil unlocked;
        if (rounds_)
            tt__job_rounds_joining(rounds_);
        struct Joined {
            tt__job_rounds *rounds;
            bool well = false;
            ~Joined() {
                if (rounds)
                    tt__job_rounds_joined(rounds, well);
            }
        } joined{rounds_};
        ours->meet(store, rank, world, timeout, rounds_);
        joined.well = true;
    }

    int first = 0; // the round in which the process begins

  private:
    tt__job_rounds *rounds_ = nullptr;
};

} // namespace

void define_rounds(py::module_ &m) {
    py::class_<tt__job_place>(m, "Place")
        .def_readonly("round", &tt__job_place::round)
        .def_readonly("rank", &tt__job_place::rank)
        .def_readonly("world", &tt__job_place::world)
        .def_readonly("port", &tt__job_place::port)
        .def_property_readonly("host", [](const tt__job_place &place) { return std::string(place.host); })
        .def_property_readonly("reason", [](const tt__job_place &place) { return std::string(place.reason); });
    py::class_<Rounds>(m, "Rounds")
        .def(py::init<int, int>(), py::arg("rank"), py::arg("world"))
        .def_readonly("first", &Rounds::first)
        .def_property_readonly("are_told", &Rounds::are_told)
        .def("wanted", &Rounds::wanted)
        .def("next", &Rounds::next, py::arg("because"), py::arg("wait"))
        .def("join", &Rounds::join, py::arg("backend"), py::arg("store"), py::arg("rank"), py::arg("world"),
             py::arg("timeout"));
}

} // namespace tutti_torch

#endif
