/* tutti/cpp/mesh.hpp: the ranks of a group as a grid with named dimensions. */
#ifndef TUTTI_CPP_MESH_HPP
#define TUTTI_CPP_MESH_HPP

#include <tutti/cpp/comm.hpp>
#include <tutti/mesh.h>

namespace tutti {

struct mesh_dim {
    std::string name;
    std::int64_t size = -1; /* -1, of one dimension at most: what the others leave */
};

class mesh {
  public:
    explicit mesh(tt_mesh *owned) : mesh_(check(owned)) {}
    tt_mesh *get() const noexcept { return mesh_.get(); }

    /* Lent. Without a name: of the only dimension; size() of all together. */
    tutti::group group(const std::string &name) const {
        return tutti::group::lent(check(tt_mesh_get_group(get(), name.c_str())));
    }
    tutti::group group() const { return tutti::group::lent(check(tt_mesh_get_group(get(), nullptr))); }
    int local_rank(const std::string &name) const {
        return int(at_least_0(tt_mesh_get_local_rank(get(), name.c_str())));
    }
    int local_rank() const { return int(at_least_0(tt_mesh_get_local_rank(get(), nullptr))); }
    std::int64_t size(const std::string &name) const { return at_least_0(tt_mesh_size(get(), name.c_str())); }
    std::int64_t size() const { return tt_mesh_size(get(), nullptr); }

    std::vector<std::string> dim_names() const {
        std::vector<std::string> names;
        for (std::int64_t d = 0; d < tt_mesh_ndim(get()); d++)
            names.emplace_back(tt_mesh_dim_name(get(), d));
        return names;
    }
    std::vector<std::int64_t> coordinate() const {
        std::vector<std::int64_t> at(std::size_t(tt_mesh_ndim(get())));
        check(tt_mesh_get_coordinate(get(), at.data()));
        return at;
    }

    /* mesh["dp", "tp"] / one dimension made of all. */
    mesh slice(const std::vector<std::string> &names) const {
        std::vector<const char *> texts = detail::c_strings(names);
        return mesh(tt_mesh_slice_with(get(), texts.data(), std::int64_t(texts.size())));
    }
    mesh flatten(const std::string &name) const {
        tt_mesh *flat = nullptr;
        check(tt_mesh_flatten(&flat, get(), name.c_str()));
        return mesh(flat);
    }
    void abort(const std::string &reason) { tt_mesh_abort(get(), reason.c_str()); }

  private:
    static std::int64_t at_least_0(std::int64_t value) {
        check(value < 0 ? tt_last_status() : TT_OK);
        return value;
    }
    detail::handle<tt_mesh, tt_mesh_free> mesh_;
};

/* tutti::mesh grid = tutti::init_device_mesh(world, {{"dp", 2}, {"tp"}}); */
inline mesh init_device_mesh(const group &g, const std::vector<mesh_dim> &dims, std::int64_t timeout_ms = 0,
                             site where = site::here()) {
    std::vector<tt_mesh_dim> list;
    for (const mesh_dim &dim : dims)
        list.push_back({dim.name.c_str(), dim.size});
    tt_mesh *made = nullptr;
    tt_init_device_mesh_args a = TT_INIT_DEVICE_MESH_ARGS_INIT;
    a.out = &made, a.group = g.get(), a.dims = list.data(), a.count = std::int64_t(list.size());
    a.timeout_ms = timeout_ms, a.file = where.file, a.line = where.line;
    check(detail::call(tt_init_device_mesh_with, a));
    return mesh(made);
}

} // namespace tutti

#endif
