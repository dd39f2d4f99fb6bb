/* tutti ckpt show, tutti ckpt verify. */
#include "base/json.h"
#include "base/plain_text.h"
#include "checkpoint/progress_texts.h"
#include "cli/ckpt/ckpt.h"
#include "cli/cli.h"

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

/* Does the file tell how far training was? */
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

/* One line: how far training was, as far as the file knows. */
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
