/* The tensors of a tree under dotted names: {"model": {"conv": {"weight": x}}} has "model.conv.weight". */
#include "checkpoint/value.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "checkpoint/safetensors.h"

/* The most bytes of one name, and of all names together. */
enum { NAME_MAX_BYTES = 1024, NAMES_MAX_BYTES = 256 << 20 };

struct tt__value_names {
    size_t count, room, bytes;
    char **names;
    tt_tensor **tensors;
    tt_named_tensors list;
};

typedef struct tt__value_names names_list;

void tt__value_names_free(names_list *l) {
    if (!l)
        return;
    for (size_t i = 0; i < l->count; i++)
        free(l->names[i]);
    free(l->names);
    free(l->tensors);
    free(l);
}

static tt_status names_reserve(names_list *l) {
    if (l->count < l->room)
        return TT_OK;
    size_t room = l->room ? 2 * l->room : 16;
    char **names = realloc(l->names, room * sizeof *names);
    l->names = names ? names : l->names;
    tt_tensor **tensors = names ? realloc(l->tensors, room * sizeof *tensors) : NULL;
    l->tensors = tensors ? tensors : l->tensors;
    l->room = tensors ? room : l->room;
    return tensors ? TT_OK : tt__fail(TT_ERR_MEMORY, "tt_value_tensors: no memory to list %zu tensors", room);
}

static tt_status names_add(names_list *l, const char *name, tt_tensor *x) {
    TT__TRY(names_reserve(l));
    l->bytes += strlen(name);
    if (l->bytes > NAMES_MAX_BYTES)
        return tt__fail(TT_ERR_INVALID, "tt_value_tensors: expected names of at most %d bytes together, got more",
                        NAMES_MAX_BYTES);
    l->names[l->count] = strdup(name);
    if (!l->names[l->count])
        return tt__fail(TT_ERR_MEMORY, "tt_value_tensors: no memory for a name");
    l->tensors[l->count++] = x;
    return TT_OK;
}

/* Write an item's name after the `used` bytes of its container's. Returns the length, or -1 with an error. */
static int name_item(const tt_value *container, size_t i, char *name, size_t used) {
    const tt_value *key = container->keys ? container->keys[i] : NULL;
    size_t room = NAME_MAX_BYTES - used;
    const char *dot = used ? "." : "";
    int n;
    if (key && key->type == TT_VALUE_STRING)
        n = snprintf(name + used, room, "%s%s", dot, key->string);
    else
        n = snprintf(name + used, room, "%s%" PRId64, dot, key ? key->integer : (int64_t)i);
    if (n >= 0 && (size_t)n < room)
        return (int)used + n;
    tt__fail(TT_ERR_INVALID, "tt_value_tensors: expected names below %d bytes, got a longer one: %s", NAME_MAX_BYTES,
             tt__make_printable(name).text);
    return -1;
}

/* Add all tensors of v, whose name is the first `used` bytes of `name`. */
static tt_status names_collect(names_list *l, const tt_value *v, char *name, size_t used) {
    name[used] = 0;
    if (v->type == TT_VALUE_TENSOR)
        return names_add(l, name, v->tensor);
    for (size_t i = 0; i < v->count; i++) {
        if (v->items[i]->type != TT_VALUE_TENSOR && !v->items[i]->count)
            continue;
        int length = name_item(v, i, name, used);
        if (length < 0)
            return tt_last_status();
        TT__TRY(names_collect(l, v->items[i], name, (size_t)length));
    }
    return TT_OK;
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Check that no name comes twice, as {"a.b": x, "a": {"b": y}} would make. */
static tt_status names_check(const names_list *l) {
    char **sorted = malloc((l->count + 1) * sizeof *sorted);
    if (!sorted)
        return tt__fail(TT_ERR_MEMORY, "tt_value_tensors: no memory to list %zu tensors", l->count);
    tt_status status = TT_OK;
    if (l->count)
        memcpy(sorted, l->names, l->count * sizeof *sorted);
    qsort(sorted, l->count, sizeof *sorted, by_text);
    for (size_t i = 1; i < l->count && !status; i++)
        if (!strcmp(sorted[i - 1], sorted[i]))
            status = tt__fail(TT_ERR_INVALID, "tt_value_tensors: two tensors have the dotted name \"%s\"",
                              tt__make_printable(sorted[i]).text);
    free(sorted);
    return status;
}

const tt_named_tensors *tt_value_tensors(const tt_value *value) {
    if (!value || value->names)
        return value ? &value->names->list : NULL;
    char name[NAME_MAX_BYTES];
    names_list *l = calloc(1, sizeof *l);
    if (!l)
        return tt__fail_null(TT_ERR_MEMORY, "tt_value_tensors: no memory for a list");
    if (names_collect(l, value, name, 0) || names_check(l)) {
        tt__value_names_free(l);
        return NULL;
    }
    l->list = (tt_named_tensors){sizeof l->list, (int64_t)l->count, (const char *const *)l->names, l->tensors};
    ((tt_value *)value)->names = l; /* every value is allocated: none is a constant */
    return &l->list;
}
