/* tutti ckpt show, verify and diff. */
#include "cli/ckpt/ckpt.h"

#include "base/error.h"
#include "base/text/format.h"
#include "base/text/json.h"
#include "base/text/plain_text.h"
#include "checkpoint/entries.h"
#include "cli/cli.h"
#include "tensor/shape/copy.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { VALUE_TEXT = 256, NAME_TEXT = 1024 };

/* Copy a name from a file, fit for a terminal. */
static const char *plain_name(const char *name, char *text, size_t size) {
    snprintf(text, size, "%s", name);
    return tt__make_plain_name(text);
}

static json_t *shape_json(const tt_tensor *x) {
    json_t *shape = json_array();
    for (int d = 0; d < tt_tensor_dim(x); d++)
        json_array_append_new(shape, json_integer(tt_tensor_size(x, d)));
    return shape;
}

static json_t *tensor_json(const tt__ckpt_row *row) {
    return json_pack("{s:s, s:s, s:o, s:I}", "name", row->name, "dtype", tt_dtype_name(tt_tensor_dtype(row->tensor)),
                     "shape", shape_json(row->tensor), "bytes", (json_int_t)tt__ckpt_bytes(row->tensor));
}

/* Make a value JSON: numbers and texts as they are, everything else as a text. */
static json_t *value_json(const tt__ckpt_row *row) {
    char text[VALUE_TEXT];
    int64_t integer;
    double real;
    bool truth;
    json_t *made = NULL;
    if (tt_value_typeof(row->value) == TT_VALUE_NONE)
        made = json_null();
    else if (!tt_value_get_bool(&truth, row->value))
        made = json_boolean(truth);
    else if (!tt_value_get_int(&integer, row->value))
        made = json_integer(integer);
    else if (!tt_value_get_float(&real, row->value))
        made = json_real(real); /* NULL if it is not finite, which JSON has no number for */
    else if (tt_value_typeof(row->value) == TT_VALUE_STRING)
        made = json_string(tt_value_string(row->value));
    tt_clear_error();
    return json_pack("{s:s, s:o}", "name", row->name, "value",
                     made ? made : json_string(tt__ckpt_describe(row, text, sizeof text)));
}

/* Read how far training was. False: the file does not tell. */
static bool read_progress(const tt__ckpt_file *file, tt_progress *progress) {
    if (!file->safetensors || !tt_safetensors_metadata(file->safetensors, "tutti.epoch"))
        return false;
    bool read = !tt__progress_read(file->safetensors, progress);
    tt_clear_error();
    return read;
}

static json_t *real_or_null(double x) { return isfinite(x) ? json_real(x) : json_null(); }

/* A seed that JSON's readers may not hold as a number is a text. */
static json_t *seed_json(uint64_t seed) {
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, seed);
    return seed <= INT64_MAX ? json_integer((json_int_t)seed) : json_string(text);
}

static json_t *training_json(const tt__ckpt_file *file) {
    tt_progress p;
    if (!read_progress(file, &p))
        return json_null();
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:b}", "epoch", (json_int_t)p.epoch, "step",
                     (json_int_t)p.step, "epoch_step", (json_int_t)p.epoch_step, "evaluations",
                     (json_int_t)p.evaluations, "stale", (json_int_t)p.stale, "best",
                     real_or_null(p.evaluations ? p.best : NAN), "loss", real_or_null(p.loss), "monitored",
                     real_or_null(p.monitored), "sampler_seed", seed_json(p.sampler_seed), "monitor",
                     *p.monitor ? json_string(p.monitor) : json_null(), "monitor_max", p.monitor_max != 0);
}

/* Print in one line how far training was, if the file tells. */
static void show_how_far(const tt__ckpt_file *file) {
    tt_progress p;
    if (!read_progress(file, &p))
        return;
    printf("progress: epoch %" PRId64, p.epoch);
    if (p.step)
        printf(", step %" PRId64, p.step);
    if (p.epoch_step)
        printf(" (%" PRId64 " of an epoch under way)", p.epoch_step);
    if (isfinite(p.loss))
        tt__print(stdout, ", loss %.6g", p.loss);
    if (p.evaluations)
        tt__print(stdout, ", best%s%s %.6g of %" PRId64 " evaluation%s (%" PRId64 " since)", *p.monitor ? " " : "",
                  p.monitor, p.best, p.evaluations, p.evaluations == 1 ? "" : "s", p.stale);
    if (isfinite(p.monitored))
        tt__print(stdout, ", last %.6g", p.monitored);
    printf(", sampler seed %" PRIu64 "\n", p.sampler_seed);
}

