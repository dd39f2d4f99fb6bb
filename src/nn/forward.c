/* Running a module: hooks before, the class's function for these numbers of tensors, hooks after. */
#include "base/args.h"
#include "base/error.h"
#include "nn/initial.h"
#include "nn/module.h"
#include "tensor/core/pool.h"
#include "tensor/core/tensor.h"

#include <tutti/autograd.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One run of a module. */
typedef struct call {
    tt_tensor *const *in;
    int64_t in_count;
    tt_tensor **out;
    int64_t out_count;
} call;

/* Return why `which` function, "forward", gave NULL. `before`: tt__error_count() when it began; if it has recorded no
 * error since, one is recorded. */
static tt_status gave_null(const tt_module *module, const char *which, uint64_t before) {
    if (tt__error_count() != before && tt_last_status())
        return tt_last_status();
    char earlier[400]; /* an earlier error may be the cause */
    tt__tensor_fail(TT_ERR_STATE,
                    "the %s of a %s gave NULL without an error: expected a tensor, or NULL where a call had failed%s",
                    which, module->cls.name, tt__error_quote(earlier, sizeof earlier));
    return TT_ERR_STATE;
}

static bool all_given(tt_tensor *const *x, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (!x[i])
            return false;
    return true;
}

static tt_status call_one(tt_module *module, const call *c) {
    uint64_t before = tt__error_count();
    c->out[0] = module->cls.forward(module, c->in[0]);
    return c->out[0] ? TT_OK : gave_null(module, "forward", before);
}

/* Write how many tensors a class takes or gives, for errors. */
static const char *tensor_number_text(const tt_module_class *cls, int64_t number, char text[24]) {
    if (!cls->forward_many)
        number = 1;
    if (number == 0)
        return "any number of";
    snprintf(text, 24, "%lld", (long long)number);
    return text;
}

static tt_status fail_count(const tt_module *module, const call *c) {
    char takes[24], gives[24];
    tt__tensor_fail(TT_ERR_INVALID, "forward: a %s takes %s tensors and gives %s; %lld came, and %lld were asked for",
                    module->cls.name, tensor_number_text(&module->cls, module->cls.inputs, takes),
                    tensor_number_text(&module->cls, module->cls.outputs, gives), (long long)c->in_count,
                    (long long)c->out_count);
    return TT_ERR_INVALID;
}

static tt_status call_many(tt_module *module, const call *c) {
    const tt_module_class *cls = &module->cls;
    if ((cls->inputs && c->in_count != cls->inputs) || (cls->outputs && c->out_count != cls->outputs))
        return fail_count(module, c);
    uint64_t before = tt__error_count();
    tt_status status = cls->forward_many(module, c->in, c->in_count, c->out, c->out_count);
    if (status && tt__error_count() == before)
        tt__tensor_fail(status, "the forward of a %s failed: %s", cls->name, tt_status_text(status));
    return status || all_given(c->out, c->out_count) ? status : gave_null(module, "forward", before);
}

static tt_status forward_run(tt_module *module, const call *c);

/* Call the class's function for these numbers of tensors. */
static tt_status call_class(tt_module *module, const call *c) {
    if (module->cls.forward && c->in_count == 1 && c->out_count == 1)
        return call_one(module, c);
    if (module->cls.forward_many)
        return call_many(module, c);
    return module->wrapped ? forward_run(module->wrapped, c) : fail_count(module, c);
}

/* ---- hooks ---- */

static tt_status run_hook(tt_module *module, const tt__module_hook *hook, const call *c, tt_tensor **in) {
    const char *which = hook->pre ? "forward pre-hook" : "forward hook";
    uint64_t before = tt__error_count();
    tt_status status = hook->pre ? hook->pre(module, in, c->in_count, hook->user)
                                 : hook->post(module, c->in, c->in_count, c->out, c->out_count, hook->user);
    if (status)
        tt__tensor_fail(status, "a %s of a %s failed: %s", which, module->cls.name,
                        tt__error_count() == before ? tt_status_text(status) : tt_last_error());
    else if (!(hook->pre ? all_given(in, c->in_count) : all_given(c->out, c->out_count)))
        status = gave_null(module, which, before);
    return status;
}

/* Run hooks. Those that a hook registers run from the next forward on. `in`: for pre-hooks, else NULL. */
static tt_status run_hooks(tt_module *module, const call *c, tt_tensor **in) {
    tt_status status = TT_OK;
    size_t count = module->hook_count;
    module->hooks_running++;
    for (size_t i = 0; i < count && !status; i++) {
        const tt__module_hook hook = module->hooks[i];
        if (hook.handle && !hook.pre == !in)
            status = run_hook(module, &hook, c, in);
    }
    module->hooks_running--;
    return status;
}

