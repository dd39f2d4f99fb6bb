/* The values of the pickle machine, its errors, and the check of its result.
 *
 * A file may have the same list a thousand times inside another one, and that one a thousand times in a third: small
 * here, endless for a walk. So the result is checked to be a tree whose values, counted as a walk meets them, are not
 * too many for the file. */
#include "base/error.h"
#include "base/text/format.h"
#include "checkpoint/pickle.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

tt_status tt__pickle_fail(const tt__pickle *p, tt_status status, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    tt__vformat(text, sizeof text, format, args);
    va_end(args);
    return tt__fail(status, "%s: data.pkl, before byte %zu: %s", p->name, (size_t)(p->at - p->begin), text);
}

tt_status tt__pickle_values_add(tt__pickle_values *values, tt_value *v) {
    if (values->count == values->room) {
        size_t room = values->room ? 2 * values->room : 64;
        tt_value **item = realloc(values->item, room * sizeof *item);
        if (!item)
            return tt__fail(TT_ERR_MEMORY, "no memory for %zu values of a pickle", room);
        values->item = item;
        values->room = room;
    }
    values->item[values->count++] = v;
    return TT_OK;
}

tt_value *tt__pickle_new(tt__pickle *p, int type) {
    tt_value *v = tt__value_new(type);
    if (!v || !tt__pickle_values_add(&p->objects, v))
        return v;
    tt__value_release(v);
    return NULL;
}

tt_status tt__pickle_push(tt__pickle *p, tt_value *v) {
    return v ? tt__pickle_values_add(&p->stack, v) : tt_last_status();
}

/* ---- the result ---- */

/* Walks meet at most this many values for each byte of the pickle. A genuine file has less than one, except for
 * short tuples that are shared, such as betas. */
enum { VALUES_PER_BYTE = 16 };

static tt_status check_value(tt__pickle *p, tt_value *v, int depth, uint64_t *weight);

static int by_key(const void *a, const void *b) {
    return tt__value_compare_keys(*(tt_value *const *)a, *(tt_value *const *)b);
}

/* Check that no key of a dict comes twice. */
static tt_status check_dict_keys(const tt__pickle *p, const tt_value *dict) {
    tt_value **sorted = malloc((dict->count + 1) * sizeof *sorted);
    if (!sorted)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for a dict of %zu", p->name, dict->count);
    tt_status status = TT_OK;
    for (size_t i = 0; i < dict->count; i++)
        sorted[i] = dict->keys[i];
    qsort(sorted, dict->count, sizeof *sorted, by_key);
    for (size_t i = 1; i < dict->count && !status; i++)
        if (!by_key(&sorted[i - 1], &sorted[i]))
            status = tt__fail(TT_ERR_FORMAT, "%s: a dict has the key %s twice", p->name, TT__VALUE_TEXT(sorted[i]));
    free(sorted);
    return status;
}

/* Check what a container holds, and count the values that a walk of it meets. */
static tt_status check_items(tt__pickle *p, tt_value *v, int depth) {
    v->mark = TT__VALUE_OPEN;
    v->weight = 1;
    if (v->keys)
        TT__TRY(check_dict_keys(p, v));
    for (size_t i = 0; i < v->count; i++) {
        uint64_t weight;
        TT__TRY(check_value(p, v->items[i], depth + 1, &weight));
        v->weight += weight;
        if (v->depth <= v->items[i]->depth)
            v->depth = (unsigned char)(v->items[i]->depth + 1);
    }
    if (v->weight > VALUES_PER_BYTE * (uint64_t)(p->end - p->begin))
        return tt__fail(TT_ERR_FORMAT, "%s: its values hold each other so often that they are %llu or more", p->name,
                        (unsigned long long)v->weight);
    v->mark = TT__VALUE_SEEN;
    return TT_OK;
}

static tt_status check_value(tt__pickle *p, tt_value *v, int depth, uint64_t *weight) {
    *weight = 1;
    if (v->type >= TT__VALUE_GLOBAL)
        return tt__fail(TT_ERR_UNSUPPORTED, "%s: expected tensors, numbers, texts, lists and dicts, got %s", p->name,
                        TT__VALUE_TEXT(v));
    if (!tt__value_is_container(v))
        return TT_OK;
    if (v->mark == TT__VALUE_OPEN)
        return tt__fail(TT_ERR_FORMAT, "%s: %s holds itself", p->name, TT__VALUE_TEXT(v));
    if (v->mark == TT__VALUE_UNSEEN && depth < TT__VALUE_MAX_DEPTH)
        TT__TRY(check_items(p, v, depth));
    if (depth + v->depth >= TT__VALUE_MAX_DEPTH)
        return tt__fail(TT_ERR_FORMAT, "%s: expected values nested at most %d deep, got more", p->name,
                        TT__VALUE_MAX_DEPTH);
    *weight = v->weight;
    return TT_OK;
}

static void hold(tt_value *v) {
    v->refs++;
    v->has_parent = true;
}

/* Count the holders of what the seen containers hold, each container once. */
static void count_holders(tt__pickle *p) {
    for (size_t i = 0; i < p->objects.count; i++) {
        tt_value *v = p->objects.item[i];
        if (v->mark != TT__VALUE_SEEN)
            continue;
        for (size_t k = 0; k < v->count; k++) {
            hold(v->items[k]);
            if (v->keys)
                hold(v->keys[k]);
        }
    }
}

tt_status tt__pickle_take_tree(tt__pickle *p, tt_value *root) {
    uint64_t weight;
    TT__TRY(check_value(p, root, 0, &weight));
    for (size_t i = 0; i < p->objects.count; i++)
        p->objects.item[i]->refs = 0;
    count_holders(p);
    root->refs++;
    size_t left = 0;
    for (size_t i = 0; i < p->objects.count; i++)
        if (p->objects.item[i]->refs == 0)
            p->objects.item[left++] = p->objects.item[i];
    p->objects.count = left;
    return TT_OK;
}
