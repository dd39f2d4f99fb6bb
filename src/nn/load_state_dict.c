/* Loading a state dict: all entries are checked before any is copied, and one error lists all that is wrong. */
#include "base/args.h"
#include "base/error.h"
#include "base/hash.h"
#include "nn/module.h"

#include <stdlib.h>
#include <string.h>

static const char who[] = "tt_module_load_state_dict";

/* One call. */
typedef struct loading {
    const tt_named_tensors *own, *state;
    const tt_module_load_state_dict_args *args;
    int64_t *source;     /* by the module's entries: the entry of the state, or -1 */
    int64_t *target;     /* by the state's entries: the entry of the module, or -1 */
    tt__name_map places; /* of the module's entries */
} loading;

/* ---- names ---- */

/* A name in two pieces: what takes the place of its beginning, and the rest. */
typedef struct split_name {
    const char *head, *rest;
} split_name;

static int64_t find_own(const loading *l, split_name name) {
    return tt__name_map_get(&l->places, name.head, name.rest);
}

static bool index_places(loading *l) {
    if (!tt__name_map_reserve(&l->places, (size_t)l->own->count))
        return false;
    for (int64_t i = 0; i < l->own->count; i++)
        tt__name_map_put(&l->places, l->own->names[i], i);
    return true;
}

/* Find the module's entry for an entry of the state, by its name, its new name after .renames, or its name without the
 * "module." that PyTorch's DDP adds. -1: there is none. */
static int64_t find_target(const loading *l, const char *name) {
    static const char prefix[] = "module.";
    split_name renamed = {"", name};
    for (int64_t i = 0; i < l->args->rename_count; i++) {
        const tt_rename *r = &l->args->renames[i];
        if (!strncmp(name, r->from, strlen(r->from))) {
            renamed = (split_name){r->to, name + strlen(r->from)};
            break;
        }
    }
    int64_t found = find_own(l, renamed);
    if (found < 0 && !strncmp(name, prefix, strlen(prefix)))
        found = find_own(l, (split_name){"", name + strlen(prefix)});
    return found;
}

/* ---- checks ---- */

static void match_entries(loading *l, tt__problem_list *all) {
    for (int64_t i = 0; i < l->own->count; i++)
        l->source[i] = -1;
    for (int64_t i = 0; i < l->state->count; i++) {
        int64_t to = l->target[i] = find_target(l, l->state->names[i]);
        if (to >= 0 && l->source[to] >= 0)
            tt__problem_add(all, TT_ERR_INVALID, "the entry \"%s\" comes twice", l->own->names[to]);
        else if (to >= 0)
            l->source[to] = i;
    }
}

/* Check that each tensor has an entry. For a tensor with several names (tied weights) an entry under one of them is
 * enough, as in files of Hugging Face's libraries. False: no memory. */
static bool check_lacking(const loading *l, tt__problem_list *all) {
    tt__pointer_map given = {0};
    bool enough = true;
    for (int64_t i = 0; i < l->own->count && enough; i++)
        if (l->source[i] >= 0 && tt__pointer_map_get(&given, l->own->tensors[i]) < 0)
            enough = tt__pointer_map_put(&given, l->own->tensors[i], i);
    for (int64_t i = 0; i < l->own->count && enough; i++)
        if (l->source[i] < 0 && tt__pointer_map_get(&given, l->own->tensors[i]) < 0)
            tt__problem_add(all, TT_ERR_NOT_FOUND, "entry \"%s\" is missing", l->own->names[i]);
    tt__pointer_map_free(&given);
    return enough;
}

static void check_unexpected(const loading *l, tt__problem_list *all) {
    for (int64_t i = 0; i < l->state->count && !l->args->not_strict; i++)
        if (l->target[i] < 0)
            tt__problem_add(all, TT_ERR_NOT_FOUND, "unexpected entry \"%s\": the module has no such tensor",
                            l->state->names[i]);
}

