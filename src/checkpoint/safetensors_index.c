/* Tensors in several safetensors files, as Hugging Face lays them out: model.safetensors.index.json says in which of
 * model-00001-of-00002.safetensors ... each lies:
 *
 *   {"metadata":{"total_size":1234},"weight_map":{"w":"model-00001-of-00002.safetensors", ...}}
 *
 * Each save has a number, which its index and its files carry as metadata: a save that was killed may leave some of its
 * files beside others of the one before. */
#include "base/args.h"
#include "base/error.h"
#include "base/text/json.h"
#include "base/text/parse.h"
#include "checkpoint/safetensors.h"
#include "data/files/whole_file.h"
#include "tensor/core/named_tensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/machine/clock.h"
#include "base/random_bytes.h"
#define INDEX_ENDING ".safetensors.index.json"
#define WEIGHT_MAP "weight_map"
#define SAVE "tutti.save"

static const uint64_t default_shard_bytes = UINT64_C(5000000000); /* as transformers' */

/* Does the path name an index of several files, "model.safetensors.index.json"? */
static bool is_index_path(const char *path) { return tt__ends_with(path, INDEX_ENDING); }

/* Make the path of a file beside the index; the caller's to free. */
static char *path_beside(const char *index, const char *file) {
    const char *slash = strrchr(index, '/');
    char *path;
    if (asprintf(&path, "%.*s%s", slash ? (int)(slash + 1 - index) : 0, index, file) < 0)
        return tt__fail_null(TT_ERR_MEMORY, "%s: no memory for a path", index);
    return path;
}

/* ---- reading ---- */

static tt_status parse_index(const char *path, json_t **index) {
    tt__whole_file text;
    json_error_t error;
    TT__TRY(tt__whole_file_read(&text, path, TT__SAFETENSORS_MAX_HEADER));
    *index = tt__json_loadb((const char *)text.data, text.size, JSON_REJECT_DUPLICATES, &error);
    tt__whole_file_free(&text);
    if (!*index)
        return tt__fail(json_error_code(&error) == json_error_out_of_memory ? TT_ERR_MEMORY : TT_ERR_FORMAT,
                        "%s: no valid JSON: %s (line %d)", path, tt__make_printable(error.text).text, error.line);
    return TT_OK;
}

/* Check where tensors are said to lie: in files beside the index, never elsewhere. */
static tt_status check_map(const char *path, json_t *map) {
    const char *name;
    json_t *file;
    if (!json_is_object(map))
        return tt__fail(TT_ERR_FORMAT, "%s: expected an object \"" WEIGHT_MAP "\" of tensors' files", path);
    json_object_foreach(map, name, file) {
        const char *text = json_string_value(file);
        if (!text || !*text || text[0] == '.' || strchr(text, '/') || strchr(text, '\\'))
            return tt__fail(TT_ERR_FORMAT,
                            "%s: tensor \"%s\": expected the name of a file beside the index, got %s%s%s", path,
                            tt__make_printable(name).text, text ? "\"" : "",
                            text ? tt__make_printable(text).text : "something else", text ? "\"" : "");
    }
    return TT_OK;
}

static tt_status load_part(tt_safetensors *all, const char *index, const char *file, bool skip) {
    char *path = path_beside(index, file);
    if (!path)
        return tt_last_status();
    tt_status status = tt__safetensors_read_file(&all->parts[all->part_count], path, skip);
    if (!status)
        all->part_count++;
    free(path);
    return status;
}

/* Load each file of the map once. */
static tt_status load_shards(tt_safetensors *all, const char *index, json_t *map, bool skip) {
    json_t *seen = json_object();
    const char *name;
    json_t *file;
    tt_status status = seen ? TT_OK : tt__fail(TT_ERR_MEMORY, "%s: no memory to list its files", index);
    json_object_foreach(map, name, file) {
        if (status || json_object_get(seen, json_string_value(file)))
            continue;
        if (json_object_set_new(seen, json_string_value(file), json_integer((json_int_t)all->part_count)))
            status = tt__fail(TT_ERR_MEMORY, "%s: no memory to list its files", index);
        else
            status = load_part(all, index, json_string_value(file), skip);
    }
    json_decref(seen);
    return status;
}

