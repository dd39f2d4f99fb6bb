#include "checkpoint/entries.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

const char *const tt__part_prefixes[TT__PARTS] = {"",        "optimizer.", "lr_scheduler.", "ema.",
                                                  "loader.", "generator.", "grad_scaler.",  "more."};

int tt__part_of(const char *name) {
    int part = TT__PARTS - 1;
    while (part > TT__PART_MODEL && strncmp(name, tt__part_prefixes[part], strlen(tt__part_prefixes[part])) != 0)
        part--;
    return part;
}

void tt__entries_free(tt__entries *e) {
    for (size_t i = 0; e->made && i < e->count; i++)
        free(e->made[i]);
    tt_tensor_free(e->generator);
    free(e->made);
    free(e->tensors);
    free(e->names);
    *e = (tt__entries){0};
}

void tt__entries_free_copies(tt__entries *e) {
    for (size_t i = 0; i < e->count; i++)
        tt_tensor_free(e->tensors[i]);
    tt__entries_free(e);
}

tt_status tt__entries_make(tt__entries *e, size_t room) {
    room = room ? room : 1;
    *e = (tt__entries){.names = calloc(room, sizeof *e->names),
                       .tensors = calloc(room, sizeof *e->tensors),
                       .made = calloc(room, sizeof *e->made)};
    if (e->names && e->tensors && e->made)
        return TT_OK;
    tt__entries_free(e);
    tt__fail(TT_ERR_MEMORY, "no memory to list a checkpoint's %zu tensors", room);
    return TT_ERR_MEMORY;
}

void tt__entries_add(tt__entries *e, const char *name, tt_tensor *tensor) {
    e->names[e->count] = name;
    e->tensors[e->count++] = tensor;
}

const tt_named_tensors *tt__entries_view(tt__entries *e) {
    e->view = (tt_named_tensors){sizeof e->view, (int64_t)e->count, e->names, e->tensors};
    return &e->view;
}

/* ---- collecting ---- */

static tt_status add_prefixed(tt__entries *e, const char *prefix, const char *name, tt_tensor *tensor) {
    if (asprintf(&e->made[e->count], "%s%s", prefix, name) < 0) {
        e->made[e->count] = NULL;
        return tt__fail(TT_ERR_MEMORY, "no memory for the name %s%s", prefix, name);
    }
    tt__entries_add(e, e->made[e->count], tensor);
    return TT_OK;
}

static tt_status collect_model(tt__entries *e, const tt_named_tensors *model) {
    for (int64_t i = 0; i < model->count; i++) {
        const int part = tt__part_of(model->names[i]);
        if (part != TT__PART_MODEL)
            return tt__fail(TT_ERR_INVALID,
                            "the model's \"%s\" can't be told from entries of \"%s\", another part: rename it",
                            model->names[i], tt__part_prefixes[part]);
        tt__entries_add(e, model->names[i], model->tensors[i]);
    }
    return TT_OK;
}

/* The list owns the tensor. */
static tt_status add_generator(tt__entries *e, tt_generator *generator) {
    e->generator = tt_keep(tt_generator_get_state(generator));
    return e->generator ? add_prefixed(e, tt__part_prefixes[TT__PART_GENERATOR], "state", e->generator)
                        : tt_last_status();
}

tt_status tt__entries_collect(tt__entries *e, const tt_checkpoint_save_args *a) {
    const tt_named_tensors *const none = TT_NAMED_TENSORS(0, NULL, NULL);
    const tt_named_tensors *of[TT__PARTS] = {tt_module_state_dict(a->model),
                                             a->optimizer ? tt_optimizer_state_dict(a->optimizer) : none,
                                             a->scheduler ? tt_lr_scheduler_state_dict(a->scheduler) : none,
                                             a->ema ? tt_ema_state_dict(a->ema) : none,
                                             a->loader ? tt_loader_state_dict(a->loader) : none,
                                             none,
                                             a->scaler ? tt_grad_scaler_state_dict(a->scaler) : none,
                                             a->more ? a->more : none};
    size_t room = 0;
    for (int part = 0; part < TT__PARTS; part++) {
        if (!of[part])
            return tt_last_status();
        room += (size_t)of[part]->count;
    }
    TT__TRY(tt__entries_make(e, room + 1));
    TT__TRY(collect_model(e, of[TT__PART_MODEL]));
    for (int part = TT__PART_MODEL + 1; part < TT__PARTS; part++)
        for (int64_t i = 0; i < of[part]->count; i++)
            TT__TRY(add_prefixed(e, tt__part_prefixes[part], of[part]->names[i], of[part]->tensors[i]));
    return a->generator ? add_generator(e, a->generator) : TT_OK;
}

tt_status tt__entries_copy(tt__entries *copies, const tt_named_tensors *of) {
    TT__TRY(tt__entries_make(copies, (size_t)of->count));
    for (int64_t i = 0; i < of->count; i++) {
        char *name = strdup(of->names[i]);
        if (!name)
            return tt__fail(TT_ERR_MEMORY, "no memory for the name %s", of->names[i]);
        copies->made[copies->count] = name;
        tt__entries_add(copies, name,
                        tt_keep(tt_empty(tt_tensor_shape(of->tensors[i]), tt_tensor_dtype(of->tensors[i]))));
        if (!copies->tensors[i])
            return tt_last_status();
        TT__TRY(tt_copy(copies->tensors[i], of->tensors[i]));
    }
    return TT_OK;
}
