/* Tensors as PyTorch prints them: four digits, as powers of ten where magnitudes differ by more than a thousand; beyond
 * a thousand elements only the first and last three of each dimension; lines of 80 columns. */
#include "base/text/format.h"
#include "tensor/core/element.h"
#include "tensor/core/tensor.h"
#include "tensor/ops/ops.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { DIGITS = 4, EDGE = 3, MANY = 1000, COLUMNS = 80, NUMBER = 512 };

/* ---- text, cut where `out` ends but counted in full */

typedef struct written {
    char *out;
    size_t size, length;
    int column;
} written;

TT_PRINTF(2, 3) static void write_text(written *w, const char *format, ...) {
    char piece[NUMBER + 64];
    va_list list;
    va_start(list, format);
    int n = tt__vformat(piece, sizeof piece, format, list);
    va_end(list);
    for (int i = 0; i < n && piece[i]; i++, w->length++) {
        if (w->length + 1 < w->size)
            w->out[w->length] = piece[i];
        w->column = piece[i] == '\n' ? 0 : w->column + 1;
    }
}

static void write_spaces(written *w, int n) {
    for (int i = 0; i < n; i++)
        write_text(w, " ");
}

/* ---- one number */

/* What all elements that are shown have in common. */
typedef struct number_style {
    tt_dtype dtype;
    bool is_float, whole, scientific;
    int width;
} number_style;