static void show_json(const tt__ckpt_file *file) {
    uint64_t bytes;
    size_t count = tt__ckpt_tensors(file, &bytes);
    json_t *tensors = json_array(), *values = json_array();
    for (size_t i = 0; i < file->count; i++)
        json_array_append_new(file->rows[i].tensor ? tensors : values,
                              file->rows[i].tensor ? tensor_json(&file->rows[i]) : value_json(&file->rows[i]));
    json_t *all = json_pack("{s:s, s:s, s:I, s:I, s:o, s:o, s:o}", "path", file->path, "format", file->format, "count",
                            (json_int_t)count, "bytes", (json_int_t)bytes, "progress", training_json(file), "tensors",
                            tensors, "values", values);
    tt__json_dumpf(all, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(all);
}

static void show_text(const tt__ckpt_file *file) {
    char name[NAME_TEXT], text[VALUE_TEXT];
    uint64_t bytes;
    size_t count = tt__ckpt_tensors(file, &bytes);
    int width = 0;
    for (size_t i = 0; i < file->count; i++) {
        int length = (int)strlen(file->rows[i].name);
        width = length > width && length <= 60 ? length : width;
    }
    for (size_t i = 0; i < file->count; i++)
        printf("%-*s  %s\n", width, plain_name(file->rows[i].name, name, sizeof name),
               tt__ckpt_describe(&file->rows[i], text, sizeof text));
    show_how_far(file);
    tt__cli_print(stdout, "%s: %s, %zu tensors, %" PRIu64 " bytes\n", file->path, file->format, count, bytes);
}

int tt__ckpt_show(const char *path, bool json) {
    tt__ckpt_file file;
    tt_status status = tt__ckpt_open(&file, path);
    if (status)
        tt_report();
    else if (json)
        show_json(&file);
    else
        show_text(&file);
    tt__ckpt_free(&file);
    return status ? TT__EXIT_FAILED : TT__EXIT_OK;
}

/* ---- verify ---- */

static void verify_json(const tt__ckpt_file *file, tt_status status) {
    uint64_t bytes;
    size_t count = tt__ckpt_tensors(file, &bytes);
    json_t *all = json_pack("{s:s, s:b, s:s, s:s, s:I, s:I}", "path", file->path, "whole", (int)!status, "status",
                            tt_status_name(status), "error", status ? tt_last_error() : "", "count", (json_int_t)count,
                            "bytes", (json_int_t)bytes);
    tt__json_dumpf(all, stdout, JSON_COMPACT);
    putchar('\n');
    json_decref(all);
}

static void verify_text(const tt__ckpt_file *file, tt_status status) {
    uint64_t bytes;
    size_t count = tt__ckpt_tensors(file, &bytes);
    if (status)
        tt_report();
    else
        tt__cli_print(stdout, "%s: whole: %s, %zu tensors, %" PRIu64 " bytes\n", file->path, file->format, count,
                      bytes);
}

int tt__ckpt_verify(int count, char **paths, bool json) {
    int code = TT__EXIT_OK;
    for (int i = 0; i < count; i++) {
        tt__ckpt_file file;
        tt_status status = tt__ckpt_open(&file, paths[i]);
        (json ? verify_json : verify_text)(&file, status);
        tt__ckpt_free(&file);
        code = status ? TT__EXIT_FAILED : code;
    }
    return code;
}

/* ---- diff ---- */

/* A difference in one entry. */
typedef struct difference {
    const char *name;
    const char *kind; /* "only in A", "only in B", "other type or shape", "other values" */
    char text[512];
} difference;

static void print_difference(const difference *d, bool json) {
    if (json) {
        json_t *object = json_pack("{s:s, s:s, s:s}", "name", d->name, "difference", d->kind, "text", d->text);
        tt__json_dumpf(object, stdout, JSON_COMPACT);
        putchar('\n');
        json_decref(object);
        return;
    }
    char name[1024];
    snprintf(name, sizeof name, "%s", d->name);
    tt__cli_print(stdout, "%s: %s: %s\n", tt__make_plain_name(name), d->kind, d->text);
}

/* Compare two tensors of one shape and type by their bits. If they differ, find by how much. */
static tt_status compare_values(tt_tensor *a, tt_tensor *b, difference *d) {
    tt__host_copy x = {0}, y = {0};
    tt_status status = tt__host_copy_make(&x, a);
    if (!status)
        status = tt__host_copy_make(&y, b);
    bool equal = !status && (x.size == 0 || !memcmp(x.data, y.data, x.size));
    tt__host_copy_free(&x);
    tt__host_copy_free(&y);
    if (status || equal)
        return status;
    TT_AUTO_SCOPE;
    tt_tensor *wide_a = tt_contiguous(tt_to(a, TT_F64)), *wide_b = tt_contiguous(tt_to(b, TT_F64));
    if (!wide_a || !wide_b)
        return tt_last_status();
    const double *p = tt_tensor_data(wide_a), *q = tt_tensor_data(wide_b);
    double most = 0;
    int64_t differ = 0;
    bool nan = false;
    for (int64_t i = 0; i < tt_tensor_numel(a); i++) {
        bool same = p[i] == q[i] || (isnan(p[i]) && isnan(q[i]));
        differ += !same;
        nan |= !same && (isnan(p[i]) || isnan(q[i]));
        most = fmax(most, same ? 0 : fabs(p[i] - q[i])); /* without NaN */
    }
    d->kind = "other values";
    tt__format(d->text, sizeof d->text, "%" PRId64 " of %" PRId64 " elements differ, by at most %g%s", differ,
               tt_tensor_numel(a), most, nan ? "; some are NaN in one of them" : "");
    return TT_OK;
}

/* Compare one entry of both files. d->kind stays NULL if there is no difference. */
static tt_status compare_rows(const tt__ckpt_row *a, const tt__ckpt_row *b, difference *d) {
    char x[256], y[256];
    const char *text_a = tt__ckpt_describe(a, x, sizeof x), *text_b = tt__ckpt_describe(b, y, sizeof y);
    d->name = a->name;
    if (strcmp(text_a, text_b)) {
        d->kind = a->tensor && b->tensor ? "other type or shape" : "other values";
        snprintf(d->text, sizeof d->text, "%s; %s", text_a, text_b);
        return TT_OK;
    }
    return a->tensor && b->tensor ? compare_values(a->tensor, b->tensor, d) : TT_OK;
}

/* Print the entries of `file` that `other` lacks. Returns how many there are. */
static size_t print_missing(const tt__ckpt_file *file, const tt__ckpt_file *other, const char *kind, bool json) {
    size_t found = 0;
    for (size_t i = 0; i < file->count; i++) {
        if (tt__ckpt_find(other, file->rows[i].name))
            continue;
        difference d = {.name = file->rows[i].name, .kind = kind};
        char text[256];
        snprintf(d.text, sizeof d.text, "%s", tt__ckpt_describe(&file->rows[i], text, sizeof text));
        print_difference(&d, json);
        found++;
    }
    return found;
}

static tt_status compare_files(const tt__ckpt_file *a, const tt__ckpt_file *b, bool json, size_t *found) {
    *found = print_missing(a, b, "only in A", json) + print_missing(b, a, "only in B", json);
    for (size_t i = 0; i < a->count; i++) {
        const tt__ckpt_row *other = tt__ckpt_find(b, a->rows[i].name);
        difference d = {.kind = NULL};
        if (!other)
            continue;
        TT__TRY(compare_rows(&a->rows[i], other, &d));
        if (d.kind)
            print_difference(&d, json);
        *found += d.kind != NULL;
    }
    return TT_OK;
}

int tt__ckpt_diff(const char *path_a, const char *path_b, bool json) {
    tt__ckpt_file a, b = {0};
    size_t found = 0;
    tt_status status = tt__ckpt_open(&a, path_a);
    if (!status)
        status = tt__ckpt_open(&b, path_b);
    if (!status)
        status = compare_files(&a, &b, json, &found);
    if (status)
        tt_report();
    else if (!found && !json)
        printf("equal: %zu entries\n", a.count);
    tt__ckpt_free(&a);
    tt__ckpt_free(&b);
    return status || found ? TT__EXIT_FAILED : TT__EXIT_OK;
}
