/* The parts of a training program's state that an elastic job keeps: modules, optimizers, generators, loaders. Each is
 * saved as a list of named tensors. */
#include "base/args.h"
#include "base/error.h"
#include "data/loader/loader.h"
#include "parallel/ddp/ddp.h"
#include "parallel/sync_batch_norm.h"
#include "tensor/core/tensor.h"
#include "tensor/shape/copy.h"

#include <tutti/elastic.h>
#include <tutti/elastic_training.h>
#include <tutti/tensor.h>

#include <stdlib.h>
#include <string.h>

/* ---- lists of named tensors as bytes, from one process to another of the same program: the number of tensors, then of
 * each its name with the NUL at its end, a head, and its elements ---- */

typedef struct named_copy {
    tt_named_tensors list; /* of tensors that belong to the scope they were read in */
    const char **names;
    tt_tensor **tensors;
} named_copy;

typedef struct tensor_head {
    int64_t dtype, dims, size[TT_MAX_DIMS];
    uint64_t bytes;
} tensor_head;

static tt_status named_write_one(tt_elastic_writer *writer, const char *name, const tt_tensor *x) {
    tensor_head head = {.dtype = tt_tensor_dtype(x), .dims = tt_tensor_dim(x)};
    tt__host_copy elements;
    for (int d = 0; d < head.dims; d++)
        head.size[d] = tt_tensor_size(x, d);
    if (tt__host_copy_make(&elements, x))
        return tt__fail_prefix("\"%s\"", name);
    head.bytes = elements.size;
    tt_elastic_write(writer, name, strlen(name) + 1);
    tt_elastic_write(writer, &head, sizeof head);
    tt_elastic_write(writer, elements.data, elements.size);
    tt__host_copy_free(&elements);
    return TT_OK;
}

/* Write names, element types, shapes and elements. */
static tt_status named_write(tt_elastic_writer *writer, const tt_named_tensors *list) {
    if (!list)
        return tt_last_status();
    tt_elastic_write(writer, &list->count, sizeof list->count);
    for (int64_t i = 0; i < list->count; i++)
        TT__TRY(named_write_one(writer, list->names[i], list->tensors[i]));
    return TT_OK;
}

/* ---- reading ---- */

typedef struct bytes_left {
    const char *at;
    size_t size;
} bytes_left;

static bool take_named(bytes_left *left, void *to, size_t size) {
    if (left->size < size)
        return false;
    if (to)
        memcpy(to, left->at, size);
    left->at += size;
    left->size -= size;
    return true;
}

static tt_status fail_named(void) {
    return tt__fail(TT_ERR_FORMAT, "the copy of another rank's tensors makes no sense");
}

/* The bytes of a tensor with this head. UINT64_MAX: no tensor can have this head. */
static uint64_t bytes_of_head(const tensor_head *head) {
    size_t each = head->dtype >= 0 && head->dtype <= TT_BOOL ? tt_dtype_size((tt_dtype)head->dtype) : 0;
    uint64_t n = each;
    if (!each || head->dims < 0 || head->dims > TT_MAX_DIMS)
        return UINT64_MAX;
    for (int d = 0; d < head->dims; d++)
        if (head->size[d] < 0 || __builtin_mul_overflow(n, (uint64_t)head->size[d], &n))
            return UINT64_MAX;
    return n;
}

static tt_status named_read_one(named_copy *copy, bytes_left *left) {
    tensor_head head;
    const char *name = left->at;
    const char *end = left->size ? memchr(name, 0, left->size) : NULL;
    if (!end || !take_named(left, NULL, (size_t)(end - name) + 1) || !take_named(left, &head, sizeof head) ||
        head.bytes != bytes_of_head(&head) || head.bytes > left->size)
        return fail_named();
    tt_shape shape = {.ndim = (int)head.dims};
    memcpy(shape.dim, head.size, sizeof shape.dim);
    tt_tensor *x = (tt_from_data)(left->at, shape, (tt_dtype)head.dtype);
    if (!x)
        return tt_last_status();
    take_named(left, NULL, (size_t)head.bytes);
    copy->names[copy->list.count] = name;
    copy->tensors[copy->list.count++] = x;
    return TT_OK;
}