/* Forget hooks that were removed, unless hooks are running. */
static void sweep_hooks(tt_module *module) {
    for (size_t i = 0; i < module->hook_count && !module->hooks_running;) {
        const tt__module_hook hook = module->hooks[i];
        if (hook.handle) {
            i++;
            continue;
        }
        memmove(&module->hooks[i], &module->hooks[i + 1], (--module->hook_count - i) * sizeof hook);
        tt__module_hook_release(&hook);
    }
}

static tt_status run_between_hooks(tt_module *module, const call *c, tt_tensor **in) {
    call inner = *c;
    inner.in = in;
    TT__TRY(run_hooks(module, c, in));
    TT__TRY(call_class(module, &inner));
    return run_hooks(module, &inner, NULL);
}

static tt_status run_with_hooks(tt_module *module, const call *c) {
    size_t bytes = (size_t)c->in_count * sizeof *c->in;
    tt_tensor **in = tt__pool_alloc(bytes + 1);
    if (!in)
        return tt__tensor_fail(TT_ERR_MEMORY, "forward: no memory for the %lld inputs of a %s", (long long)c->in_count,
                               module->cls.name),
               TT_ERR_MEMORY;
    if (bytes)
        memcpy(in, c->in, bytes);
    tt_status status = run_between_hooks(module, c, in);
    sweep_hooks(module);
    tt__pool_free(in);
    return status;
}

/* Note that a function of the user's sees these tensors, and may use them while their scope lasts. */
static void show(tt_tensor *const *x, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (x[i])
            x[i]->shown = true;
}

static tt_status forward_hooked(tt_module *module, const call *c) {
    if (!module->hook_count && !module->of_users)
        return call_class(module, c);
    show(c->in, c->in_count);
    tt_status status = module->hook_count ? run_with_hooks(module, c) : call_class(module, c);
    if (!status)
        show(c->out, c->out_count);
    return status;
}

/* ---- mixed precision ---- */

/* x in another type, if it is a float of 16 or 32 bits. Ended by tt__abandon() if it is another tensor. */
static tt_tensor *cast_float(tt_tensor *x, tt_dtype dtype) {
    const tt_dtype has = tt_tensor_dtype(x);
    return tt__is_float(has) && has != TT_F64 && has != dtype ? tt_to(x, dtype) : x;
}

/* Run the module under autocast, and cast its results to f32. */
static tt_status forward_cast(tt_module *module, const call *c) {
    const tt__module_amp amp = module->amp;
    int before = tt_autocast_begin(amp.autocasts ? amp.dtype : TT_BF16, .disabled = !amp.autocasts);
    tt_status status = forward_hooked(module, c);
    tt_autocast_end(before);
    for (int64_t i = 0; i < c->out_count && !status; i++) {
        tt_tensor *y = c->out[i];
        c->out[i] = cast_float(y, TT_F32);
        status = c->out[i] ? TT_OK : tt_last_status();
        if (c->out[i] != y && !tt__tensor_is_among(y, c->in, c->in_count) &&
            !tt__tensor_is_among(y, c->out + i + 1, c->out_count - i - 1))
            tt__abandon(y);
    }
    return status;
}

static tt_status forward_amp(tt_module *module, const call *c) {
    if (!module->amp.casts_inputs)
        return forward_cast(module, c);
    call inner = *c;
    tt_status status = TT_OK;
    tt_tensor **in = tt__pool_alloc((size_t)c->in_count * sizeof *in + 1);
    if (!in)
        return tt__fail(TT_ERR_MEMORY, "forward: no memory for %lld inputs", (long long)c->in_count);
    int64_t n = 0;
    for (; n < c->in_count && !status; n++) {
        in[n] = cast_float(c->in[n], module->amp.dtype);
        status = in[n] ? TT_OK : tt_last_status();
    }
    inner.in = in;
    if (!status)
        status = forward_cast(module, &inner);
    for (int64_t i = 0; i < n; i++)
        if (in[i] != c->in[i])
            tt__abandon(in[i]);
    tt__pool_free(in);
    return status;
}

tt__module_amp tt__module_amp_of(const tt_module *module) { return module->amp; }

void tt__module_set_amp(tt_module *module, tt__module_amp amp) { module->amp = amp; }

static tt_status forward_run(tt_module *module, const call *c) {
    return module->amp.on ? forward_amp(module, c) : forward_hooked(module, c);
}

/* ---- hooks of a module ---- */

