/* Reading a checkpoint of any format as a list of entries. */
#include "base/error.h"
#include "checkpoint/value.h"
#include "cli/ckpt/ckpt.h"
#include "data/files/whole_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

uint64_t tt__ckpt_bytes(const tt_tensor *x) { return (uint64_t)tt_tensor_numel(x) * tt_dtype_size(tt_tensor_dtype(x)); }

/* Real names are far shorter. In a hostile file a text of a few MB could be part of 100,000 dotted names. */
enum { ROW_NAME_MAX = 64 << 10, ROW_NAMES_MAX = 256 << 20 };

static tt_status row_add(tt__ckpt_file *file, const char *name, tt_tensor *tensor, const tt_value *value) {
    if (file->count == file->room) {
        size_t room = file->room ? 2 * file->room : 64;
        tt__ckpt_row *rows = realloc(file->rows, room * sizeof *rows);
        if (!rows)
            return tt__fail(TT_ERR_MEMORY, "%s: no memory to list %zu entries", file->path, room);
        file->rows = rows;
        file->room = room;
    }
    file->name_bytes += strlen(name);
    if (file->name_bytes > ROW_NAMES_MAX)
        return tt__fail(TT_ERR_FORMAT, "%s: expected names of at most %d MiB together, got more", file->path,
                        ROW_NAMES_MAX >> 20);
    char *copy = strdup(name);
    if (!copy)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for a name", file->path);
    file->rows[file->count++] = (tt__ckpt_row){copy, tensor, value};
    return TT_OK;
}

/* Add what a tree holds, under dotted names. An empty container is an entry, too. */
static tt_status rows_of_value(tt__ckpt_file *file, const tt_value *v, const char *name) {
    if (!tt_value_count(v))
        return row_add(file, name, tt_value_typeof(v) == TT_VALUE_TENSOR ? tt_value_tensor(v) : NULL, v);
    tt_status status = TT_OK;
    for (int64_t i = 0; i < tt_value_count(v) && !status; i++) {
        const tt_value *key = tt_value_typeof(v) == TT_VALUE_DICT ? tt_value_key(v, i) : NULL;
        int64_t number = i;
        char *inner;
        int n = 0;
        if (key && tt_value_typeof(key) == TT_VALUE_INT)
            status = tt_value_get_int(&number, key);
        if (key && tt_value_typeof(key) == TT_VALUE_STRING)
            n = asprintf(&inner, "%s%s%s", name, *name ? "." : "", tt_value_string(key));
        else
            n = asprintf(&inner, "%s%s%" PRId64, name, *name ? "." : "", number);
        if (n < 0)
            return tt__fail(TT_ERR_MEMORY, "%s: no memory for a name", file->path);
        if (!status && n >= ROW_NAME_MAX)
            status = tt__fail(TT_ERR_FORMAT, "%s: expected names below %d KiB, got one of %d bytes", file->path,
                              ROW_NAME_MAX >> 10, n);
        if (!status)
            status = rows_of_value(file, tt_value_at(v, i), inner);
        free(inner);
    }
    return status;
}

static tt_status rows_of_tensors(tt__ckpt_file *file, const tt_named_tensors *tensors) {
    for (int64_t i = 0; i < tensors->count; i++)
        TT__TRY(row_add(file, tensors->names[i], tensors->tensors[i], NULL));
    return TT_OK;
}

/* By name, then in the file's order. */
static int order_rows(const void *a, const void *b) {
    const tt__ckpt_row *x = *(tt__ckpt_row *const *)a, *y = *(tt__ckpt_row *const *)b;
    int order = strcmp(x->name, y->name);
    return order ? order : (x > y) - (x < y);
}

static tt_status sort_ckpt_rows(tt__ckpt_file *file) {
    file->by_name = malloc((file->count + 1) * sizeof *file->by_name);
    if (!file->by_name)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory to list %zu entries", file->path, file->count);
    for (size_t i = 0; i < file->count; i++)
        file->by_name[i] = &file->rows[i];
    qsort(file->by_name, file->count, sizeof *file->by_name, order_rows);
    return TT_OK;
}

/* Does the file begin as a zip archive does? If it can't be read, its reader will say so. */
static bool is_archive(const char *path) {
    char head[4] = "";
    int fd;
    uint64_t size;
    size_t got = 0;
    if (tt__file_open(&fd, &size, path))
        return false;
    bool read = !tt__file_read_at(fd, path, head, sizeof head, 0, &got) && got == sizeof head;
    close(fd);
    return read && !memcmp(head, "PK\3\4", sizeof head);
}

tt_status tt__ckpt_open(tt__ckpt_file *file, const char *path) {
    bool archive = is_archive(path);
    *file = (tt__ckpt_file){.path = path, .format = archive ? "pt" : "safetensors"};
    tt_status status = archive ? tt_torch_load(&file->value, path) : tt_safetensors_load(&file->safetensors, path);
    if (!status)
        status = archive ? rows_of_value(file, file->value, "")
                         : rows_of_tensors(file, tt_safetensors_tensors(file->safetensors));
    return status ? status : sort_ckpt_rows(file);
}

void tt__ckpt_free(tt__ckpt_file *file) {
    for (size_t i = 0; i < file->count; i++)
        free(file->rows[i].name);
    free(file->rows);
    free(file->by_name);
    tt_safetensors_free(file->safetensors);
    tt_value_free(file->value);
    *file = (tt__ckpt_file){0};
}

const tt__ckpt_row *tt__ckpt_find(const tt__ckpt_file *file, const char *name) {
    size_t low = 0, high = file->count; /* the first that is not before the name */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(file->by_name[middle]->name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < file->count && !strcmp(file->by_name[low]->name, name) ? file->by_name[low] : NULL;
}

size_t tt__ckpt_tensors(const tt__ckpt_file *file, uint64_t *bytes) {
    size_t count = 0;
    *bytes = 0;
    for (size_t i = 0; i < file->count; i++) {
        count += file->rows[i].tensor != NULL;
        *bytes += file->rows[i].tensor ? tt__ckpt_bytes(file->rows[i].tensor) : 0;
    }
    return count;
}

const char *tt__ckpt_describe(const tt__ckpt_row *row, char *text, size_t size) {
    if (row->tensor)
        return tt_tensor_describe(row->tensor, text, size);
    return tt__value_describe(row->value, text, size);
}