/* Read a list at *data, and move *data and *size behind it. named_copy_free() must follow, also after a failure.
 * TT_ERR_FORMAT: there is no list. */
static tt_status named_read(named_copy *copy, const void **data, size_t *size) {
    bytes_left left = {*data, *size};
    int64_t count;
    *copy = (named_copy){.list.size = sizeof copy->list};
    if (!take_named(&left, &count, sizeof count) || count < 0 || (uint64_t)count > left.size)
        return fail_named();
    copy->names = calloc((size_t)count + 1, sizeof *copy->names);
    copy->tensors = calloc((size_t)count + 1, sizeof *copy->tensors);
    if (!copy->names || !copy->tensors)
        return tt__fail(TT_ERR_MEMORY, "no memory for a list of %lld tensors", (long long)count);
    copy->list.names = copy->names;
    copy->list.tensors = copy->tensors;
    while (copy->list.count < count)
        TT__TRY(named_read_one(copy, &left));
    *data = left.at;
    *size = left.size;
    return TT_OK;
}

static void named_copy_free(named_copy *copy) {
    free(copy->names);
    free(copy->tensors);
    *copy = (named_copy){0};
}

/* ---- what has a state dict ---- */

typedef struct dict_part {
    void *of;
    const tt_named_tensors *(*state_dict)(void *of);
    tt_status (*load_state_dict)(void *of, const tt_named_tensors *state);
} dict_part;

#define DICT_KIND(kind)                                                                         \
    static const tt_named_tensors *kind##_dict(void *of) { return tt_##kind##_state_dict(of); } \
    static tt_status kind##_load_dict(void *of, const tt_named_tensors *state) {                \
        return tt_##kind##_load_state_dict(of, state);                                          \
    }
DICT_KIND(optimizer)
DICT_KIND(lr_scheduler)
DICT_KIND(grad_scaler)
DICT_KIND(ema)

static tt_status dict_save(void *user, tt_elastic_writer *writer) {
    const dict_part *p = user;
    return named_write(writer, p->state_dict(p->of));
}

static tt_status dict_load(void *user, const void *data, size_t size) {
    TT_AUTO_SCOPE;
    const dict_part *p = user;
    named_copy copy;
    tt_status status = named_read(&copy, &data, &size);
    if (!status)
        status = p->load_state_dict(p->of, &copy.list);
    named_copy_free(&copy);
    return status;
}

static tt_status add_dict(const char *who, tt_elastic *elastic, const char *name, dict_part part) {
    static const tt_elastic_part_class cls = {.save = dict_save, .load = dict_load, .destroy = free};
    if (!elastic || !name || !part.of)
        return tt__fail_argument("%s: %s is NULL", who, !elastic ? "`elastic`" : !name ? "`name`" : "what to add");
    dict_part *p = malloc(sizeof *p);
    if (!p)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for \"%s\"", who, name);
    *p = part;
    return tt_elastic_add_part(elastic, name, &cls, p);
}

tt_status tt_elastic_add_optimizer(tt_elastic *elastic, const char *name, tt_optimizer *optimizer) {
    return add_dict("tt_elastic_add_optimizer", elastic, name,
                    (dict_part){optimizer, optimizer_dict, optimizer_load_dict});
}

tt_status tt_elastic_add_lr_scheduler(tt_elastic *elastic, const char *name, tt_lr_scheduler *scheduler) {
    return add_dict("tt_elastic_add_lr_scheduler", elastic, name,
                    (dict_part){scheduler, lr_scheduler_dict, lr_scheduler_load_dict});
}