static tt_status add_forward_hook(const char *who, int64_t *handle, tt_module *module, tt__module_hook hook) {
    static _Atomic int64_t last_handle;
    if (handle)
        *handle = 0;
    if (!module || (!hook.pre && !hook.post)) {
        tt__module_hook_release(&hook);
        return tt__fail(TT_ERR_INVALID, "%s: the %s is NULL", who, module ? "hook" : "module");
    }
    tt__module_hook *hooks = reallocarray(module->hooks, module->hook_count + 1, sizeof *hooks);
    if (!hooks) {
        tt__module_hook_release(&hook);
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for a hook of a %s", who, module->cls.name);
    }
    hook.handle = atomic_fetch_add(&last_handle, 1) + 1;
    module->hooks = hooks;
    hooks[module->hook_count++] = hook;
    if (handle)
        *handle = hook.handle;
    return TT_OK;
}

tt_status tt_module_register_forward_pre_hook_with(const tt_module_register_forward_pre_hook_args *args, size_t size) {
    tt_module_register_forward_pre_hook_args a;
    TT__ARGS_COPY(a, args, size);
    return add_forward_hook("tt_module_register_forward_pre_hook", a.handle, a.module,
                            (tt__module_hook){.pre = a.hook, .user = a.user, .destroy = a.destroy});
}

tt_status tt_module_register_forward_hook_with(const tt_module_register_forward_hook_args *args, size_t size) {
    tt_module_register_forward_hook_args a;
    TT__ARGS_COPY(a, args, size);
    return add_forward_hook("tt_module_register_forward_hook", a.handle, a.module,
                            (tt__module_hook){.post = a.hook, .user = a.user, .destroy = a.destroy});
}

tt_status tt_module_remove_hook(tt_module *module, int64_t handle) {
    for (size_t i = 0; module && handle && i < module->hook_count; i++)
        if (module->hooks[i].handle == handle) {
            module->hooks[i].handle = 0;
            sweep_hooks(module);
            return TT_OK;
        }
    return tt__fail(TT_ERR_NOT_FOUND, "tt_module_remove_hook: this %s has no hook with the handle %lld",
                    tt_module_class_name(module), (long long)handle);
}

/* ---- forward ---- */

tt_tensor *tt_module_forward(tt_module *module, tt_tensor *x) {
    if (!module || !x)
        return NULL;
    tt_tensor *y = NULL;
    return forward_run(module, &(call){.in = &x, .in_count = 1, .out = &y, .out_count = 1}) ? NULL : y;
}

static tt_status forward_check(const char *who, const tt_module *module, const call *c) {
    if (c->in_count < 0 || c->out_count < 0 || (c->in_count && !c->in) || (c->out_count && !c->out))
        return tt__fail(TT_ERR_INVALID, "%s: expected lists of inputs and outputs, got %lld at %p and %lld at %p", who,
                        (long long)c->in_count, (const void *)c->in, (long long)c->out_count, (const void *)c->out);
    if (!module)
        return tt__fail_argument("%s: the module is NULL", who);
    for (int64_t i = 0; i < c->in_count; i++)
        if (!c->in[i])
            return tt__tensor_first_error(who);
    return TT_OK;
}

tt_status tt_module_forward_many(tt_module *module, tt_tensor *const *inputs, int64_t input_count, tt_tensor **outputs,
                                 int64_t output_count) {
    const call c = {.in = inputs, .in_count = input_count, .out = outputs, .out_count = output_count};
    for (int64_t i = 0; outputs && i < output_count; i++)
        outputs[i] = NULL;
    TT__TRY(forward_check("tt_module_forward_many", module, &c));
    tt_status status = forward_run(module, &c);
    for (int64_t i = 0; status && i < output_count; i++)
        outputs[i] = NULL;
    return status;
}

static tt_tensor *run_module(void *module, tt_tensor *const *in, int64_t n) {
    (void)n;
    return tt_module_forward(module, in[0]);
}

tt_tensor *tt_module_recompute(tt_module *module, tt_tensor *x) {
    const tt_named_tensors *parameters = module && x ? tt_module_parameters(module) : NULL;
    if (!parameters)
        return NULL;
    tt_tensor **in = tt__pool_alloc((size_t)(parameters->count + 1) * sizeof *in);
    if (!in)
        return tt__tensor_fail(TT_ERR_MEMORY, "tt_module_recompute: no memory for a list of %lld parameters",
                               (long long)parameters->count);
    in[0] = x;
    for (int64_t i = 0; i < parameters->count; i++)
        in[i + 1] = parameters->tensors[i];
    tt_tensor *y = tt_recompute_with(run_module, module, in, parameters->count + 1);
    tt__pool_free(in);
    return y;
}
