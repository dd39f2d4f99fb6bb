/* The parts of an elastic job's state: copying them, and binding them to a group. A copy holds for each part the name's
 * size, the name, the size, the bytes. The name is there because the rank that reads it may have registered something
 * else. */
#include "elastic/elastic.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

struct tt_elastic_writer {
    tt__bytes *out;
};

void tt_elastic_write(tt_elastic_writer *writer, const void *data, size_t size) {
    if (writer && size)
        tt__bytes_put(writer->out, data, size);
}

tt_status tt__parts_append(tt__parts *parts, const char *name, const tt_elastic_part_class *cls, void *user) {
    if (parts->count == parts->capacity) {
        size_t capacity = parts->capacity ? 2 * parts->capacity : 8;
        tt__elastic_part *list = realloc(parts->list, capacity * sizeof *list);
        if (!list)
            return tt__fail(TT_ERR_MEMORY, "tt_elastic_add_part: no memory for %zu parts", capacity);
        parts->list = list;
        parts->capacity = capacity;
    }
    char *copy = strdup(name);
    if (!copy)
        return tt__fail(TT_ERR_MEMORY, "tt_elastic_add_part: no memory for a name");
    parts->list[parts->count++] = (tt__elastic_part){.name = copy, .cls = *cls, .user = user};
    return TT_OK;
}

/* ---- copies ---- */

static void put_size(tt__bytes *out, uint64_t size) { tt__bytes_put(out, &size, sizeof size); }

/* Write a part, and then its size in front of it. */
static tt_status save_part(const tt__elastic_part *part, tt__bytes *out) {
    tt_elastic_writer writer = {out};
    uint64_t errors = tt__error_count(), size = strlen(part->name);
    put_size(out, size);
    tt__bytes_put(out, part->name, size);
    size_t at = out->size;
    put_size(out, 0);
    tt_status status = part->cls.save(part->user, &writer);
    if (status)
        return tt__fail_callback(errors, status, "tt_elastic_commit: \"%s\"", part->name);
    if (out->failed)
        return tt__fail(TT_ERR_MEMORY, "tt_elastic_commit: no memory for a copy of \"%s\"", part->name);
    size = out->size - at - sizeof size;
    memcpy(out->data + at, &size, sizeof size);
    return TT_OK;
}

tt_status tt__parts_save(const tt__parts *parts, tt__bytes *out) {
    out->size = 0;
    out->failed = false;
    for (size_t i = 0; i < parts->count; i++)
        TT__TRY(save_part(&parts->list[i], out));
    return TT_OK;
}

/* Take the next size and as many bytes. False: there are fewer. */
static bool take_run(const tt__bytes *copy, size_t *at, tt__span *run) {
    uint64_t size;
    if (copy->size - *at < sizeof size)
        return false;
    memcpy(&size, copy->data + *at, sizeof size);
    *at += sizeof size;
    if (size > copy->size - *at)
        return false;
    *run = (tt__span){copy->data + *at, (size_t)size};
    *at += run->size;
    return true;
}

static tt_status fail_other_parts(const tt__elastic_part *part, const tt__span *name) {
    return tt__fail(
        TT_ERR_MISMATCH,
        "tt_elastic_restore: this rank registered %s%.100s%s where another one registered %s%.*s%s: all ranks "
        "register the same parts in the same order",
        part ? "\"" : "", part ? part->name : "nothing", part ? "\"" : "", name ? "\"" : "",
        name ? (int)(name->size < 100 ? name->size : 100) : 7, name ? (const char *)name->data : "nothing",
        name ? "\"" : "");
}

tt_status tt__parts_load(const tt__parts *parts, const tt__bytes *copy) {
    size_t at = 0;
    tt__span name, state;
    for (size_t i = 0; i < parts->count; i++) {
        const tt__elastic_part *part = &parts->list[i];
        if (!take_run(copy, &at, &name) || !take_run(copy, &at, &state))
            return fail_other_parts(part, NULL);
        if (name.size != strlen(part->name) || memcmp(name.data, part->name, name.size) != 0)
            return fail_other_parts(part, &name);
        uint64_t errors = tt__error_count();
        tt_status status = part->cls.load(part->user, state.data, state.size);
        if (status)
            return tt__fail_callback(errors, status, "tt_elastic_restore: \"%s\"", part->name);
    }
    return take_run(copy, &at, &name) ? fail_other_parts(NULL, &name) : TT_OK;
}

/* ---- the group they stand on ---- */

tt_status tt__parts_bind(tt__parts *parts, tt_group *group) {
    for (; parts->bound < parts->count; parts->bound++) {
        const tt__elastic_part *part = &parts->list[parts->bound];
        uint64_t errors = tt__error_count();
        tt_status status = part->cls.bind ? part->cls.bind(part->user, group) : TT_OK;
        if (status)
            return tt__fail_callback(errors, status, "tt_elastic_restore: \"%s\"", part->name);
    }
    return TT_OK;
}

void tt__parts_unbind(tt__parts *parts) {
    tt__saved_error saved;
    tt__error_save(&saved);
    for (; parts->bound; parts->bound--) {
        const tt__elastic_part *part = &parts->list[parts->bound - 1];
        if (part->cls.bind)
            tt_ignore(part->cls.bind(part->user, NULL));
    }
    tt__error_restore(&saved);
}

void tt__parts_free(tt__parts *parts) {
    for (size_t i = parts->count; i-- > 0;) {
        const tt__elastic_part *part = &parts->list[i];
        if (part->cls.destroy)
            part->cls.destroy(part->user);
        free(part->name);
    }
    free(parts->list);
    *parts = (tt__parts){0};
}
