/* A grid of ranks. Rank = sum over dimensions of coordinate times stride; the last dimension's stride is 1. Ranks of
 * one dimension's group differ only in that coordinate; the rest of their rank is the color of the split. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/args.h"
#include "base/error.h"
#include "reducer/text_agreement.h"

#include <tutti/mesh.h>

/* One dimension: shared by the meshes that have it. */
typedef struct axis {
    int refs;
    int64_t size, coordinate;
    int64_t offset; /* what the coordinate adds to this rank's number */
    tt_group *group;
    char name[];
} axis;

struct tt_mesh {
    tt_group *root;     /* borrowed; has all ranks of the mesh */
    int64_t timeout_ms; /* of the groups */
    int64_t ndim;
    axis *dims[TT_MESH_MAX_DIMS];
};

static void axis_unref(axis *a) {
    if (!a || --a->refs > 0)
        return;
    tt_destroy_process_group(a->group);
    free(a);
}

void tt_mesh_free(tt_mesh *mesh) {
    for (int64_t d = 0; mesh && d < mesh->ndim; d++)
        axis_unref(mesh->dims[d]);
    free(mesh);
}

void tt_mesh_abort(tt_mesh *mesh, const char *reason) {
    tt__saved_error saved; /* `reason` may be this thread's last error, which the following calls change */
    char text[TT__ERROR_TEXT_SIZE];
    snprintf(text, sizeof text, "%s", reason ? reason : "");
    tt__error_save(&saved);
    for (int64_t d = 0; mesh && d < mesh->ndim; d++)
        tt_group_abort(mesh->dims[d]->group, reason ? text : NULL);
    tt__error_restore(&saved);
}

static tt_mesh *mesh_new(tt_group *root, int64_t timeout_ms) {
    tt_mesh *mesh = calloc(1, sizeof *mesh);
    if (!mesh)
        return tt__fail_null(TT_ERR_MEMORY, "tt_mesh: no memory for a mesh");
    mesh->root = root;
    mesh->timeout_ms = timeout_ms;
    return mesh;
}

/* ---- making ---- */

/* Options of the groups that a call makes. */
typedef struct making {
    const char *who;
    int64_t timeout_ms;
    const char *file;
    int line;
} making;

/* Add the dimension to the mesh, with its group. Collective over the root. */
static tt_status add_axis(tt_mesh *mesh, const char *name, const axis *like, const making *m) {
    axis *a = malloc(sizeof *a + strlen(name) + 1);
    if (!a)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for dimension \"%s\"", m->who, name);
    *a = *like;
    a->refs = 1;
    stpcpy(a->name, name);
    mesh->dims[mesh->ndim++] = a;
    tt_group_split_args args = {.out = &a->group,
                                .group = mesh->root,
                                .color = (int)(tt_get_rank(mesh->root) - a->offset),
                                .key = (int)a->coordinate,
                                .timeout_ms = m->timeout_ms,
                                .file = m->file ? m->file : m->who,
                                .line = m->line};
    return tt_group_split_with(&args, offsetof(tt_group_split_args, tt_end))
               ? tt__fail_prefix("%s: dimension \"%s\"", m->who, name)
               : TT_OK;
}

static tt_status agree_on_dims(const tt_init_device_mesh_args *a, const char *who) {
    char *texts[TT_MESH_MAX_DIMS + 1] = {NULL};
    int64_t count = a->dims && a->count > 0 ? a->count : 0,
            described = count < TT_MESH_MAX_DIMS ? count : TT_MESH_MAX_DIMS;
    tt_status status = TT_OK;
    if (asprintf(&texts[0], "a mesh of %" PRId64 " dimensions", a->count) < 0)
        texts[0] = NULL, status = tt__fail(TT_ERR_MEMORY, "%s: no memory to compare with other ranks", who);
    for (int64_t d = 0; d < described && !status; d++)
        if (asprintf(&texts[d + 1], "dimension %" PRId64 " \"%s\" of %" PRId64, d,
                     a->dims[d].name ? a->dims[d].name : "", a->dims[d].size) < 0)
            texts[d + 1] = NULL, status = tt__fail(TT_ERR_MEMORY, "%s: no memory to compare with other ranks", who);
    if (!status)
        status = tt__agree_on(a->group, who, (const char *const *)texts, (size_t)described + 1);
    for (int64_t d = 0; d <= described; d++)
        free(texts[d]);
    return status;
}

static tt_status check_dim_name(const char *who, const tt_mesh_dim *dims, int64_t d) {
    if (!dims[d].name || !*dims[d].name)
        return tt__fail(TT_ERR_INVALID, "%s: dimension %" PRId64 " has no name", who, d);
    for (int64_t before = 0; before < d; before++)
        if (strcmp(dims[before].name, dims[d].name) == 0)
            return tt__fail(TT_ERR_INVALID, "%s: dimensions %" PRId64 " and %" PRId64 " have one name, \"%s\"", who,
                            before, d, dims[d].name);
    return TT_OK;
}

