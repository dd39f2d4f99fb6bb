/* The parts of a training program's state, as an elastic job keeps them: lists of named tensors. */
#include <tutti/elastic_training.h>

#include "base/args.h"
#include "base/error.h"
#include "data/loader/loader.h"
#include "parallel/ddp/ddp.h"
#include "parallel/named_copy.h"
#include "parallel/sync_batch_norm.h"

#include <stdlib.h>
#include <string.h>

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
    return tt__named_write(writer, p->state_dict(p->of));
}

static tt_status dict_load(void *user, const void *data, size_t size) {
    TT_AUTO_SCOPE;
    const dict_part *p = user;
    tt__named_copy copy;
    tt_status status = tt__named_read(&copy, &data, &size);
    if (!status)
        status = p->load_state_dict(p->of, &copy.list);
    tt__named_copy_free(&copy);
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
    return state ? tt__named_write(writer, TT_NAMED_TENSORS(1, names, &state)) : tt_last_status();
}

static tt_status generator_load(void *user, const void *data, size_t size) {
    TT_AUTO_SCOPE;
    tt__named_copy copy;
    tt_status status = tt__named_read(&copy, &data, &size);
    if (!status)
        status = tt_generator_set_state(user, tt_named_tensors_find(&copy.list, "state"));
    tt__named_copy_free(&copy);
    return status;
}

tt_status tt_elastic_add_generator(tt_elastic *elastic, const char *name, tt_generator *generator) {
    static const tt_elastic_part_class cls = {.save = generator_save, .load = generator_load};
    return tt_elastic_add_part(elastic, name, &cls, generator);
}

/* ---- modules ---- */

typedef struct module_part {
    tt_module *module;
    tt_module *wrapper;   /* NULL: it has none, or that has been freed */
    bool sync_batch_norm; /* its batch norms are to be over all ranks */
} module_part;

static tt_status module_save(void *user, tt_elastic_writer *writer) {
    const module_part *p = user;
    TT__TRY(tt__named_write(writer, tt_module_parameters(p->module)));
    return tt__named_write(writer, tt_module_buffers(p->module));
}

/* Copy a list into the module's, which has the same names in the same order. */
static tt_status load_list(const tt_named_tensors *own, const void **data, size_t *size) {
    tt__named_copy copy;
    if (!own)
        return tt_last_status();
    tt_status status = tt__named_read(&copy, data, size);
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
    tt__named_copy_free(&copy);
    return status;
}

static tt_status module_load(void *user, const void *data, size_t size) {
    TT_AUTO_SCOPE;
    const module_part *p = user;
    const tt_named_tensors *parameters = tt_module_parameters(p->module);
    TT__TRY(load_list(parameters, &data, &size));
    TT__TRY(load_list(tt_module_buffers(p->module), &data, &size));
    for (int64_t i = 0; i < parameters->count; i++)
        tt_zero_grad(parameters->tensors[i]); /* of a step that was left in the middle */
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
    return tt__named_write(writer, tt_loader_state_dict(user));
}

static tt_status loader_part_load(void *user, const void *data, size_t size) {
    TT_AUTO_SCOPE;
    tt__named_copy copy;
    tt_status status = tt__named_read(&copy, &data, &size);
    if (!status)
        status = tt_loader_load_state_dict(user, &copy.list);
    tt__named_copy_free(&copy);
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