typedef struct place {
    const char *name;
    tt_tensor *tensor;
} place;

static int by_place_name(const void *a, const void *b) {
    return strcmp(((const place *)a)->name, ((const place *)b)->name);
}

/* Collect the parts' tensors, sorted by name. */
static tt_status join_tensors(tt_safetensors *all, const char *index, place *places) {
    for (size_t p = 0; p < all->part_count; p++) {
        const tt_named_tensors *list = tt_safetensors_tensors(all->parts[p]);
        for (int64_t i = 0; i < list->count; i++)
            places[all->count++] = (place){list->names[i], list->tensors[i]};
        for (size_t i = 0; i < all->parts[p]->skipped_count; i++)
            all->skipped[all->skipped_count++] = all->parts[p]->skipped[i];
    }
    if (all->count > 0)
        qsort(places, all->count, sizeof *places, by_place_name);
    tt__problem_list problems = {.count = 0};
    for (size_t i = 0; i < all->count; i++) {
        all->names[i] = places[i].name;
        all->tensors[i] = places[i].tensor;
        if (i > 0 && !strcmp(places[i - 1].name, places[i].name))
            tt__problem_add(&problems, TT_ERR_FORMAT, "tensor \"%s\" lies in two files",
                            tt__make_printable(places[i].name).text);
    }
    return tt__problems_report(&problems, index);
}

static int by_index_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Is the name in the sorted list? */
static bool is_listed(const char **names, size_t count, const char *name) {
    return count && bsearch(&name, names, count, sizeof *names, by_index_name);
}

/* Check that the map and the files agree; all differences are told. */
static tt_status check_map_and_files(const tt_safetensors *all, const char *index, json_t *map) {
    tt__problem_list problems = {.count = 0};
    const char *name;
    json_t *file;
    if (all->skipped_count)
        qsort(all->skipped, all->skipped_count, sizeof *all->skipped, by_index_name);
    json_object_foreach(map, name, file) {
        if (!is_listed(all->names, all->count, name) && !is_listed(all->skipped, all->skipped_count, name))
            tt__problem_add(&problems, TT_ERR_FORMAT, "tensor \"%s\" is missing: %s has none",
                            tt__make_printable(name).text, tt__make_printable(json_string_value(file)).text);
    }
    for (size_t i = 0; i < all->count; i++)
        if (!json_object_get(map, all->names[i]))
            tt__problem_add(&problems, TT_ERR_FORMAT, "tensor \"%s\" is unexpected: the index lacks it",
                            tt__make_printable(all->names[i]).text);
    return tt__problems_report(&problems, index);
}

/* Check that all files are of one save. Those of other programs have no number. The index may be of the save before,
 * since it is written last. */
static tt_status check_saves(const tt_safetensors *all, const char *index) {
    const char *first = all->part_count ? tt_safetensors_metadata(all->parts[0], SAVE) : NULL;
    for (size_t p = 1; p < all->part_count; p++) {
        const char *save = tt_safetensors_metadata(all->parts[p], SAVE);
        if (!save != !first || (save && strcmp(save, first) != 0))
            return tt__fail(TT_ERR_FORMAT,
                            "%s: its files are of two saves, of which one was interrupted, or another process saved "
                            "there at the same time: save again, or load another checkpoint",
                            index);
    }
    return TT_OK;
}

static tt_status join_parts(tt_safetensors *all, const char *index, json_t *map) {
    size_t room = 1;
    for (size_t p = 0; p < all->part_count; p++)
        room += all->parts[p]->count + all->parts[p]->skipped_count;
    all->names = calloc(room, sizeof *all->names);
    all->skipped = calloc(room, sizeof *all->skipped);
    all->tensors = calloc(room, sizeof *all->tensors);
    place *places = calloc(room, sizeof *places);
    tt_status status = all->names && all->skipped && all->tensors && places
                           ? join_tensors(all, index, places)
                           : tt__fail(TT_ERR_MEMORY, "%s: no memory for %zu tensors", index, room);
    free(places);
    if (!status)
        status = check_map_and_files(all, index, map);
    all->list = (tt_named_tensors){sizeof all->list, (int64_t)all->count, all->names, all->tensors};
    return status;
}

