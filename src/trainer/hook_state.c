/* Communication hooks in a run: they are set on its wrapper, and what they remember is part of its checkpoints. Each
 * rank's error feedback is its own, so rank 0 gathers every entry from all ranks, as (world_size, elements): a
 * checkpoint is one file, whole or not there. */
#include "base/error.h"
#include "parallel/hooks/comm_hook.h"
#include "reducer/text_agreement.h"
#include "tensor/core/tensor.h"
#include "trainer/run_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char who[] = "tt_trainer_run";

static const char prefix[] = "comm_hook.";

/* ---- gathering */

/* Do all ranks have the same entries? Collective. */
static tt_status agree_on_hook_entries(tt_group *group, const tt_named_tensors *own) {
    char **texts = calloc((size_t)own->count + 1, sizeof *texts);
    tt_status status = texts ? TT_OK : tt__fail(TT_ERR_MEMORY, "%s: no memory for a list of a hook's state", who);
    for (int64_t i = 0; i < own->count && !status; i++)
        if (asprintf(&texts[i], "\"%s\" %s", own->names[i], TT__DESCRIBE(own->tensors[i])) < 0) {
            texts[i] = NULL;
            status = tt__fail(TT_ERR_MEMORY, "%s: no memory for a list of a hook's state", who);
        }
    if (!status)
        status = tt__agree_on(group, who, (const char *const *)texts, (size_t)own->count);
    for (int64_t i = 0; texts && i < own->count; i++)
        free(texts[i]);
    free(texts);
    return status;
}

static tt_status gather_hook_entry(tt_trainer *t, const char *name, tt_tensor *own) {
    TT_AUTO_SCOPE;
    TT_NO_GRAD;
    int64_t count = tt_tensor_numel(own);
    tt_tensor *row = tt_reshape(own, TT_SHAPE(1, count));
    tt_tensor *all = !row || t->rank ? NULL : tt_zeros(TT_SHAPE(t->world, count), tt_tensor_dtype(own));
    if (!row || (!all && !t->rank))
        return tt_last_status();
    if (count > 0)
        TT__TRY(tt_tensor_gather_with(
            TT_ARGS(tt_tensor_gather_args, t->a.group, row, all, 0, .file = "the trainer's checkpoint")));
    return t->rank ? TT_OK : tt__dict_add_own(&t->hook_state, all, "%s%s", prefix, name);
}

static tt_status gather_hook_entries(tt_trainer *t) {
    const tt_named_tensors *own = tt_comm_hook_state_dict(t->ddp);
    if (!own)
        return tt_last_status();
    TT__TRY(agree_on_hook_entries(t->a.group, own));
    TT__TRY(tt__dict_init(&t->hook_state, who, (size_t)own->count));
    for (int64_t i = 0; i < own->count; i++)
        TT__TRY(gather_hook_entry(t, own->names[i], own->tensors[i]));
    return TT_OK;
}

tt_status tt__trainer_gather_hook(tt_trainer *t) {
    if (!t->a.comm_hook || !tt__hook_of(t->ddp))
        return TT_OK;
    const tt__joint_call call = tt__joint_call_begin(t->a.group, who);
    return tt__joint_call_end(&call, gather_hook_entries(t));
}

const tt_named_tensors *tt__trainer_hook_state(tt_trainer *t) {
    return t->hook_state.count ? tt__dict_finish(&t->hook_state, TT_OK) : NULL;
}

void tt__trainer_forget_hook(tt_trainer *t) { tt__dict_free(&t->hook_state); }

/* ---- going on */

/* Keep this rank's row of an entry. A checkpoint of another number of ranks gives row 0: of such, only entries that are
 * alike on all ranks are used. */
static tt_status keep_hook_entry(tt_trainer *t, const char *name, tt_tensor *all) {
    TT_AUTO_SCOPE;
    TT_NO_GRAD;
    if (tt_tensor_dim(all) != 2 || tt_tensor_size(all, 0) < 1)
        return tt__fail(TT_ERR_SHAPE, "%s: \"%s%s\": expected a row for each rank, got %s", who, prefix, name,
                        TT__DESCRIBE(all));
    tt_tensor *own = tt_select(all, 0, tt_tensor_size(all, 0) == t->world ? t->rank : 0);
    return tt__dict_add_own(&t->hook_state, own ? tt_clone(own) : NULL, "%s", name);
}

tt_status tt__trainer_keep_hook(void *user, const tt_named_tensors *more) {
    tt_trainer *t = user;
    const size_t length = strlen(prefix);
    TT__TRY(tt__dict_init(&t->hook_state, who, (size_t)more->count));
    for (int64_t i = 0; i < more->count; i++)
        if (!strncmp(more->names[i], prefix, length))
            TT__TRY(keep_hook_entry(t, more->names[i] + length, more->tensors[i]));
    return TT_OK;
}

tt_status tt__trainer_set_hook(tt_trainer *t) {
    if (!t->a.comm_hook)
        return TT_OK;
    const uint64_t errors = tt__error_count();
    tt_status status = t->a.comm_hook(t->ddp, t->a.user);
    if (status)
        return tt__fail_callback(errors, status, "%s: .comm_hook", who);
    if (!t->a.resume || !tt__hook_of(t->ddp))
        return TT_OK;
    status = tt_comm_hook_load_state_dict(t->ddp, tt__dict_finish(&t->hook_state, TT_OK));
    tt__trainer_forget_hook(t);
    return status ? tt__fail_prefix("%s: %s", who, t->a.resume) : TT_OK;
}
