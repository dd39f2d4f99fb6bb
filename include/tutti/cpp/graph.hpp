/* tutti/cpp/graph.hpp: steps that a device captures once and repeats. */
#ifndef TUTTI_CPP_GRAPH_HPP
#define TUTTI_CPP_GRAPH_HPP

#include <tutti/cpp/autograd.hpp>
#include <tutti/graph.h>

namespace tutti {

class graph {
  public:
    graph() = default;
    explicit graph(tt_graph *owned) : graph_(check(owned)) {}
    tt_graph *get() const noexcept { return graph_.get(); }
    void replay() { check(tt_graph_replay(get())); }

  private:
    detail::handle<tt_graph, tt_graph_free> graph_;
};

/* Run `step` `warmup` times, then capture it. It takes nothing; what it throws is thrown here.
 *   graph g = graph_capture(device("cuda"), 3, [&] { ... }); */
template <class F> graph graph_capture(const tt_device *device, int warmup, F &&step) {
    using function = std::remove_reference_t<F>;
    return graph(tt_graph_capture(
        device, warmup,
        [](void *user) {
            return detail::guarded([&] {
                detail::in_scope_of_c scope;
                (*static_cast<function *>(user))();
            });
        },
        const_cast<void *>(static_cast<const void *>(std::addressof(step)))));
}

} // namespace tutti

#endif
