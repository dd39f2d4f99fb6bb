/* tutti ckpt diff: what two checkpoints have that the other one lacks or has otherwise. */
#include "base/error.h"
#include "base/format.h"
#include "base/json.h"
#include "base/plain_text.h"
#include "cli/ckpt/ckpt.h"
#include "cli/cli.h"
#include "tensor/host_copy.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* What is found of one entry. */
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

/* Compare two tensors of one shape and type by their bits; where they differ, by how much. */
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
