#include "checkpoint/entries.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

void tt__entries_free(tt__entries *e) {
    for (size_t i = 0; e->made && i < e->count; i++)
        free(e->made[i]);
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

bool tt__entry_is_optimizers(const char *name) {
    return strncmp(name, TT__OPTIMIZER_PREFIX, strlen(TT__OPTIMIZER_PREFIX)) == 0;
}

static tt_status add_optimizers(tt__entries *e, const char *name, tt_tensor *tensor) {
    if (asprintf(&e->made[e->count], TT__OPTIMIZER_PREFIX "%s", name) < 0) {
        e->made[e->count] = NULL;
        return tt__fail(TT_ERR_MEMORY, "no memory for the name " TT__OPTIMIZER_PREFIX "%s", name);
    }
    tt__entries_add(e, e->made[e->count], tensor);
    return TT_OK;
}

static tt_status collect_entries(tt__entries *e, const tt_named_tensors *model, const tt_named_tensors *optimizer) {
    for (int64_t i = 0; i < model->count; i++) {
        if (tt__entry_is_optimizers(model->names[i]))
            return tt__fail(TT_ERR_INVALID, "the model's \"%s\" can't be told from the optimizer's entries: rename it",
                            model->names[i]);
        tt__entries_add(e, model->names[i], model->tensors[i]);
    }
    for (int64_t i = 0; i < optimizer->count; i++)
        TT__TRY(add_optimizers(e, optimizer->names[i], optimizer->tensors[i]));
    return TT_OK;
}

tt_status tt__entries_collect(tt__entries *e, tt_module *model, tt_optimizer *optimizer) {
    const tt_named_tensors *of_model = tt_module_state_dict(model);
    const tt_named_tensors *of_optimizer =
        optimizer ? tt_optimizer_state_dict(optimizer) : TT_NAMED_TENSORS(0, NULL, NULL);
    if (!of_model || !of_optimizer)
        return tt_last_status();
    TT__TRY(tt__entries_make(e, (size_t)(of_model->count + of_optimizer->count)));
    return collect_entries(e, of_model, of_optimizer);
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
