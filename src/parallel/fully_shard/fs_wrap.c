/* Fully sharded modules: which modules are units, what must be alike on all ranks, and the wrapper's and the units'
 * forwards. */
#include "autograd/node.h"
#include "base/args.h"
#include "base/error.h"
#include "comm/group.h"
#include "nn/initial.h"
#include "parallel/ddp/ddp_state.h"
#include "parallel/fully_shard/fully_shard.h"
#include "reducer/text_agreement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tt_status units_no_memory(void) { return tt__fail(TT_ERR_MEMORY, "%s: no memory for the units", FS_SITE); }

/* ---- which modules are units ---- */

static bool has_parameters(tt_module *module) {
    const tt_named_tensors *list = tt_module_parameters(module);
    return list && list->count > 0;
}

/* Add a unit; `name` NULL: the unit of the rest. */
static tt_status add_unit(tt__fs *fs, const char *name, tt_module *module) {
    tt__fs_unit *units = reallocarray(fs->units, fs->unit_count + 1, sizeof *units);
    if (!units)
        return units_no_memory();
    fs->units = units;
    tt__fs_unit *u = &units[fs->unit_count++];
    *u = (tt__fs_unit){.owner = fs, .module = module, .name = strdup(name ? name : "(rest)")};
    if (!u->name || asprintf(&u->gather_site, "gathering unit \"%s\"", u->name) < 0)
        return u->gather_site = NULL, units_no_memory();
    if (asprintf(&u->average_site, "averaging unit \"%s\"", u->name) < 0)
        return u->average_site = NULL, units_no_memory();
    return TT_OK;
}

static bool is_list(const tt_module *module) {
    const char *name = tt_module_class_name(module);
    return !strcmp(name, "Sequential") || !strcmp(name, "ModuleList");
}

/* Find the children of the outermost lists below `module`, whose name is `path`. */
static tt_status find_below(tt__fs *fs, tt_module *module, const char *path) {
    tt_status status = TT_OK;
    for (int64_t i = 0; i < tt_module_child_count(module) && !status; i++) {
        tt_module *child = tt_module_child_at(module, i);
        char *name = NULL;
        if (!has_parameters(child))
            continue;
        if (asprintf(&name, "%s%s%s", path, *path ? "." : "", tt_module_child_name(module, i)) < 0)
            return units_no_memory();
        status = is_list(module) ? add_unit(fs, name, child) : find_below(fs, child, name);
        free(name);
    }
    return status;
}

/* Find the module of this path; NULL: there is none. */
static tt_module *module_at(tt_module *module, const char *path) {
    char *copy = strdup(path), *rest = NULL;
    for (char *name = copy ? strtok_r(copy, ".", &rest) : NULL; name && module; name = strtok_r(NULL, ".", &rest))
        module = tt_module_child(module, name);
    free(copy);
    return copy ? module : NULL;
}

/* Is `inner` the name `outer`, or of something inside it? */
static bool holds(const char *outer, const char *inner) {
    size_t n = strlen(outer);
    return !strncmp(outer, inner, n) && (!inner[n] || inner[n] == '.');
}

static tt_status add_named_unit(tt__fs *fs, const char *name) {
    if (!name || !*name)
        return tt__fail(TT_ERR_INVALID, "%s: .units: expected the name of a module, got %s", FS_SITE,
                        name ? "\"\"" : "NULL");
    for (size_t i = 0; i < fs->unit_count; i++)
        if (holds(fs->units[i].name, name) || holds(name, fs->units[i].name))
            return tt__fail(TT_ERR_INVALID, "%s: .units: \"%s\" and \"%s\" share modules", FS_SITE, fs->units[i].name,
                            name);
    tt_module *module = module_at(fs->module, name);
    if (!module)
        return tt__fail(TT_ERR_NOT_FOUND, "%s: .units: the %s has no module \"%s\"", FS_SITE,
                        tt_module_class_name(fs->module), name);
    if (!has_parameters(module))
        return tt__fail(TT_ERR_INVALID, "%s: .units: \"%s\" has no parameters", FS_SITE, name);
    return add_unit(fs, name, module);
}

/* Fill fs->units. */
static tt_status fs_find_units(tt__fs *fs, const tt_fully_shard_args *args) {
    if (args->unit_count < 0 || (args->unit_count && !args->units))
        return tt__fail(TT_ERR_INVALID, "%s: expected a list of units, got %lld at %s", FS_SITE,
                        (long long)args->unit_count, args->units ? "a list" : "NULL");
    for (int64_t i = 0; i < args->unit_count; i++)
        TT__TRY(add_named_unit(fs, args->units[i]));
    if (!args->units)
        TT__TRY(find_below(fs, tt__module_unwrapped(fs->module), ""));
    TT__TRY(add_unit(fs, NULL, NULL));
    return TT_OK;
}

/* ---- forward of a unit ---- */

