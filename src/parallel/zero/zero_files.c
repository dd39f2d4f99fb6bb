/* Sharded checkpoints. Each rank writes a file with its slices of each entry of state, and with their places ("slices":
 * (parameters, 3), the parameter's number, first element, elements). Rank 0 then writes the file of the given name,
 * with the entries that are alike on all ranks, the number of files, and a number of its own for this save. A rank that
 * loads reads all files, one at a time, and takes the elements of its slices. */
#include "parallel/zero/zero.h"
#include "reducer/text_agreement.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "comm/group.h"

#include <tutti/checkpoint.h>

static const char save_name[] = "tt_zero_save_sharded";
static const char sharded_load_name[] = "tt_zero_load_sharded";
static const char suffix[] = ".safetensors";
static const char slices_name[] = "slices";

enum { SLICE_COLUMNS = 3 };

/* A list of tensors under construction; the tensors are the open scope's. */
typedef struct entry_list {
    const char **names;
    tt_tensor **tensors;
    int64_t count, room;
} entry_list;

static tt_status make_entries(const char *who, entry_list *list, int64_t room) {
    *list =
        (entry_list){calloc((size_t)room + 1, sizeof(char *)), calloc((size_t)room + 1, sizeof(tt_tensor *)), 0, room};
    return list->names && list->tensors
               ? TT_OK
               : tt__fail(TT_ERR_MEMORY, "%s: no memory for %lld entries", who, (long long)room);
}

static void free_entries(entry_list *list) {
    free(list->names);
    free(list->tensors);
}

static tt_status add_entry(entry_list *list, const char *name, tt_tensor *x) {
    if (!x)
        return tt_last_status();
    if (list->count == list->room)
        return tt__fail(TT_ERR_FORMAT, "more entries than the optimizer can have, %lld", (long long)list->room);
    list->names[list->count] = name;
    list->tensors[list->count++] = x;
    return TT_OK;
}

static const tt_named_tensors *as_tensors(const entry_list *list, tt_named_tensors *to) {
    *to = (tt_named_tensors){sizeof *to, list->count, list->names, list->tensors};
    return to;
}

/* ---- names and agreement ---- */

/* *file := "NAME-00001-of-00004.safetensors" for rank 0 of 4, which the caller frees. */
static tt_status file_of_rank(const char *who, const char *path, int rank, int world, char **file) {
    size_t length = strlen(path), end = sizeof suffix - 1;
    *file = NULL;
    if (asprintf(file, "%.*s-%05d-of-%05d%s", (int)(length - end), path, rank + 1, world, suffix) < 0)
        return *file = NULL, tt__fail(TT_ERR_MEMORY, "%s: no memory for a path", who);
    return TT_OK;
}

static tt_status check_files_path(const char *who, const char *path) {
    size_t length = path ? strlen(path) : 0, end = sizeof suffix - 1;
    if (length > end && !strcmp(path + length - end, suffix))
        return TT_OK;
    return tt__fail(TT_ERR_INVALID, "%s: expected a path that ends in \"%s\", got %s", who, suffix,
                    path ? path : "NULL");
}

/* ---- saving ---- */

static int64_t number_of_parameters(const tt_optimizer *o) {
    const tt__optim_group *last = &o->groups[o->group_count - 1];
    return last->first + (int64_t)last->count;
}

/* Return the places of this rank's slices, (parameters, 3). */
static tt_tensor *list_slices(const tt__zero *z) {
    const tt_optimizer *o = z->optimizer;
    tt_tensor *list = tt_zeros(TT_SHAPE(number_of_parameters(o), SLICE_COLUMNS), TT_I64);
    int64_t *row = tt_tensor_i64(list);
    for (size_t g = 0; g < o->group_count && row; g++)
        for (size_t i = 0; i < o->groups[g].count; i++, row += SLICE_COLUMNS) {
            const tt__optim_param *q = &o->groups[g].params[i];
            const tt__zero_param *p = tt__zero_param_of(z, q->low ? q->low : q->tensor);
            row[0] = o->groups[g].first + (int64_t)i;
            row[1] = p->from;
            row[2] = p->n;
        }
    return list;
}

