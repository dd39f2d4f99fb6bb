/* Parameters and buffers that a wrapper treats apart: the program names those that it leaves out (.ignored), and those
 * that it averages last (.delay_all_reduce). A name stands for a tensor, or for all tensors below a child. */
#include "base/error.h"
#include "parallel/ddp/ddp_state.h"
#include "reducer/text_agreement.h"
#include "tensor/device/device.h"

#include <stdlib.h>
#include <string.h>

static bool names_tensor(const char *given, const char *name) {
    size_t n = strlen(given);
    return !strncmp(given, name, n) && (!name[n] || name[n] == '.');
}

bool tt__ddp_is_named(char *const *names, const char *name) {
    for (; names && *names; names++)
        if (names_tensor(*names, name))
            return true;
    return false;
}

static size_t names_count(const char *const *names) {
    size_t n = 0;
    while (names && names[n])
        n++;
    return n;
}

static tt_status copy_names(char ***out, const char *const *names) {
    *out = NULL;
    if (!names || !*names)
        return TT_OK;
    size_t n = names_count(names);
    if (!(*out = calloc(n + 1, sizeof **out)))
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for %zu names", DDP_SITE, n);
    for (size_t i = 0; i < n; i++)
        if (!((*out)[i] = strdup(names[i])))
            return tt__fail(TT_ERR_MEMORY, "%s: no memory for %zu names", DDP_SITE, n);
    return TT_OK;
}

tt_status tt__ddp_keep_names(tt__ddp *d, const tt_ddp_args *args) {
    TT__TRY(copy_names(&d->ignored, args->ignored));
    return copy_names(&d->delayed, args->delay_all_reduce);
}

static void free_names(char **names) {
    for (char **n = names; n && *n; n++)
        free(*n);
    free(names);
}

void tt__ddp_free_names(tt__ddp *d) {
    free_names(d->ignored);
    free_names(d->delayed);
    d->ignored = d->delayed = NULL;
}

/* ---- do they fit? ---- */

static bool is_name_of_any(const char *given, const tt_named_tensors *list) {
    for (int64_t i = 0; i < list->count; i++)
        if (names_tensor(given, list->names[i]))
            return true;
    return false;
}

const char *tt__ddp_unknown_ignored(const tt__ddp *d, const tt_named_tensors *parameters,
                                    const tt_named_tensors *buffers) {
    for (char *const *n = d->ignored; n && *n; n++)
        if (!is_name_of_any(*n, parameters) && !is_name_of_any(*n, buffers))
            return *n;
    return NULL;
}

const char *tt__ddp_unknown_delayed(const tt__ddp *d, const tt_named_tensors *parameters) {
    for (char *const *n = d->delayed; n && *n; n++)
        if (!is_name_of_any(*n, parameters))
            return *n;
    return NULL;
}

static tt_status check_not_in_both(const tt__ddp *d, const tt_named_tensors *parameters) {
    for (int64_t i = 0; i < parameters->count; i++)
        if (tt__ddp_is_named(d->delayed, parameters->names[i]) && tt__ddp_is_named(d->ignored, parameters->names[i]))
            return tt__fail(TT_ERR_INVALID,
                            "%s: expected parameter \"%s\" in .ignored or in .delay_all_reduce, got it in both",
                            DDP_SITE, parameters->names[i]);
    return TT_OK;
}

tt_status tt__ddp_check_names(const tt__ddp *d, const tt_named_tensors *parameters, const tt_named_tensors *buffers) {
    if (d->virtual_ranks && (d->ignored || d->delayed))
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "%s: expected .virtual_ranks or .%s, got both: with virtual ranks all parameters are those of "
                        "the shards",
                        DDP_SITE, d->ignored ? "ignored" : "delay_all_reduce");
    const char *unknown = tt__ddp_unknown_ignored(d, parameters, buffers);
    if (unknown)
        return tt__fail(TT_ERR_INVALID, "%s: .ignored has \"%s\", which is no parameter, buffer or child of the module",
                        DDP_SITE, unknown);
    if ((unknown = tt__ddp_unknown_delayed(d, parameters)))
        return tt__fail(TT_ERR_INVALID,
                        "%s: .delay_all_reduce has \"%s\", which is no parameter or child of the module", DDP_SITE,
                        unknown);
    return check_not_in_both(d, parameters);
}

/* ---- taking ---- */

tt_status tt__ddp_take_one(tt_group *group, const char *name, tt_tensor *x, int root) {
    if (!tt_tensor_broadcast_with(
            TT_ARGS(tt_tensor_broadcast_args, .group = group, .x = x, .root = root, .file = DDP_SITE)))
        return TT_OK;
    tt_status status = tt__fail_prefix("\"%s\"", name);
    if (!tt__device_is_host(tt_tensor_device(x)))
        tt__abort_with_error(group); /* a device may fail on this rank alone */
    return status;
}

tt_status tt__ddp_take(tt_group *group, const tt_named_tensors *list, int root) {
    for (int64_t i = 0; i < list->count; i++)
        TT__TRY(tt__ddp_take_one(group, list->names[i], list->tensors[i], root));
    return TT_OK;
}

tt_status tt__ddp_take_shared(const tt__ddp *d, const tt_named_tensors *list, int root) {
    for (int64_t i = 0; i < list->count; i++) {
        if (!tt__ddp_is_named(d->ignored, list->names[i]))
            TT__TRY(tt__ddp_take_one(d->group, list->names[i], list->tensors[i], root));
    }
    return TT_OK;
}