static const char *element_text(const number_style *s, const void *p, char text[NUMBER]) {
    double v = s->is_float ? tt__load_f64(s->dtype, p) : 0;
    if (s->dtype == TT_BOOL)
        snprintf(text, NUMBER, "%s", *(const uint8_t *)p ? "True" : "False");
    else if (!s->is_float)
        snprintf(text, NUMBER, "%" PRId64, tt__load_i64(s->dtype, p));
    else if (!isfinite(v))
        snprintf(text, NUMBER, "%s", isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
    else if (s->scientific)
        tt__format(text, NUMBER, "%.*e", DIGITS, v);
    else
        tt__format(text, NUMBER, s->whole ? "%.0f." : "%.4f", v);
    return text;
}

/* ---- which elements are shown */

typedef struct shown {
    const tt_tensor *x; /* contiguous, on the host */
    bool summarized;
    number_style style;
    written *to;
} shown;

/* Return the entry that is shown after `i` of n; n if there is none. */
static int64_t next_shown(const shown *t, int64_t i, int64_t n) {
    return t->summarized && n > 2 * EDGE && i == EDGE - 1 ? n - EDGE : i + 1;
}

/* Return entry `i` of dimension d, from `p`, an entry of the dimension before it. */
static const char *entry_at(const shown *t, int d, const char *p, int64_t i) {
    return p + i * t->x->stride[d] * (int64_t)tt_dtype_size(t->x->dtype);
}

/* ---- the style: of the numbers that are neither 0 nor infinite nor NaN */

typedef struct magnitudes {
    double min, max;
    bool whole;
    int fixed, scientific; /* widths */
} magnitudes;

static void measure_number(const shown *t, const char *p, magnitudes *m) {
    char text[NUMBER];
    double v = fabs(tt__load_f64(t->x->dtype, p));
    if (!t->style.is_float) {
        int n = (int)strlen(element_text(&t->style, p, text));
        m->fixed = n > m->fixed ? n : m->fixed;
        return;
    }
    if (v == 0 || !isfinite(v))
        return;
    m->min = fmin(m->min, v);
    m->max = fmax(m->max, v);
    m->whole = m->whole && v == ceil(v);
    v = tt__load_f64(t->x->dtype, p);
    int fixed = tt__format(NULL, 0, "%.*f", DIGITS, v), scientific = tt__format(NULL, 0, "%.*e", DIGITS, v);
    m->fixed = fixed > m->fixed ? fixed : m->fixed;
    m->scientific = scientific > m->scientific ? scientific : m->scientific;
}

static void measure_shown(const shown *t, int d, const char *p, magnitudes *m) {
    if (d == t->x->shape.ndim) {
        measure_number(t, p, m);
        return;
    }
    for (int64_t i = 0; i < t->x->shape.dim[d]; i = next_shown(t, i, t->x->shape.dim[d]))
        measure_shown(t, d + 1, entry_at(t, d, p, i), m);
}

static number_style style_of(const shown *t) {
    magnitudes m = {.min = INFINITY, .whole = true};
    number_style s = t->style;
    measure_shown(t, 0, t->x->data, &m);
    bool any = m.max > 0;
    s.whole = m.whole;
    s.scientific = any && (m.max / m.min > 1000 || m.max > 1e8 || (!m.whole && m.min < 1e-4));
    if (!s.is_float)
        s.width = m.fixed;
    else if (s.scientific)
        s.width = m.scientific;
    else
        s.width = any ? m.fixed - (m.whole ? DIGITS : 0) : 1;
    s.width = s.width > 1 ? s.width : 1;
    return s;
}

/* ---- brackets and lines */

static void write_number(const shown *t, const char *p) {
    char text[NUMBER];
    element_text(&t->style, p, text);
    write_spaces(t->to, t->style.width - (int)strlen(text));
    write_text(t->to, "%s", text);
}

static void write_vector(const shown *t, int d, const char *p, int indent) {
    int64_t n = t->x->shape.dim[d];
    int a_line = (COLUMNS - indent) / (t->style.width + 2), at = 0;
    a_line = a_line > 1 ? a_line : 1;
    write_text(t->to, "[");
    for (int64_t i = 0, next; i < n; i = next) {
        next = next_shown(t, i, n);
        for (int item = 0; item < (next > i + 1 ? 2 : 1); item++, at++) { /* the number, and the gap after it */
            if (at > 0)
                write_text(t->to, at % a_line ? ", " : ",\n");
            if (at > 0 && at % a_line == 0)
                write_spaces(t->to, indent + 1);
            if (item == 0)
                write_number(t, entry_at(t, d, p, i));
            else
                write_text(t->to, " ...");
        }
    }
    write_text(t->to, "]");
}

/* A new line, and one more for each dimension further in. */
static void write_break(const shown *t, int d, int indent) {
    write_text(t->to, ",");
    for (int k = d + 1; k < t->x->shape.ndim; k++)
        write_text(t->to, "\n");
    write_spaces(t->to, indent + 1);
}

static void write_entries(const shown *t, int d, const char *p, int indent) {
    int64_t n = t->x->shape.dim[d];
    if (d == t->x->shape.ndim - 1) {
        write_vector(t, d, p, indent);
        return;
    }
    write_text(t->to, "[");
    for (int64_t i = 0, next; i < n; i = next) {
        next = next_shown(t, i, n);
        if (i > 0)
            write_break(t, d, indent);
        write_entries(t, d + 1, entry_at(t, d, p, i), indent + 1);
        if (next > i + 1) {
            write_break(t, d, indent);
            write_text(t->to, "...");
        }
    }
    write_text(t->to, "]");
}

/* ---- what follows the elements */

static const char *torch_dtype(tt_dtype dtype) {
    static const char *const names[TT__DTYPES] = {
        [TT_F32] = "float32", [TT_F64] = "float64", [TT_F16] = "float16", [TT_BF16] = "bfloat16", [TT_I8] = "int8",
        [TT_I16] = "int16",   [TT_I32] = "int32",   [TT_I64] = "int64",   [TT_U8] = "uint8",      [TT_BOOL] = "bool"};
    return names[dtype];
}

static void write_suffix(written *w, int indent, const char *name, const char *value) {
    if (w->column + (int)strlen(name) + (int)strlen(value) + 4 > COLUMNS) {
        write_text(w, ",\n");
        write_spaces(w, indent);
    } else {
        write_text(w, ", ");
    }
    write_text(w, "%s%s", name, value);
}

static void write_suffixes(written *w, int indent, const tt_tensor *x) {
    char device[64];
    bool usual = x->dtype == TT_F32 || (x->numel && (x->dtype == TT_I64 || x->dtype == TT_BOOL));
    snprintf(device, sizeof device, "'%s'", tt__device_of(x)->name);
    if (tt__device_of(x) != &tt__cpu_device)
        write_suffix(w, indent, "device=", device);
    if (x->numel == 0 && x->shape.ndim != 1)
        write_suffix(w, indent, "size=", TT__SHAPE_TEXT(&x->shape));
    if (!usual)
        write_suffix(w, indent, "dtype=torch.", torch_dtype(x->dtype));
    if (x->requires_grad)
        write_suffix(w, indent, "requires_grad=", "True");
    write_text(w, ")");
}

/* ---- */

static void write_elements_text(written *w, const tt_tensor *x, const tt_tensor *here) {
    static const char prefix[] = "tensor(";
    int indent = sizeof prefix - 1;
    shown t = {.x = here, .summarized = x->numel > MANY, .to = w};
    t.style = (number_style){.dtype = x->dtype, .is_float = tt__is_float(x->dtype)};
    write_text(w, "%s", prefix);
    if (x->numel == 0) {
        write_text(w, "[]");
    } else {
        t.style = style_of(&t);
        if (x->shape.ndim == 0)
            write_number(&t, here->data);
        else
            write_entries(&t, 0, here->data, indent);
    }
    write_suffixes(w, indent, x);
}

size_t tt_tensor_text(const tt_tensor *x, char *out, size_t size) {
    static const char who[] = "tt_tensor_text";
    written w = {.out = out, .size = out ? size : 0};
    if (w.size)
        out[0] = 0;
    if (!x || !tt__tensor_check(who, x))
        return 0;
    tt_tensor *here = tt__device_is_host(tt__device_of(x)) ? (tt_tensor *)x : tt__to_device(who, x, &tt__cpu_device);
    tt_tensor *rows = here ? tt__contiguous_begin(who, here) : NULL;
    if (rows)
        write_elements_text(&w, x, rows);
    if (w.size)
        out[w.length < w.size ? w.length : w.size - 1] = 0;
    tt__contiguous_done(rows, here);
    tt__contiguous_done(here, x);
    return w.length;
}