/* List the entries that are slices, or those that aren't. */
static tt_status select_entries(const tt__zero *z, const tt_named_tensors *own, bool slices, entry_list *list) {
    for (int64_t i = 0; i < own->count; i++)
        if ((tt__zero_state_of(z, own->names[i]) != NULL) == slices)
            TT__TRY(add_entry(list, own->names[i], own->tensors[i]));
    return slices ? add_entry(list, slices_name, list_slices(z)) : TT_OK;
}

static tt_status write_file(const tt__zero *z, const char *path, bool slices, int64_t save) {
    char world_text[24], save_text[24];
    const tt_metadata metadata[] = {{"zero.world_size", world_text}, {"zero.save", save_text}};
    const tt_named_tensors *own = tt__optim_own_state_dict(z->optimizer);
    entry_list list;
    tt_named_tensors tensors;
    if (!own)
        return tt_last_status();
    snprintf(world_text, sizeof world_text, "%d", z->world);
    snprintf(save_text, sizeof save_text, "%" PRId64, save);
    tt_status status = make_entries(save_name, &list, own->count + 1);
    if (!status)
        status = select_entries(z, own, slices, &list);
    if (!status)
        status = tt_safetensors_save(path, as_tensors(&list, &tensors), metadata, 2);
    free_entries(&list);
    return status;
}

/* *save := a number for this save, drawn by rank 0. */
static tt_status number_save(const tt__zero *z, int64_t *save) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    *save = (((int64_t)now.tv_sec * 1000000000 + now.tv_nsec) ^ ((int64_t)getpid() << 40)) & INT64_MAX;
    return tt__group_take_first(z->group, save, sizeof *save, save_name);
}

static tt_status save_own_file(const tt__zero *z, const char *path, int64_t save) {
    char *file;
    TT__TRY(file_of_rank(save_name, path, z->rank, z->world, &file));
    tt_status status = write_file(z, file, true, save);
    free(file);
    return status;
}

/* `ready`: can this rank save? The others are told. */
static tt_status save_sharded_files(const tt__zero *z, const char *path, tt_status ready) {
    int64_t save;
    tt_status numbered = number_save(z, &save);
    if (ready || numbered)
        return ready ? tt__agree_on_success(z->group, save_name, ready) : numbered;
    TT__TRY(tt__agree_on_success(z->group, save_name, save_own_file(z, path, save)));
    return tt__agree_on_success(z->group, save_name, z->rank == 0 ? write_file(z, path, false, save) : TT_OK);
}

tt_status tt_zero_save_sharded(tt_optimizer *optimizer, const char *path) {
    const tt__zero *z = tt__zero_of(save_name, optimizer);
    if (!z)
        return tt_last_status();
    int scope = tt_scope_begin();
    tt_status ready = scope ? check_files_path(save_name, path) : tt_last_status();
    tt_status status = save_sharded_files(z, path, ready);
    tt_scope_end(scope);
    return status;
}

/* ---- loading ---- */

/* The state of a load. */
typedef struct sharded_load {
    const tt__zero *z;
    const char *path;
    tt_safetensors *common;
    int64_t world; /* files */
    entry_list entries;
    char **own_names; /* of the entries that are slices */
    int64_t *end;     /* by entry: the end of the elements that files had so far */
} sharded_load;

static tt_status broken(const char *path, const char *what) {
    return tt__fail(TT_ERR_FORMAT, "%s: \"%s\" %s", sharded_load_name, path, what);
}