/* "2 x 3" */
static const char *sizes_text(const tt_mesh_dim *dims, int64_t count, char *out, size_t size) {
    size_t used = 0;
    out[0] = '\0';
    for (int64_t d = 0; d < count && used < size; d++)
        used += (size_t)snprintf(out + used, size - used, "%s%" PRId64, d ? " x " : "", dims[d].size);
    return out;
}

/* Check the dimensions, and compute the size that was left open: sizes (count). */
static tt_status resolve_sizes(const char *who, const tt_mesh_dim *dims, int64_t count, int64_t ranks, int64_t *sizes) {
    int64_t product = 1, open = -1;
    char text[256];
    if (count < 1 || count > TT_MESH_MAX_DIMS || !dims)
        return tt__fail(TT_ERR_INVALID, "%s: expected 1 to %d dimensions, got %" PRId64, who, TT_MESH_MAX_DIMS,
                        dims ? count : 0);
    for (int64_t d = 0; d < count; d++) {
        TT__TRY(check_dim_name(who, dims, d));
        sizes[d] = dims[d].size;
        if (sizes[d] == -1 && open < 0)
            open = d;
        else if (sizes[d] < 1)
            return tt__fail(TT_ERR_INVALID,
                            "%s: dimension \"%s\": expected a size of at least 1, or -1 in one dimension, got %" PRId64,
                            who, dims[d].name, sizes[d]);
        else /* a larger product is wrong anyway, and could overflow */
            product = product > ranks || sizes[d] > ranks ? ranks + 1 : product * sizes[d];
    }
    bool fits = open < 0 ? product == ranks : product <= ranks && ranks % product == 0;
    if (!fits)
        return tt__fail(TT_ERR_INVALID, "%s: a mesh of %s does not fit the %" PRId64 " ranks of the group", who,
                        sizes_text(dims, count, text, sizeof text), ranks);
    if (open >= 0)
        sizes[open] = ranks / product;
    return TT_OK;
}

static tt_status fill_mesh(tt_mesh *mesh, const tt_init_device_mesh_args *a, const making *m) {
    int64_t sizes[TT_MESH_MAX_DIMS] = {0}, stride = tt_get_world_size(a->group);
    TT__TRY(agree_on_dims(a, m->who));
    TT__TRY(resolve_sizes(m->who, a->dims, a->count, stride, sizes));
    for (int64_t d = 0; d < a->count && sizes[d] > 0; d++) {
        stride /= sizes[d];
        int64_t coordinate = tt_get_rank(a->group) / stride % sizes[d];
        const axis like = {.size = sizes[d], .coordinate = coordinate, .offset = coordinate * stride};
        TT__TRY(add_axis(mesh, a->dims[d].name, &like, m));
    }
    return TT_OK;
}

static tt_status mesh_done(tt_mesh **out, tt_mesh *mesh, tt_status status) {
    if (status)
        tt_mesh_free(mesh);
    else
        *out = mesh;
    return status;
}

tt_status tt_init_device_mesh_with(const tt_init_device_mesh_args *args, size_t size) {
    static const char who[] = "tt_init_device_mesh";
    tt_init_device_mesh_args a;
    TT__ARGS_COPY(a, args, size);
    if (!a.out)
        return tt__fail(TT_ERR_INVALID, "%s: `out` is NULL", who);
    *a.out = NULL;
    if (!a.group)
        return tt__fail(TT_ERR_INVALID, "%s: `group` is NULL", who);
    const tt__joint_call call = tt__joint_call_begin(a.group, who);
    tt_mesh *mesh = mesh_new(a.group, a.timeout_ms);
    tt_status status = mesh ? fill_mesh(mesh, &a, &(making){who, a.timeout_ms, a.file, a.line}) : tt_last_status();
    return mesh_done(a.out, mesh, tt__joint_call_end(&call, status));
}

/* Compare names, as two dimensions may have one size, and their order, which numbers the ranks. */
static tt_status agree_to_flatten(const tt_mesh *mesh, const char *who, const char *name) {
    char *texts[TT_MESH_MAX_DIMS + 1] = {NULL};
    int made = asprintf(&texts[0], "a dimension \"%s\" made of %" PRId64, name, mesh->ndim);
    if (made < 0)
        texts[0] = NULL;
    for (int64_t d = 0; d < mesh->ndim && made >= 0; d++) {
        const axis *a = mesh->dims[d];
        made = asprintf(&texts[d + 1], "dimension %" PRId64 " \"%s\" of %" PRId64, d, a->name, a->size);
        if (made < 0)
            texts[d + 1] = NULL;
    }
    tt_status status = made < 0 ? tt__fail(TT_ERR_MEMORY, "%s: no memory to compare with other ranks", who)
                                : tt__agree_on(mesh->root, who, (const char *const *)texts, (size_t)mesh->ndim + 1);
    for (int64_t d = 0; d <= mesh->ndim; d++)
        free(texts[d]);
    return status;
}