static tt_status read_index_parts(tt_safetensors *all, const char *path, bool skip) {
    TT__TRY(parse_index(path, &all->header));
    json_t *map = json_object_get(all->header, WEIGHT_MAP);
    TT__TRY(check_map(path, map));
    all->parts = calloc(json_object_size(map) + 1, sizeof *all->parts);
    if (!all->parts)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for its files", path);
    TT__TRY(load_shards(all, path, map, skip));
    TT__TRY(check_saves(all, path));
    return join_parts(all, path, map);
}

static tt_status read_index(tt_safetensors **out, const char *path, bool skip_unsupported) {
    tt_safetensors *all = calloc(1, sizeof *all);
    if (!all)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory to read it", path);
    tt_status status = read_index_parts(all, path, skip_unsupported);
    if (status)
        tt_safetensors_free(all);
    else
        *out = all;
    return status;
}

/* ---- writing ---- */

static uint64_t bytes_of(const tt_tensor *x) {
    return (uint64_t)tt_tensor_numel(x) * tt_dtype_size(tt_tensor_dtype(x));
}

/* Count the tensors from number `from` on that share a file: at least one. */
static int64_t shard_length(const tt_named_tensors *tensors, int64_t from, uint64_t most) {
    uint64_t bytes = 0;
    int64_t n = 0;
    while (from + n < tensors->count && (n == 0 || bytes + bytes_of(tensors->tensors[from + n]) <= most))
        bytes += bytes_of(tensors->tensors[from + n++]);
    return n;
}

/* Write a number that no other save has. */
static void draw_save_number(char text[17]) {
    uint64_t drawn;
    tt__random_seed(&drawn, sizeof drawn);
    snprintf(text, 17, "%016" PRIx64, drawn ^ (uint64_t)tt__realtime_ns());
}

/* Write tensors `from` to `from` + n, and note where they are. */
static tt_status save_shard(const tt_safetensors_save_sharded_args *args, const char *file, json_t *map, int64_t from,
                            int64_t n) {
    for (int64_t i = from; i < from + n; i++)
        if (json_object_set_new(map, args->tensors->names[i], json_string(file)))
            return tt__fail(TT_ERR_MEMORY, "%s: no memory for its index", args->path);
    char *path = path_beside(args->path, file);
    if (!path)
        return tt_last_status();
    /* args->metadata ends in the save's number */
    const tt_named_tensors part = {sizeof part, n, args->tensors->names + from, args->tensors->tensors + from};
    tt_status status = tt_safetensors_save(path, &part, args->metadata, args->metadata_count);
    free(path);
    return status;
}

static tt_status save_shards(const tt_safetensors_save_sharded_args *args, json_t *map) {
    const char *slash = strrchr(args->path, '/'), *name = slash ? slash + 1 : args->path;
    int stem = (int)(strlen(name) - strlen(INDEX_ENDING));
    uint64_t most = args->max_shard_bytes ? args->max_shard_bytes : default_shard_bytes;
    int64_t count = 0, n;
    for (int64_t from = 0; from < args->tensors->count; from += shard_length(args->tensors, from, most))
        count++;
    int64_t number = 0;
    for (int64_t from = 0; from < args->tensors->count; from += n) {
        char *file;
        n = shard_length(args->tensors, from, most);
        if (asprintf(&file, "%.*s-%05" PRId64 "-of-%05" PRId64 ".safetensors", stem, name, ++number, count) < 0)
            return tt__fail(TT_ERR_MEMORY, "%s: no memory for a path", args->path);
        tt_status status = save_shard(args, file, map, from, n);
        free(file);
        TT__TRY(status);
    }
    return TT_OK;
}