tt_status tt_elastic_add_grad_scaler(tt_elastic *elastic, const char *name, tt_grad_scaler *scaler) {
    return add_dict("tt_elastic_add_grad_scaler", elastic, name,
                    (dict_part){scaler, grad_scaler_dict, grad_scaler_load_dict});
}

tt_status tt_elastic_add_ema(tt_elastic *elastic, const char *name, tt_ema *ema) {
    return add_dict("tt_elastic_add_ema", elastic, name, (dict_part){ema, ema_dict, ema_load_dict});
}

/* ---- generators ---- */

static tt_status generator_save(void *user, tt_elastic_writer *writer) {
    TT_AUTO_SCOPE;
    static const char *const names[] = {"state"};
    tt_tensor *state = tt_generator_get_state(user);
    return state ? named_write(writer, TT_NAMED_TENSORS(1, names, &state)) : tt_last_status();
}

static tt_status generator_load(void *user, const void *data, size_t size) {
    TT_AUTO_SCOPE;
    named_copy copy;
    tt_status status = named_read(&copy, &data, &size);
    if (!status)
        status = tt_generator_set_state(user, tt_named_tensors_find(&copy.list, "state"));
    named_copy_free(&copy);
    return status;
}

tt_status tt_elastic_add_generator(tt_elastic *elastic, const char *name, tt_generator *generator) {
    static const tt_elastic_part_class cls = {.save = generator_save, .load = generator_load};
    return tt_elastic_add_part(elastic, name, &cls, generator);
}

/* ---- modules ---- */

typedef struct module_part {
    tt_module *module;
    tt_module *wrapper;   /* NULL: none, or it was freed */
    bool sync_batch_norm; /* make its batch norms SyncBatchNorms */
} module_part;

static tt_status module_save(void *user, tt_elastic_writer *writer) {
    const module_part *p = user;
    TT__TRY(named_write(writer, tt_module_parameters(p->module)));
    return named_write(writer, tt_module_buffers(p->module));
}

/* Copy a list into the module's, which has the same names in the same order. */
static tt_status load_list(const tt_named_tensors *own, const void **data, size_t *size) {
    named_copy copy;
    if (!own)
        return tt_last_status();
    tt_status status = named_read(&copy, data, size);
    if (!status && copy.list.count != own->count)
        status = tt__fail(TT_ERR_MISMATCH, "this rank's module has %lld tensors, that of another rank %lld",
                          (long long)own->count, (long long)copy.list.count);
    for (int64_t i = 0; i < own->count && !status; i++) {
        if (strcmp(own->names[i], copy.names[i]) != 0)
            status = tt__fail(TT_ERR_MISMATCH, "this rank's module has \"%s\" where that of another rank has \"%s\"",
                              own->names[i], copy.names[i]);
        else if (tt_copy(own->tensors[i], copy.tensors[i]))
            status = tt__fail_prefix("\"%s\"", own->names[i]);
    }
    named_copy_free(&copy);
    return status;
}

static tt_status module_load(void *user, const void *data, size_t size) {
    TT_AUTO_SCOPE;
    const module_part *p = user;
    const tt_named_tensors *parameters = tt_module_parameters(p->module);
    TT__TRY(load_list(parameters, &data, &size));
    TT__TRY(load_list(tt_module_buffers(p->module), &data, &size));
    for (int64_t i = 0; i < parameters->count; i++)
        tt_zero_grad(parameters->tensors[i]); /* the gradient is of an unfinished step */
    return TT_OK;
}

static tt_status module_bind(void *user, tt_group *group) {
    const module_part *p = user;
    if (p->wrapper && group)
        TT__TRY(tt__sync_batch_norm_renew(p->module, group, p->sync_batch_norm));
    return p->wrapper ? tt__ddp_bind(p->wrapper, group) : TT_OK;
}

static void module_destroy(void *user) {
    module_part *p = user;
    tt__ddp_know(p->wrapper, NULL);
    free(p);
}