tt_status tt_mesh_flatten(tt_mesh **out, const tt_mesh *mesh, const char *name) {
    static const char who[] = "tt_mesh_flatten";
    if (!out)
        return tt__fail(TT_ERR_INVALID, "%s: `out` is NULL", who);
    *out = NULL;
    if (!mesh)
        return tt__fail_argument("%s: the mesh is NULL", who);
    const tt__joint_call call = tt__joint_call_begin(mesh->root, who);
    if (!name || !*name)
        return tt__joint_call_end(&call, tt__fail(TT_ERR_INVALID, "%s: the new dimension has no name", who));
    axis joined = {.size = 1};
    for (int64_t d = 0; d < mesh->ndim; d++) {
        const axis *a = mesh->dims[d];
        joined.size *= a->size;
        joined.coordinate = joined.coordinate * a->size + a->coordinate;
        joined.offset += a->offset;
    }
    tt_mesh *flat = mesh_new(mesh->root, mesh->timeout_ms);
    tt_status status = flat ? agree_to_flatten(mesh, who, name) : tt_last_status();
    if (!status)
        status = add_axis(flat, name, &joined, &(making){.who = who, .timeout_ms = mesh->timeout_ms});
    return mesh_done(out, flat, tt__joint_call_end(&call, status));
}

/* ---- looking ---- */

static axis *find_axis(const tt_mesh *mesh, const char *name) {
    for (int64_t d = 0; d < mesh->ndim; d++)
        if (strcmp(mesh->dims[d]->name, name) == 0)
            return mesh->dims[d];
    return NULL;
}

/* Find the dimension called `name`; `name` NULL: the only one. NULL, with an error that begins with `who`: none. */
static axis *axis_named(const char *who, const tt_mesh *mesh, const char *name) {
    if (!mesh) {
        tt__fail_argument("%s: the mesh is NULL", who);
        return NULL;
    }
    if (!name && mesh->ndim == 1)
        return mesh->dims[0];
    axis *found = name ? find_axis(mesh, name) : NULL;
    if (found)
        return found;
    char names[256] = "";
    size_t used = 0;
    for (int64_t d = 0; d < mesh->ndim && used < sizeof names; d++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s\"%s\"", d ? ", " : "", mesh->dims[d]->name);
    return tt__fail_null(TT_ERR_NOT_FOUND, "%s: the mesh has no dimension \"%s\"; it has %s", who, name ? name : "",
                         names);
}

tt_group *tt_mesh_get_group(const tt_mesh *mesh, const char *name) {
    const axis *a = axis_named("tt_mesh_get_group", mesh, name);
    return a ? a->group : NULL;
}

int tt_mesh_get_local_rank(const tt_mesh *mesh, const char *name) {
    const axis *a = axis_named("tt_mesh_get_local_rank", mesh, name);
    return a ? (int)a->coordinate : -1;
}

int64_t tt_mesh_size(const tt_mesh *mesh, const char *name) {
    int64_t size = 1;
    if (mesh && !name) {
        for (int64_t d = 0; d < mesh->ndim; d++)
            size *= mesh->dims[d]->size;
        return size;
    }
    const axis *a = axis_named("tt_mesh_size", mesh, name);
    return a ? a->size : -1;
}

int64_t tt_mesh_ndim(const tt_mesh *mesh) { return mesh ? mesh->ndim : 0; }

const char *tt_mesh_dim_name(const tt_mesh *mesh, int64_t dim) {
    return mesh && dim >= 0 && dim < mesh->ndim ? mesh->dims[dim]->name : NULL;
}

tt_status tt_mesh_get_coordinate(const tt_mesh *mesh, int64_t *out) {
    if (!mesh || !out)
        return tt__fail(TT_ERR_INVALID, "tt_mesh_get_coordinate: %s is NULL", mesh ? "`out`" : "the mesh");
    for (int64_t d = 0; d < mesh->ndim; d++)
        out[d] = mesh->dims[d]->coordinate;
    return TT_OK;
}

/* ---- parts ---- */

static tt_status add_slices(tt_mesh *part, const char *who, const tt_mesh *mesh, const char *const *names,
                            int64_t count) {
    if (!names || count < 1 || count > mesh->ndim)
        return tt__fail(TT_ERR_INVALID, "%s: expected 1 to %" PRId64 " names of dimensions, got %" PRId64, who,
                        mesh->ndim, names ? count : 0);
    for (int64_t i = 0; i < count; i++) {
        axis *a = axis_named(who, mesh, names[i] ? names[i] : "");
        if (!a)
            return tt_last_status();
        if (find_axis(part, a->name))
            return tt__fail(TT_ERR_INVALID, "%s: dimension \"%s\" comes twice", who, a->name);
        a->refs++;
        part->dims[part->ndim++] = a;
    }
    return TT_OK;
}

tt_mesh *tt_mesh_slice_with(const tt_mesh *mesh, const char *const *names, int64_t count) {
    static const char who[] = "tt_mesh_slice";
    if (!mesh) {
        tt__fail_argument("%s: the mesh is NULL", who);
        return NULL;
    }
    tt_mesh *part = mesh_new(mesh->root, mesh->timeout_ms);
    tt_mesh *made = NULL;
    return part && !mesh_done(&made, part, add_slices(part, who, mesh, names, count)) ? made : NULL;
}
