/* tutti/mesh.h: the ranks of a group as a grid with named dimensions, for programs that divide their work in several
 * ways at once: "dp" for copies of a model, "pp" for the stages of a pipeline, "tp" for parts of a layer.
 *
 * Ranks are numbered along the last dimension first, as PyTorch does: in a mesh {"dp", 2}, {"tp", 3} rank 4 has the
 * coordinates dp 1, tp 1. Each dimension has a group, of the ranks that differ in this coordinate only. A mesh knows no
 * tensors. One thread at a time. */
#ifndef TUTTI_MESH_H
#define TUTTI_MESH_H

#include <tutti/comm.h>

TT_BEGIN_DECLS

typedef struct tt_mesh tt_mesh;

#define TT_MESH_MAX_DIMS 8

typedef struct tt_mesh_dim {
    const char *name;
    int64_t size; /* or -1, for one dimension at most: the ranks divided by the other sizes */
} tt_mesh_dim;

typedef struct tt_init_device_mesh_args {
    tt_mesh **out;           /* required: receives the mesh */
    tt_group *group;         /* required: borrowed for the call, and for tt_mesh_flatten() */
    const tt_mesh_dim *dims; /* required: `count` of them, at most TT_MESH_MAX_DIMS; copied */
    int64_t count;           /* required */
    TT_OPTIONS;
    int64_t timeout_ms; /* of the making, and of the groups; 0 or less = the group's */
    const char *file;   /* the call site, which errors name; the macro fills it in */
    int line;
    char tt_end; /* not an option: see base.h */
} tt_init_device_mesh_args;

/* Lay the ranks of `group` out as a mesh, and make a group for each dimension. Collective. PyTorch:
 * torch.distributed.device_mesh.init_device_mesh.
 *   tt_init_device_mesh(&mesh, world, {"dp", 2}, {"tp", -1})
 * Success: *out is the caller's, freed by tt_mesh_free(). Errors, on all ranks alike: TT_ERR_MISMATCH names the first
 * dimension that ranks gave differently; TT_ERR_INVALID a name that is missing or comes twice, sizes below 1, sizes
 * whose product is not the number of ranks; those of tt_new_group(). */
TT_API TT_NODISCARD tt_status tt_init_device_mesh_with(const tt_init_device_mesh_args *args, size_t size);
#define TT_INIT_DEVICE_MESH_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_init_device_mesh(out_, group_, ...)                                                                      \
    tt_init_device_mesh_with(TT_CALL(tt_init_device_mesh_args, .out = TT_PLACE(tt_mesh *, out_), .group = (group_), \
                                     .dims = (tt_mesh_dim[]){__VA_ARGS__},                                          \
                                     .count = (int64_t)(sizeof((tt_mesh_dim[]){__VA_ARGS__}) / sizeof(tt_mesh_dim))))
#endif

/* Free a mesh. Its groups go with the last mesh that has them (tt_mesh_slice()); not collective, as
 * tt_destroy_process_group(). Wrappers and layers that use such a group can then only be freed. NULL is allowed. */
TT_API void tt_mesh_free(tt_mesh *mesh);

/* Abort every group of the mesh (tt_group_abort()). For a rank that has failed in one of them: ranks that wait for it
 * in another then learn why, and wrappers can be freed without waiting.
 *   if (train(...))
 *       tt_mesh_abort(mesh, tt_last_error());
 * `reason` may be NULL, and so may `mesh`. */
TT_API void tt_mesh_abort(tt_mesh *mesh, const char *reason);

/* The group along a dimension, borrowed; ranks in it are numbered by this coordinate. `name` may be NULL if there is
 * only one dimension. NULL: TT_ERR_NOT_FOUND, which lists the names. PyTorch: DeviceMesh.get_group. */
TT_API tt_group *tt_mesh_get_group(const tt_mesh *mesh, const char *name);

/* This rank's coordinate along a dimension; the number of ranks along it. `name` as above; in tt_mesh_size() NULL
 * stands for all dimensions together. -1, with an error: no such dimension. PyTorch: DeviceMesh.get_local_rank,
 * size. */
TT_API int tt_mesh_get_local_rank(const tt_mesh *mesh, const char *name);
TT_API int64_t tt_mesh_size(const tt_mesh *mesh, const char *name);

/* The number of dimensions; the name of one, valid while the mesh lives. 0 and NULL for no mesh or dimension. PyTorch:
 * ndim, mesh_dim_names. */
TT_API int64_t tt_mesh_ndim(const tt_mesh *mesh);
TT_API const char *tt_mesh_dim_name(const tt_mesh *mesh, int64_t dim);

/* Write this rank's coordinates to `out` (tt_mesh_ndim()). TT_ERR_INVALID an argument is NULL. PyTorch:
 * DeviceMesh.get_coordinate. */
TT_API TT_NODISCARD tt_status tt_mesh_get_coordinate(const tt_mesh *mesh, int64_t *out);

/* A mesh of some of the dimensions, with the ranks that share this rank's other coordinates. Makes no groups, but uses
 * those of `mesh`. The caller frees it by tt_mesh_free(), before or after `mesh`. PyTorch: mesh["dp", "tp"].
 *   tt_mesh *inner = tt_mesh_slice(mesh, "dp", "tp");
 * NULL: TT_ERR_NOT_FOUND a name that it lacks; TT_ERR_INVALID one that comes twice, or none; TT_ERR_MEMORY. */
TT_API tt_mesh *tt_mesh_slice_with(const tt_mesh *mesh, const char *const *names, int64_t count);
#ifndef __cplusplus
#define tt_mesh_slice(mesh_, ...)                              \
    tt_mesh_slice_with((mesh_), (const char *[]){__VA_ARGS__}, \
                       (int64_t)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(const char *)))
#endif

/* Make a mesh of one dimension, called `name`, with all ranks of this mesh, in their order, and the timeout of the
 * first mesh. Collective over the group that the first mesh was made of: all ranks flatten the same dimensions in the
 * same order. Errors: as tt_init_device_mesh(). PyTorch: DeviceMesh._flatten.
 *   tt_mesh_flatten(&flat, inner, "dp_tp")
 *   tt_group *both = tt_mesh_get_group(flat, NULL); */
TT_API TT_NODISCARD tt_status tt_mesh_flatten(tt_mesh **out, const tt_mesh *mesh, const char *name);

TT_END_DECLS
#endif