static tt_status write_index(const char *path, json_t *index) {
    char *text = tt__json_dumps(index, JSON_INDENT(2));
    if (!text)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for its text", path);
    tt_status status =
        tt__file_write(path, (const tt__span[]){{(const uint8_t *)text, strlen(text)}, {(const uint8_t *)"\n", 1}}, 2);
    free(text);
    return status;
}

static tt_status save_numbered(const tt_safetensors_save_sharded_args *args, const char *number) {
    uint64_t total = 0;
    for (int64_t i = 0; i < args->tensors->count; i++)
        total += bytes_of(args->tensors->tensors[i]);
    json_t *map = json_object();
    json_t *index =
        json_pack("{s:{s:I, s:s}, s:O}", "metadata", "total_size", (json_int_t)total, SAVE, number, WEIGHT_MAP, map);
    tt_status status = index ? save_shards(args, map) : tt__fail(TT_ERR_MEMORY, "%s: no memory", args->path);
    if (!status)
        status = write_index(args->path, index);
    json_decref(index);
    json_decref(map);
    return status;
}

/* Save under a number of its own, the last of the metadata. */
static tt_status save_sharded(tt_safetensors_save_sharded_args *args) {
    char number[17];
    const size_t count = args->metadata_count > 0 && args->metadata ? (size_t)args->metadata_count : 0;
    tt_metadata *metadata = calloc(count + 1, sizeof *metadata);
    if (!metadata)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for its metadata", args->path);
    if (count)
        memcpy(metadata, args->metadata, count * sizeof *metadata);
    draw_save_number(number);
    metadata[count] = (tt_metadata){SAVE, number};
    args->metadata = metadata;
    args->metadata_count = (int64_t)count + 1;
    tt_status status = save_numbered(args, number);
    free(metadata);
    return status;
}

static tt_status check_given_once(const tt_safetensors_save_sharded_args *args) {
    size_t count = (size_t)args->tensors->count;
    place *places = malloc((count + 1) * sizeof *places);
    if (!places)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory to compare %zu names", args->path, count);
    for (size_t i = 0; i < count; i++)
        places[i] = (place){args->tensors->names[i], args->tensors->tensors[i]};
    qsort(places, count, sizeof *places, by_place_name);
    const char *twice = NULL;
    for (size_t i = 1; i < count && !twice; i++)
        twice = strcmp(places[i - 1].name, places[i].name) ? NULL : places[i].name;
    free(places);
    return twice ? tt__fail(TT_ERR_INVALID, "%s: \"%s\" is given twice", args->path, tt__make_printable(twice).text)
                 : TT_OK;
}

tt_status tt_safetensors_save_sharded_with(const tt_safetensors_save_sharded_args *given, size_t size) {
    tt_safetensors_save_sharded_args args;
    TT__ARGS_COPY(args, given, size);
    if (!args.path || !args.tensors)
        return tt__fail_argument("tt_safetensors_save_sharded: `%s` is NULL", args.path ? "tensors" : "path");
    if (!is_index_path(args.path))
        return tt__fail(TT_ERR_INVALID, "%s: expected the path of an index, NAME" INDEX_ENDING, args.path);
    TT__TRY(tt__named_tensors_check(args.path, args.tensors, true));
    TT__TRY(check_given_once(&args));
    if (args.metadata_count < 0 || (args.metadata_count > 0 && !args.metadata))
        return tt__fail(TT_ERR_INVALID, "%s: expected .metadata of .metadata_count pairs, got %s and %" PRId64,
                        args.path, args.metadata ? "some" : "NULL", args.metadata_count);
    return save_sharded(&args);
}

/* ---- one file or an index ---- */

tt_status tt_safetensors_load_with(const tt_safetensors_load_args *given, size_t size) {
    tt_safetensors_load_args args;
    TT__ARGS_COPY(args, given, size);
    if (!args.out || !args.path)
        return tt__fail(TT_ERR_INVALID, "tt_safetensors_load: `%s` is NULL", args.out ? "path" : "out");
    *args.out = NULL;
    return is_index_path(args.path) ? read_index(args.out, args.path, args.skip_unsupported)
                                    : tt__safetensors_read_file(args.out, args.path, args.skip_unsupported);
}