static tt_status before_unit(tt_module *module, tt_tensor **inputs, int64_t input_count, void *user) {
    (void)module, (void)inputs, (void)input_count;
    tt__fs_unit *u = user;
    TT__TRY(tt__fs_need(u));
    u->running++;
    return tt__fs_begin_next(u, u->owner->backward ? -1 : 1);
}

/* Put the unit's operator behind each output, so that backward gathers the unit before it enters it. */
static tt_status mark_outputs(const tt__fs_unit *u, tt_tensor *const *in, int64_t in_count, tt_tensor **out,
                              int64_t out_count) {
    for (int64_t i = 0; i < out_count; i++) {
        tt_tensor *y = out[i];
        out[i] = tt__fs_mark_output(u, y);
        if (!out[i])
            return tt_last_status();
        if (out[i] != y && !tt__tensor_is_among(y, in, in_count) &&
            !tt__tensor_is_among(y, out + i + 1, out_count - i - 1))
            tt__abandon(y);
    }
    return TT_OK;
}

static tt_status after_unit(tt_module *module, tt_tensor *const *inputs, int64_t input_count, tt_tensor **outputs,
                            int64_t output_count, void *user) {
    (void)module;
    tt__fs_unit *u = user;
    u->running -= u->running > 0;
    return mark_outputs(u, inputs, input_count, outputs, output_count);
}

/* ---- forward of the wrapper ---- */

static tt_status check_trained(const tt__fs *fs) {
    for (size_t i = 0; i < fs->count; i++)
        if (fs->params[i].trains != tt_requires_grad(fs->params[i].whole))
            return tt__fail(TT_ERR_STATE,
                            "%s: parameter \"%s\" was %s (tt_requires_grad_()) since it was wrapped: wrap the module "
                            "again",
                            FS_SITE, fs->params[i].name, fs->params[i].trains ? "frozen" : "made to train");
    return TT_OK;
}

static tt_status before_fs_forward(const tt_module *self, tt__fs *fs) {
    TT__TRY(check_trained(fs));
    for (size_t i = 0; i < fs->unit_count && !fs->backward; i++)
        fs->units[i].running = 0; /* forwards that failed never ended */
    TT__TRY(tt__fs_begin_first(fs));
    if (!tt__is_recording() || !fs->broadcasts || !tt_module_training(self))
        return TT_OK;
    const tt_named_tensors *buffers = tt_module_buffers(fs->module);
    return buffers ? tt__ddp_take(fs->group, buffers, 0) : tt_last_status();
}

static tt_status fs_forward_many(tt_module *self, tt_tensor *const *in, int64_t in_count, tt_tensor **out,
                                 int64_t out_count) {
    tt__fs *fs = tt_module_user(self);
    tt_status status = before_fs_forward(self, fs);
    if (status)
        return tt__tensor_fail(status, "%s", tt_last_error()), status;
    TT__TRY(tt_module_forward_many(fs->module, in, in_count, out, out_count));
    return mark_outputs(tt__fs_rest(fs), in, in_count, out, out_count);
}

static tt_tensor *fs_forward(tt_module *self, tt_tensor *x) {
    tt_tensor *y = NULL;
    return fs_forward_many(self, &x, 1, &y, 1) ? NULL : y;
}

static void fs_destroy(tt_module *self) { tt__fs_release(tt_module_user(self)); }

static tt_module *fs_wrapped(tt_module *self) { return ((const tt__fs *)tt_module_user(self))->module; }

static const tt_module_class fs_class =
    TT_MODULE_CLASS(.name = "FullyShardedDataParallel", .forward = fs_forward, .forward_many = fs_forward_many,
                    .destroy = fs_destroy, .wrapped = fs_wrapped);

tt__fs *tt__fs_of(tt_module *module) {
    return module && tt__module_class(module) == &fs_class ? tt_module_user(module) : NULL;
}

int64_t tt_fully_shard_unit_count(tt_module *module) {
    const tt__fs *fs = tt__fs_of(module);
    return fs ? (int64_t)fs->unit_count - 1 : 0;
}

/* ---- agreement ---- */

static bool describe_param(const tt__fs *fs, size_t i, char **text) {
    const tt__fs_param *p = &fs->params[i];
    return asprintf(text, "parameter %zu \"%s\" %s%s of unit \"%s\"", i, p->name, TT__DESCRIBE(p->whole),
                    p->trains ? "" : " without gradient", fs->units[p->unit].name) >= 0;
}

