/* Stages: the parts of the model that a rank runs, and the modules that stand for them.
 *
 * A stage's module is a tree of empty modules with the model's names, down to the parameters and buffers of its parts,
 * which are the model's own tensors. So DDP can wrap it, and lists, state dicts and errors have the model's names. */
#include "autograd/record.h"
#include "base/error.h"
#include "nn/initial.h"
#include "nn/module.h"
#include "parallel/pipeline/pipeline_own.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- forward ---- */

/* splitmix64's last step, which makes unrelated seeds of neighbouring numbers. */
static uint64_t mix_seed(uint64_t x) {
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static void seed_stage_part(const tt__stage *stage, int64_t part) {
    const tt_pipeline *p = stage->pipe;
    uint64_t replica = p->data_group ? (uint64_t)tt_get_rank(p->data_group) : 0;
    uint64_t seed =
        mix_seed(p->seed ^ mix_seed((uint64_t)p->steps ^
                                    mix_seed((uint64_t)stage->micro ^ mix_seed((uint64_t)part ^ mix_seed(replica)))));
    tt_generator_seed(tt_default_generator(), seed);
}

static tt_tensor *run_parts(const tt__stage *stage, tt_tensor *x) {
    tt_tensor *const given = x;
    for (int64_t part = stage->first_part; part < stage->last_part && x; part++) {
        if (stage->pipe->seed)
            seed_stage_part(stage, part);
        tt_tensor *y = tt__chain_forward(stage->pipe->model, part, x);
        if (x != given && x != y && !x->shown)
            tt__abandon(x);
        x = y;
    }
    return x;
}

static tt_tensor *stage_module_forward(tt_module *self, tt_tensor *x) {
    const tt__stage *stage = tt_module_user(self);
    if (!stage)
        return tt__tensor_fail(TT_ERR_UNSUPPORTED, "a pipeline's module has no forward: tt_pipeline_step() runs it");
    if (!stage->pipe->seed)
        return run_parts(stage, x);
    tt_generator now = *tt_default_generator();
    tt_tensor *y = run_parts(stage, x);
    *tt_default_generator() = now;
    return y;
}

/* Copies of buffers from before a forward that is repeated. */
typedef struct kept_buffers {
    int64_t count;
    tt_tensor **copies;
} kept_buffers;

static tt_status keep_buffers(const tt_named_tensors *buffers, kept_buffers *kept) {
    *kept = (kept_buffers){0};
    if (!buffers)
        return tt_last_status();
    kept->copies = calloc((size_t)buffers->count + 1, sizeof(tt_tensor *));
    if (!kept->copies)
        return tt__fail(TT_ERR_MEMORY, "no memory for a list of buffers");
    for (; kept->count < buffers->count; kept->count++) {
        tt_tensor *copy = tt_keep(tt_clone(buffers->tensors[kept->count]));
        if (!copy)
            return tt_last_status();
        kept->copies[kept->count] = copy;
    }
    return TT_OK;
}

static tt_status restore_buffers(const tt_named_tensors *buffers, kept_buffers *kept, bool copy_back) {
    tt_status status = TT_OK;
    for (int64_t i = 0; i < kept->count; i++) {
        if (copy_back && !status)
            status = tt_copy(buffers->tensors[i], kept->copies[i]);
        tt_tensor_free(kept->copies[i]);
    }
    free(kept->copies);
    return status;
}

/* Repeat a forward with its first draws, and restore the buffers afterwards. */
static tt_tensor *forward_again(tt__stage *stage, tt_tensor *x) {
    const tt_named_tensors *buffers = tt_module_buffers(stage->module);
    kept_buffers kept;
    tt_tensor *y = NULL;
    bool before = tt_no_grad_begin();
    tt_status status = keep_buffers(buffers, &kept);
    tt_no_grad_end(before);
    if (!status) {
        tt_generator now = *tt_default_generator();
        *tt_default_generator() = *stage->held[stage->micro].draws;
        y = tt_module_forward(stage->module, x);
        *tt_default_generator() = now;
    }
    before = tt_no_grad_begin();
    status = restore_buffers(buffers, &kept, y != NULL);
    tt_no_grad_end(before);
    return status ? NULL : y;
}

tt_tensor *tt__stage_forward(tt__stage *stage, int64_t micro, tt_tensor *x, bool again) {
    stage->micro = micro;
    return again ? forward_again(stage, x) : tt_module_forward(stage->ddp ? stage->ddp : stage->module, x);
}

/* ---- modules ---- */

static tt_tensor *inner_forward(tt_module *self, tt_tensor *x) {
    (void)x;
    return tt__tensor_fail(TT_ERR_UNSUPPORTED, "%s has no forward", tt_module_class_name(self));
}

static const tt_module_class stage_class = TT_MODULE_CLASS(.name = "PipelineStage", .forward = stage_module_forward);
static const tt_module_class inner_class = TT_MODULE_CLASS(.name = "PipelinePart", .forward = inner_forward);

/* Find the module of a path like "layer1.0.conv1.weight", without its last name, under `root`, and make modules that
 * are missing. *last := the last name. Cuts `path`. */
static tt_module *module_of_path(tt_module *root, char *path, const char **last) {
    tt_module *at = root;
    char *dot;
    for (; at && (dot = strchr(path, '.')); path = dot + 1) {
        *dot = '\0';
        tt_module *found = NULL;
        for (int64_t i = 0; i < tt_module_child_count(at) && !found; i++)
            if (!strcmp(tt_module_child_name(at, i), path))
                found = tt_module_child_at(at, i);
        if (!found) {
            found = tt__module_new(&inner_class, NULL);
            if (tt_module_add_module(at, path, found))
                return NULL;
        }
        at = found;
    }
    *last = path;
    return at;
}

static bool has_tensor(const tt_module *module, const char *name) {
    for (size_t i = 0; i < module->tensor_count; i++)
        if (!strcmp(module->tensors[i].name, name))
            return true;
    return false;
}

typedef enum tensor_kind { A_PARAMETER, A_BUFFER, A_PASSING_BUFFER } tensor_kind;

static tt_status add_stage_tensor(tt_module *root, const char *prefix, const char *name, tt_tensor *x,
                                  tensor_kind kind) {
    char *path = malloc(strlen(prefix) + strlen(name) + 2);
    const char *last = NULL;
    if (!path)
        return tt__fail(TT_ERR_MEMORY, "no memory for the name of a parameter");
    stpcpy(stpcpy(stpcpy(path, prefix), *prefix ? "." : ""), name);
    tt_module *at = module_of_path(root, path, &last);
    tt_status status = at ? TT_OK : tt_last_status();
    if (at && !has_tensor(at, last)) {
        bool frozen = !tt_requires_grad(x);
        status = kind == A_PARAMETER
                     ? tt_module_register_parameter(at, last, x)
                     : tt_module_register_buffer(at, last, x, .non_persistent = kind == A_PASSING_BUFFER);
        if (!status && kind == A_PARAMETER && frozen && !tt_requires_grad_(x, false))
            status = tt_last_status();
    }
    free(path);
    return status;
}

static tt_status add_module_tensors(tt_module *root, const char *prefix, tt_module *module) {
    const tt_named_tensors *parameters = tt_module_parameters(module), *buffers = tt_module_buffers(module),
                           *state = tt_module_state_dict(module);
    if (!parameters || !buffers || !state)
        return tt_last_status();
    for (int64_t i = 0; i < parameters->count; i++)
        TT__TRY(add_stage_tensor(root, prefix, parameters->names[i], parameters->tensors[i], A_PARAMETER));
    for (int64_t i = 0; i < buffers->count; i++)
        TT__TRY(add_stage_tensor(root, prefix, buffers->names[i], buffers->tensors[i],
                                 tt_named_tensors_find(state, buffers->names[i]) ? A_BUFFER : A_PASSING_BUFFER));
    return TT_OK;
}

static const char *name_in_model(const tt_named_modules *all, const tt_module *module) {
    for (int64_t i = 0; i < all->count; i++)
        if (all->modules[i] == module)
            return all->names[i];
    return NULL;
}

static tt_status add_part_tensors(tt_module *root, tt_module *model, int64_t first, int64_t last) {
    const tt_named_modules *all = tt_module_named_modules(model);
    if (!all)
        return tt_last_status();
    for (int64_t part = first; part < last; part++) {
        tt_module *module;
        for (int64_t k = 0; (module = tt__chain_module(model, part, k)); k++) {
            const char *name = name_in_model(all, module);
            if (!name)
                return tt__fail(TT_ERR_INVALID, "part %" PRId64 " uses a %s that is not in the model's tree", part,
                                tt_module_class_name(module));
            TT__TRY(add_module_tensors(root, name, module));
        }
    }
    return TT_OK;
}

static bool trains_anything(tt_module *module) {
    const tt_named_tensors *all = tt_module_parameters(module);
    for (int64_t i = 0; all && i < all->count; i++)
        if (tt_requires_grad(all->tensors[i]))
            return true;
    return false;
}

static tt_status make_stage(tt_pipeline *pipe, int64_t chunk, const tt_pipeline_new_args *args) {
    tt__stage *stage = &pipe->stage[chunk];
    int64_t index = chunk * pipe->ranks + pipe->rank;
    *stage = (tt__stage){
        .pipe = pipe, .index = index, .first_part = pipe->first_part[index], .last_part = pipe->first_part[index + 1]};
    stage->held = calloc((size_t)pipe->micros, sizeof *stage->held);
    if (!stage->held)
        return tt__fail(TT_ERR_MEMORY, "no memory for a stage");
    stage->module = tt__module_new(&stage_class, stage);
    if (!stage->module)
        return tt_last_status();
    TT__TRY(add_part_tensors(stage->module, pipe->model, stage->first_part, stage->last_part));
    TT__TRY(add_part_tensors(pipe->module, pipe->model, stage->first_part, stage->last_part));
    if (!pipe->data_group || !trains_anything(stage->module))
        return TT_OK;
    stage->ddp = tt_ddp(stage->module, pipe->data_group, .bucket_cap_bytes = args->bucket_cap_bytes);
    return stage->ddp ? TT_OK : tt__fail_prefix("stage %" PRId64, index);
}

tt_status tt__stages_make(tt_pipeline *pipe, const tt_pipeline_new_args *args) {
    pipe->stage = calloc((size_t)pipe->chunks, sizeof *pipe->stage);
    pipe->module = tt__module_new(&stage_class, NULL);
    if (!pipe->stage || !pipe->module)
        return tt__fail(TT_ERR_MEMORY, "no memory for the stages");
    for (int64_t c = 0; c < pipe->chunks; c++)
        TT__TRY(make_stage(pipe, c, args));
    return TT_OK;
}

void tt__held_drop(tt__held *held) {
    tt_deferred_backward_free(held->deferred);
    tt_scope_free(held->scope);
    held->deferred = NULL;
    held->scope = NULL;
    held->x = held->y = NULL;
}

void tt__stages_free(tt_pipeline *pipe) {
    for (int64_t c = 0; pipe->stage && c < pipe->chunks; c++) {
        tt__stage *stage = &pipe->stage[c];
        for (int64_t m = 0; stage->held && m < pipe->micros; m++) {
            tt__held_drop(&stage->held[m]);
            free(stage->held[m].draws);
        }
        free(stage->held);
        tt_module_free(stage->ddp);
        tt_module_free(stage->module);
    }
    tt_module_free(pipe->module);
    free(pipe->stage);
}

/* ---- checking ---- */

/* Find the first and the last stage that use a parameter. */
static tt_status find_users(const tt_pipeline *pipe, const tt_tensor *x, int64_t *first, int64_t *last) {
    *first = *last = -1;
    for (int64_t s = 0; s < pipe->stages; s++)
        for (int64_t part = pipe->first_part[s]; part < pipe->first_part[s + 1]; part++) {
            tt_module *module;
            for (int64_t k = 0; (module = tt__chain_module(pipe->model, part, k)); k++) {
                const tt_named_tensors *all = tt_module_parameters(module);
                if (!all)
                    return tt_last_status();
                if (!tt__tensor_is_among(x, all->tensors, all->count))
                    continue;
                *first = *first < 0 ? s : *first;
                *last = s;
            }
        }
    return TT_OK;
}

tt_status tt__stages_check(const tt_pipeline *pipe) {
    const tt_named_tensors *all = tt_module_parameters(pipe->model);
    int64_t first, last;
    if (!all)
        return tt_last_status();
    for (int64_t i = 0; i < all->count; i++) {
        TT__TRY(find_users(pipe, all->tensors[i], &first, &last));
        if (first < 0)
            return tt__fail(TT_ERR_INVALID, "parameter \"%s\" belongs to no part of the model", all->names[i]);
        if (first != last)
            return tt__fail(TT_ERR_INVALID,
                            "parameter \"%s\" is used in stage %" PRId64 " and in stage %" PRId64
                            ": keep the parts that share it in one stage, or untie them",
                            all->names[i], first, last);
    }
    return TT_OK;
}