/* Open a file, and read how many files its save has. With `like`, check that both are of the same save. */
static tt_status open_sharded_file(const char *path, const tt_safetensors *like, int64_t *world,
                                   tt_safetensors **file) {
    TT__TRY(tt_safetensors_load(file, path));
    const char *count = tt_safetensors_metadata(*file, "zero.world_size"),
               *save = tt_safetensors_metadata(*file, "zero.save");
    *world = count ? strtoll(count, NULL, 10) : 0;
    tt_status status = TT_OK;
    if (*world < 1 || *world > 99999 || !save)
        status = broken(path, "was not written by tt_zero_save_sharded()");
    else if (like && strcmp(save, tt_safetensors_metadata(like, "zero.save")) != 0)
        status = broken(path, "is of another save than the others; was one interrupted?");
    if (status) {
        tt_safetensors_free(*file);
        *file = NULL;
    }
    return status;
}

/* Find the row of a parameter in a file's list. */
static const int64_t *find_slice(const tt_tensor *slices, const char *name) {
    const tt_shape shape = tt_tensor_shape(slices);
    if (!slices || tt_tensor_dtype(slices) != TT_I64 || shape.ndim != 2 || shape.dim[1] != SLICE_COLUMNS)
        return NULL;
    const int64_t number = strtoll(name + strlen("state."), NULL, 10), *rows = tt_tensor_data(slices);
    for (int64_t i = 0; i < shape.dim[0]; i++)
        if (rows[i * SLICE_COLUMNS] == number)
            return &rows[i * SLICE_COLUMNS];
    return NULL;
}

/* Find the place of an entry; it is made, with zeros, when it first occurs. */
static tt_status entry_place(sharded_load *load, const tt__zero_param *p, const char *name, tt_dtype dtype,
                             int64_t *place) {
    entry_list *list = &load->entries;
    for (*place = 0; *place < list->count; ++*place)
        if (load->own_names[*place] && !strcmp(load->own_names[*place], name))
            return TT_OK;
    char *copy = strdup(name);
    tt_status status =
        copy ? add_entry(list, copy, tt_zeros(TT_SHAPE(p->n), dtype)) : tt__fail(TT_ERR_MEMORY, "no memory for a name");
    if (status)
        return free(copy), status;
    load->own_names[*place] = copy;
    return TT_OK;
}

/* Copy the elements of x that are in this rank's slice. x has elements from..from+n-1 of the parameter. */
static tt_status take_slice(sharded_load *load, const char *path, const char *name, const tt_tensor *x,
                            const int64_t *row) {
    const tt__zero_param *p = tt__zero_state_of(load->z, name);
    if (!p)
        return tt__fail(TT_ERR_NOT_FOUND, "%s: unexpected entry \"%s\" in \"%s\": the optimizer has no such parameter",
                        sharded_load_name, name, path);
    if (!row || row[1] < 0 || row[2] != tt_tensor_numel(x) || row[1] > INT64_MAX - row[2])
        return broken(path, "doesn't say which elements it has");
    const int64_t end = row[1] + row[2];
    int64_t place;
    if (entry_place(load, p, name, tt_tensor_dtype(x), &place))
        return tt__fail_prefix("%s: \"%s\": \"%s\"", sharded_load_name, path, name);
    tt_tensor *to = load->entries.tensors[place];
    if (tt_tensor_dtype(to) != tt_tensor_dtype(x))
        return broken(path, "has another element type than the others");
    if (row[2] && row[1] != load->end[place]) /* slices follow each other in the order of ranks */
        return broken(path, "has other elements than those that come after the files' before it");
    const int64_t from = row[1] > p->from ? row[1] : p->from, until = end < p->from + p->n ? end : p->from + p->n;
    const size_t size = tt_dtype_size(tt_tensor_dtype(x));
    if (until > from)
        memcpy((char *)to->data + (size_t)(from - p->from) * size,
               (const char *)x->data + (size_t)(from - row[1]) * size, (size_t)(until - from) * size);
    load->end[place] += row[2];
    return TT_OK;
}