/* Register the module; `wrapper` may be NULL. */
static tt_status add_module_part(const char *who, tt_elastic *elastic, const char *name, tt_module *module,
                                 tt_module *wrapper, bool sync_batch_norm) {
    static const tt_elastic_part_class cls = {
        .save = module_save, .load = module_load, .bind = module_bind, .destroy = module_destroy};
    module_part *p = malloc(sizeof *p);
    if (!p)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for \"%s\"", who, name);
    *p = (module_part){module, wrapper, sync_batch_norm};
    tt__ddp_know(wrapper, &p->wrapper);
    return tt_elastic_add_part(elastic, name, &cls, p);
}

static tt_status check_module_part(const char *who, const tt_elastic *elastic, const char *name,
                                   const tt_module *module) {
    return elastic && name && module ? TT_OK
                                     : tt__fail_argument("%s: `%s` is NULL", who,
                                                         !elastic ? "elastic"
                                                         : !name  ? "name"
                                                                  : "module");
}

tt_status tt_elastic_add_module(tt_elastic *elastic, const char *name, tt_module *module) {
    static const char who[] = "tt_elastic_add_module";
    TT__TRY(check_module_part(who, elastic, name, module));
    return add_module_part(who, elastic, name, module, NULL, false);
}

tt_module *tt_elastic_ddp_with(const tt_elastic_ddp_args *args, size_t size) {
    static const char who[] = "tt_elastic_ddp";
    tt_elastic_ddp_args a;
    TT__ARGS_COPY(a, args, size);
    if (check_module_part(who, a.elastic, a.name, a.module))
        return NULL;
    if (a.sync_batch_norm && a.virtual_ranks)
        return tt__fail_null(
            TT_ERR_INVALID,
            "%s: expected .virtual_ranks or .sync_batch_norm, whose statistics depend on the number of "
            "ranks, got both",
            who);
    const tt_ddp_args of_ddp = {.module = a.module,
                                .bucket_cap_bytes = a.bucket_cap_bytes,
                                .no_broadcast_buffers = a.no_broadcast_buffers,
                                .virtual_ranks = a.virtual_ranks,
                                .shard_seed = a.shard_seed};
    tt_module *wrapper = tt__ddp_make(&of_ddp);
    if (!wrapper || !add_module_part(who, a.elastic, a.name, a.module, wrapper, a.sync_batch_norm))
        return wrapper;
    tt_module_free(wrapper);
    return NULL;
}

/* ---- loaders ---- */

static tt_status loader_part_save(void *user, tt_elastic_writer *writer) {
    return named_write(writer, tt_loader_state_dict(user));
}

static tt_status loader_part_load(void *user, const void *data, size_t size) {
    TT_AUTO_SCOPE;
    named_copy copy;
    tt_status status = named_read(&copy, &data, &size);
    if (!status)
        status = tt_loader_load_state_dict(user, &copy.list);
    named_copy_free(&copy);
    return status;
}

static tt_status loader_part_bind(void *user, tt_group *group) {
    return group ? tt__loader_share(user, tt_get_world_size(group), tt_get_rank(group)) : TT_OK;
}

tt_status tt_elastic_add_loader(tt_elastic *elastic, const char *name, tt_loader *loader) {
    static const char who[] = "tt_elastic_add_loader";
    static const tt_elastic_part_class cls = {
        .save = loader_part_save, .load = loader_part_load, .bind = loader_part_bind};
    if (!elastic || !name || !loader)
        return tt__fail_argument("%s: `%s` is NULL", who, !elastic ? "elastic" : !name ? "name" : "loader");
    if (!loader->sampler->share)
        return tt__fail(
            TT_ERR_UNSUPPORTED,
            "%s: \"%s\": expected a loader of the sampler that ranks share, tt_distributed_sampler(), got %s", who,
            name, loader->sampler->cls.name);
    return tt_elastic_add_part(elastic, name, &cls, loader);
}