/* Check that entries fit the tensors they are for, strict or not, as in PyTorch. */
static void check_shapes(const loading *l, tt__problem_list *all) {
    for (int64_t i = 0; i < l->state->count; i++) {
        if (l->target[i] < 0)
            continue;
        const tt_tensor *mine = l->own->tensors[l->target[i]], *x = l->state->tensors[i];
        const tt_shape shape = tt_tensor_shape(x), expected = tt_tensor_shape(mine);
        bool same_dtype = tt_tensor_dtype(x) == tt_tensor_dtype(mine);
        if (!same_dtype || !tt__shape_equal(&shape, &expected))
            tt__problem_add(all, same_dtype ? TT_ERR_SHAPE : TT_ERR_DTYPE, "\"%s\": expected %s, got %s",
                            l->state->names[i], TT__DESCRIBE(mine), TT__DESCRIBE(x));
    }
}

/* Check that names of one tensor (tied weights) have equal values. False: no memory. */
static bool check_tied(const loading *l, tt__problem_list *all) {
    tt__pointer_map firsts = {0};
    bool enough = true;
    for (int64_t i = 0; i < l->own->count && enough; i++) {
        int64_t first = tt__pointer_map_get(&firsts, l->own->tensors[i]);
        if (l->source[i] < 0)
            continue;
        if (first < 0)
            enough = tt__pointer_map_put(&firsts, l->own->tensors[i], i);
        else if (!tt_equal(l->state->tensors[l->source[first]], l->state->tensors[l->source[i]]))
            tt__problem_add(all, TT_ERR_INVALID,
                            "\"%s\" and \"%s\" are one tensor here, but two different ones in the state",
                            l->own->names[first], l->own->names[i]);
    }
    tt__pointer_map_free(&firsts);
    return enough;
}

/* Check all, and if `copy`, copy the entries. */
static tt_status load_matched(loading *l, bool copy) {
    tt__problem_list all = {.count = 0};
    match_entries(l, &all);
    bool enough = l->args->not_strict || check_lacking(l, &all);
    check_unexpected(l, &all);
    check_shapes(l, &all);
    if (!enough || (all.count == 0 && !check_tied(l, &all)))
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for %lld names", who, (long long)l->own->count);
    TT__TRY(tt__problems_report(&all, who));
    for (int64_t i = 0; copy && i < l->own->count; i++)
        if (l->source[i] >= 0)
            TT__TRY(tt_copy(l->own->tensors[i], l->state->tensors[l->source[i]]));
    return TT_OK;
}

static tt_status check_renames(const tt_module_load_state_dict_args *args) {
    if (args->rename_count < 0 || (args->rename_count > 0 && !args->renames))
        return tt__fail(TT_ERR_INVALID, "%s: expected %s", who,
                        args->rename_count < 0 ? "a .rename_count of 0 or more" : ".renames, got NULL");
    for (int64_t i = 0; i < args->rename_count; i++)
        if (!args->renames[i].from || !args->renames[i].to)
            return tt__fail(TT_ERR_INVALID, "%s: expected two texts in each of .renames, got NULL", who);
    return TT_OK;
}

static tt_status load_state(const tt_module_load_state_dict_args *args, bool copy) {
    if (!args->module || !args->state)
        return tt__fail_argument("%s: the %s is NULL", who, args->module ? "state" : "module");
    TT__TRY(tt__named_tensors_check(who, args->state, true));
    TT__TRY(check_renames(args));
    loading l = {.own = tt_module_state_dict(args->module), .state = args->state, .args = args};
    if (!l.own)
        return tt_last_status();
    l.source = calloc((size_t)l.own->count + 1, sizeof *l.source);
    l.target = calloc((size_t)l.state->count + 1, sizeof *l.target);
    tt_status status = l.source && l.target && index_places(&l)
                           ? load_matched(&l, copy)
                           : tt__fail(TT_ERR_MEMORY, "%s: no memory for %lld names", who, (long long)l.state->count);
    free(l.source);
    free(l.target);
    tt__name_map_free(&l.places);
    return status;
}

tt_status tt_module_load_state_dict_with(const tt_module_load_state_dict_args *given, size_t size) {
    tt_module_load_state_dict_args args;
    TT__ARGS_COPY(args, given, size);
    return load_state(&args, true);
}

tt_status tt__module_check_state(tt_module *module, const tt_named_tensors *state) {
    return load_state(&(tt_module_load_state_dict_args){.module = module, .state = state}, false);
}