/* Write the texts that must be alike. Returns their number; 0: no memory. */
static size_t describe_fs(const tt__fs *fs, const tt_named_tensors *buffers, char **texts) {
    size_t n = 0;
    if (asprintf(&texts[n++], "%zu units%s, .keep_after_forward %d, %sbroadcast of buffers", fs->unit_count - 1,
                 tt__device_is_host(fs->device) ? "" : " on a device", fs->keeps, fs->broadcasts ? "" : "no ") < 0)
        return texts[0] = NULL, 0;
    for (size_t i = 0; i + 1 < fs->unit_count; i++)
        if (asprintf(&texts[n++], "unit %zu \"%s\"", i, fs->units[i].name) < 0)
            return texts[n - 1] = NULL, 0;
    for (size_t i = 0; i < fs->count; i++)
        if (!describe_param(fs, i, &texts[n++]))
            return texts[n - 1] = NULL, 0;
    for (int64_t i = 0; i < buffers->count; i++)
        if (asprintf(&texts[n++], "buffer \"%s\" %s", buffers->names[i], TT__DESCRIBE(buffers->tensors[i])) < 0)
            return texts[n - 1] = NULL, 0;
    return n;
}

/* Have all ranks the same units, parameters, buffers and options? Collective. */
static tt_status agree_on_fs(const tt__fs *fs) {
    const tt_named_tensors *buffers = tt_module_buffers(fs->module);
    if (!buffers)
        return tt_last_status();
    const size_t room = 1 + fs->unit_count + fs->count + (size_t)buffers->count;
    char **texts = calloc(room, sizeof *texts);
    const size_t n = texts ? describe_fs(fs, buffers, texts) : 0;
    tt_status status = n ? tt__agree_on(fs->group, FS_SITE, (const char *const *)texts, n)
                         : tt__fail(TT_ERR_MEMORY, "%s: no memory to compare models", FS_SITE);
    for (size_t i = 0; texts && i < room; i++)
        free(texts[i]);
    free(texts);
    return status;
}

/* ---- making ---- */

static tt_status take_first_ranks(const tt__fs *fs) {
    const tt_named_tensors *parameters = tt_module_parameters(fs->module), *buffers = tt_module_buffers(fs->module);
    TT__TRY(tt__ddp_take(fs->group, parameters, 0));
    return tt__ddp_take(fs->group, buffers, 0);
}

static tt_status hook_units(tt__fs *fs) {
    for (size_t i = 0; i + 1 < fs->unit_count; i++) {
        tt__fs_unit *u = &fs->units[i];
        TT__TRY(tt_module_register_forward_pre_hook(&u->before, u->module, before_unit, u));
        TT__TRY(tt_module_register_forward_hook(&u->after, u->module, after_unit, u));
    }
    return TT_OK;
}

static tt_status prepare_fs(tt__fs *fs, const tt_fully_shard_args *args) {
    TT__TRY(fs_find_units(fs, args));
    TT__TRY(tt__fs_lay_out(fs));
    fs->handle = calloc(1, sizeof *fs->handle);
    if (!fs->handle)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for the wrapper", FS_SITE);
    *fs->handle = (tt__fs_handle){.refs = 1, .fs = fs};
    return TT_OK;
}

static tt_status build_fs(tt__fs *fs, const tt_fully_shard_args *args) {
    TT__TRY(prepare_fs(fs, args));
    TT__TRY(agree_on_fs(fs));
    TT__TRY(tt__fs_allocate(fs));
    TT__TRY(take_first_ranks(fs));
    TT__TRY(tt__fs_make_slices(fs));
    return hook_units(fs);
}

static tt_module *make_fs(const tt_fully_shard_args *a, const tt__joint_call *call) {
    tt_status refused = a->module ? TT_OK : tt__fail_argument("%s: the module is NULL", FS_SITE);
    tt__fs *fs = refused ? NULL : calloc(1, sizeof *fs);
    if (!refused && !fs)
        refused = tt__fail(TT_ERR_MEMORY, "%s: no memory for the wrapper", FS_SITE);
    if (tt__joint_call_end(call, refused)) {
        free(fs);
        return NULL;
    }
    *fs = (tt__fs){.module = a->module,
                   .rank = tt_get_rank(a->group),
                   .world = tt_get_world_size(a->group),
                   .keeps = a->keep_after_forward,
                   .broadcasts = !a->no_broadcast_buffers};
    tt__group_hold(fs->group = a->group);
    tt_module *wrapper = build_fs(fs, a) ? NULL : tt__module_new(&fs_class, fs);
    if (wrapper) {
        tt__watch_passes(&fs->passes, tt__fs_pass_failed, fs);
        return wrapper;
    }
    tt_ignore(tt__joint_call_end(call, tt_last_status())); /* first, as releasing is collective */
    tt__fs_release(fs);
    return NULL;
}

tt_module *tt_fully_shard_with(const tt_fully_shard_args *given, size_t size) {
    tt_fully_shard_args a;
    TT__ARGS_COPY(a, given, size);
    if (!a.group)
        return tt__fail_null(TT_ERR_INVALID, "%s: `group` is NULL", FS_SITE);
    const tt__joint_call call = tt__joint_call_begin(a.group, FS_SITE);
    return make_fs(&a, &call);
}