static tt_status take_file(sharded_load *load, const char *path) {
    tt_safetensors *file = NULL;
    int64_t world;
    TT__TRY(open_sharded_file(path, load->common, &world, &file));
    const tt_named_tensors *tensors = tt_safetensors_tensors(file);
    const tt_tensor *slices = tt_named_tensors_find(tensors, slices_name);
    tt_status status = TT_OK;
    for (int64_t i = 0; i < tensors->count && !status; i++)
        if (!strncmp(tensors->names[i], "state.", strlen("state.")))
            status =
                take_slice(load, path, tensors->names[i], tensors->tensors[i], find_slice(slices, tensors->names[i]));
    tt_safetensors_free(file);
    return status;
}

static tt_status take_files(sharded_load *load) {
    for (int r = 0; r < (int)load->world; r++) {
        char *file;
        TT__TRY(file_of_rank(sharded_load_name, load->path, r, (int)load->world, &file));
        tt_status status = take_file(load, file);
        free(file);
        TT__TRY(status);
    }
    return TT_OK;
}

/* Check that the files had all elements of parameters of these sizes. */
static tt_status check_covered(const sharded_load *load) {
    for (int64_t i = 0; i < load->entries.count; i++) {
        if (!load->own_names[i])
            continue;
        const tt__zero_param *p = tt__zero_state_of(load->z, load->own_names[i]);
        if (load->end[i] != p->numel)
            return tt__fail(TT_ERR_SHAPE, "%s: \"%s\": expected the state of \"%s\", %lld elements, got %lld",
                            sharded_load_name, load->own_names[i], p->name, (long long)p->numel,
                            (long long)load->end[i]);
    }
    return TT_OK;
}

static tt_status load_sharded_parts(sharded_load *load) {
    tt_named_tensors tensors;
    const tt_named_tensors *common = tt_safetensors_tensors(load->common);
    for (int64_t i = 0; i < common->count; i++)
        TT__TRY(add_entry(&load->entries, common->names[i], common->tensors[i]));
    TT__TRY(take_files(load));
    TT__TRY(check_covered(load));
    return tt__optim_load_own_state_dict(load->z->optimizer, as_tensors(&load->entries, &tensors));
}

static tt_status load_sharded_files(sharded_load *load) {
    /* a bound on the entries that files may have: masters, and the optimizer's slots */
    const int64_t room = number_of_parameters(load->z->optimizer) * (TT__OPTIM_SLOTS + 2);
    TT__TRY(open_sharded_file(load->path, NULL, &load->world, &load->common));
    const int64_t all = room + tt_safetensors_tensors(load->common)->count;
    tt_status status = make_entries(sharded_load_name, &load->entries, all);
    load->own_names = calloc((size_t)all + 1, sizeof(char *));
    load->end = calloc((size_t)all + 1, sizeof *load->end);
    if (!status && (!load->own_names || !load->end))
        status = tt__fail(TT_ERR_MEMORY, "%s: no memory for %lld entries", sharded_load_name, (long long)all);
    if (!status)
        status = load_sharded_parts(load);
    for (int64_t i = 0; load->own_names && i < load->entries.count; i++)
        free(load->own_names[i]);
    free(load->own_names);
    free(load->end);
    free_entries(&load->entries);
    tt_safetensors_free(load->common);
    return status;
}

tt_status tt_zero_load_sharded(tt_optimizer *optimizer, const char *path) {
    tt__zero *z = tt__zero_of(sharded_load_name, optimizer);
    if (!z)
        return tt_last_status();
    int scope = tt_scope_begin();
    tt_status status = scope ? check_files_path(sharded_load_name, path) : tt_last_status();
    if (!status)
        status = load_sharded_files(&(sharded_load){.z = z, .path = path});
    tt_scope_end(scope);
    tt__zero_forget_state(z);
    return tt__agree_on_success(z->group, sharded_load_name, status);
}
