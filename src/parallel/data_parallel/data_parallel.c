/* tt_data_parallel(): a module that runs another one in several threads, each on a part of the batch. */
#include <tutti/data_parallel.h>

#include "autograd/leaf.h"
#include "base/args.h"
#include "base/error.h"
#include "nn/module.h"
#include "parallel/data_parallel/replicas.h"

#include <tutti/parallel.h>

#include <stdlib.h>

enum { MOST_REPLICAS = 1024 };

typedef struct data_parallel {
    tt__replica_crew *crew;
    int replicas;
    tt_module *module;         /* a child */
    tt__module_copies *copies; /* on other devices; or NULL */
} data_parallel;

static tt_status data_parallel_forward(tt_module *self, tt_tensor *const *in, int64_t in_count, tt_tensor **out,
                                       int64_t out_count) {
    const data_parallel *d = tt_module_user(self);
    tt_status status = d->copies ? tt__copies_give(d->copies) : TT_OK;
    if (!status)
        status = tt__replicas_forward(d->crew, d->replicas, d->module, d->copies, in, in_count, out, out_count);
    return status ? (tt__tensor_fail(status, "%s", tt_last_error()), status) : TT_OK;
}

static void data_parallel_destroy(tt_module *self) {
    data_parallel *d = tt_module_user(self);
    tt__replica_crew_unref(d->crew);
    tt__copies_free(d->copies);
    free(d);
}

static const tt_module_class data_parallel_class =
    TT_MODULE_CLASS(.name = "DataParallel", .forward_many = data_parallel_forward, .destroy = data_parallel_destroy);

/* Refuse wrappers in the module: threads of replicas can begin neither collectives nor replicas of their own. */
static tt_status check_replicable(tt_module *module, void *user) {
    (void)user;
    if (module->cls.wrapped || module->identity == &data_parallel_class)
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "tt_data_parallel: the module has a %s inside, which can't run in several "
                        "threads; wrap that one's module instead",
                        module->cls.name);
    return TT_OK;
}

static tt_status check_wrapping(const tt_data_parallel_args *a) {
    if (!a->module)
        return tt__fail_argument("tt_data_parallel: the module is NULL");
    if (a->replicas < 0 || a->replicas > MOST_REPLICAS)
        return tt__fail(TT_ERR_INVALID, "tt_data_parallel: expected 1 to %d replicas, or 0 for one a CPU, got %d",
                        MOST_REPLICAS, a->replicas);
    if (a->copy_count < 0 || a->copy_count >= MOST_REPLICAS || (a->copy_count && (!a->copies || a->replicas)))
        return tt__fail(TT_ERR_INVALID,
                        "tt_data_parallel: expected at most %d .copies, and .replicas or these, got %lld at %p and %d "
                        ".replicas",
                        MOST_REPLICAS - 1, (long long)a->copy_count, (const void *)a->copies, a->replicas);
    TT__TRY(tt__module_walk(a->module, check_replicable, NULL));
    const tt_named_tensors *parameters = tt_module_parameters(a->module);
    for (int64_t i = 0; parameters && i < parameters->count; i++)
        TT__TRY(tt__refuse_sparse_grad("tt_data_parallel", parameters->names[i], parameters->tensors[i]));
    return parameters ? TT_OK : tt_last_status();
}

static void free_given_copies(const tt_data_parallel_args *a) {
    for (int64_t i = 0; a->copies && i < a->copy_count; i++)
        if (a->copies[i] && !a->copies[i]->parent && a->copies[i] != a->module)
            tt_module_free(a->copies[i]);
}

/* `copies`: owned, also on failure. */
static tt_module *data_parallel_new(const tt_data_parallel_args *a, tt__module_copies *copies) {
    data_parallel *d = calloc(1, sizeof *d);
    if (!d) {
        tt__copies_free(copies);
        return tt__fail_null(TT_ERR_MEMORY, "tt_data_parallel: no memory for the wrapper");
    }
    d->replicas = copies ? copies->count : a->replicas ? a->replicas : tt_get_num_threads();
    d->module = a->module;
    d->copies = copies;
    d->crew = tt__replica_crew_new(d->replicas);
    tt_module *made = d->crew ? tt__module_new(&data_parallel_class, d) : NULL;
    if (!made) {
        tt__replica_crew_unref(d->crew);
        tt__copies_free(copies);
        free(d);
    }
    return made;
}

tt_module *tt_data_parallel_with(const tt_data_parallel_args *args, size_t size) {
    tt_data_parallel_args a;
    TT__ARGS_COPY(a, args, size);
    tt_status status = check_wrapping(&a);
    tt__module_copies *copies = NULL;
    if (status)
        free_given_copies(&a);
    else if (a.copy_count && !(copies = tt__copies_new(a.module, a.copies, 1 + a.copy_count)))
        status = tt_last_status();
    tt_module *made = status ? NULL : data_parallel_new(&a, copies);
    if (!made) {
        if (a.module && !a.module->parent && !a.module->freed)
            tt_module_free(a.module);
        return NULL;
    }
    if (tt_module_add_module(made, "module", a.module)) {
        tt_module_free(made);
        return NULL;
    }
    return made;
}

int tt_data_parallel_replica(void) { return tt__replica_of_thread().index; }

/* ---- the parts of it ---- */

int64_t tt_parallel_scatter(tt_tensor *x, int64_t replicas, tt_tensor **parts) {
    static const char who[] = "tt_parallel_scatter";
    for (int64_t r = 0; parts && r < replicas; r++)
        parts[r] = NULL;
    if (!x)
        return tt__tensor_first_error(who), -1;
    if (replicas < 1 || !parts)
        return tt__fail(TT_ERR_INVALID, "%s: expected at least 1 replica, and room for their parts, got %lld and %s",
                        who, (long long)replicas, parts ? "room" : "NULL"),
               -1;
    if (x->shape.ndim < 1)
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: expected x with a dimension to cut, got x %s", who, TT__DESCRIBE(x)),
               -1;
    int64_t rows, n = x->shape.dim[0], count = tt__chunk_count(n, replicas, &rows);
    for (int64_t r = 0; r < count; r++)
        if (!(parts[r] = tt_narrow(x, 0, r * rows, r + 1 < count ? rows : n - r * rows)))
            return -1;
    return count;
}

tt_tensor *tt_parallel_gather(tt_tensor *const *parts, int64_t count) {
    static const char who[] = "tt_parallel_gather";
    if (count < 1 || !parts)
        return tt__tensor_fail(TT_ERR_INVALID, "%s: expected at least 1 tensor, got %lld at %p", who, (long long)count,
                               (const void *)parts);
    for (int64_t i = 0; i < count; i++)
        if (!parts[i])
            return NULL;
    return parts[0]->shape.ndim ? tt_cat(parts, count, 0) : tt_stack(parts, count, 0);
}
