/* What ranks tell each other with the gradients. A bucket has a mark for each of its gradients, which says whether it
 * takes part; behind the last bucket's marks each rank has a note, which says of how many examples its gradients are.
 * Marks and notes are averaged as gradients are. */
#include "reducer/reducer.h"

#include "base/dtype.h"
#include "base/error.h"
#include "comm/group.h"

#include <stdlib.h>
#include <string.h>

/* Write a small number as an element of `dtype`. */
static void put_told(void *at, tt_dtype dtype, float number) {
    const float f32 = number;
    const double f64 = number;
    const uint16_t f16 = tt__f16_of_float(number), bf16 = tt__bf16_of_float(number);
    const void *from = dtype == TT_F64   ? (const void *)&f64
                       : dtype == TT_F32 ? (const void *)&f32
                       : dtype == TT_F16 ? (const void *)&f16
                                         : (const void *)&bf16;
    memcpy(at, from, tt_dtype_size(dtype));
}

/* Where the parameter's mark lies in the bucket's `told` or `heard`. */
static size_t mark_offset(const tt_reducer *r, const tt__reducer_param *p) {
    const tt__reducer_bucket *b = &r->buckets[p->bucket];
    return (p->mark - b->marks_at) * tt_dtype_size(b->dtype);
}

static bool was_marked_used(const tt_reducer *r, const tt__reducer_param *p) {
    static const uint64_t zero;
    const tt__reducer_bucket *b = &r->buckets[p->bucket];
    return memcmp((char *)b->heard + mark_offset(r, p), &zero, tt_dtype_size(b->dtype)) != 0;
}

/* ---- over a device ---- */

static void *told_in(const tt__reducer_bucket *b, size_t *bytes) {
    size_t size = tt_dtype_size(b->dtype);
    *bytes = (b->count - b->marks_at) * size;
    return (char *)b->data + b->marks_at * size;
}

tt_status tt__reducer_tell(const tt_reducer *r, const tt__reducer_bucket *b) {
    size_t bytes;
    void *to = told_in(b, &bytes);
    return r->place->write(r->place->user, to, b->told, bytes);
}

tt_status tt__reducer_ask(const tt_reducer *r, tt__reducer_bucket *b) {
    size_t bytes;
    const void *from = told_in(b, &bytes);
    return r->place ? r->place->read(r->place->user, b->heard, from, bytes, &b->hearing) : TT_OK;
}

/* If the group has failed, the engine has given up its calls, and what was read means nothing. */
tt_status tt__reducer_hear(const tt_reducer *r, tt__reducer_bucket *b) {
    void *mark = b->hearing;
    b->hearing = NULL;
    if (!mark)
        return TT_OK;
    TT__TRY(r->place->wait(r->place->user, mark));
    return tt__group_usable(r->group);
}

static tt_status read_far(const tt_reducer *r, const tt__reducer_param *p) {
    void *mark = NULL;
    TT__TRY(r->place->read(r->place->user, p->kept, p->gradient, p->bytes, &mark));
    return mark ? r->place->wait(r->place->user, mark) : TT_OK;
}

/* ---- marks ---- */

static tt_status keep_gradient(const tt_reducer *r, tt__reducer_param *p) {
    if (p->is_kept)
        return TT_OK;
    if (!p->kept && !(p->kept = malloc(p->bytes + 1)))
        return tt__fail(TT_ERR_MEMORY, "no memory to keep the gradient of \"%s\", which took no part in this step",
                        p->name);
    if (r->place)
        TT__TRY(read_far(r, p));
    else if (r->mirror)
        TT__TRY(r->mirror->read(r->mirror_user, (size_t)(p - r->params), p->kept));
    else
        memcpy(p->kept, p->gradient, p->bytes);
    p->is_kept = true;
    return TT_OK;
}

tt_status tt__reducer_keep(tt_reducer *r, int64_t i) { return keep_gradient(r, &r->params[i]); }

tt_status tt__reducer_put_mark(tt_reducer *r, tt__reducer_param *p, bool unused) {
    tt__reducer_bucket *b = &r->buckets[p->bucket];
    TT__TRY(tt__reducer_hear(r, b)); /* of the step before */
    if (unused)
        TT__TRY(keep_gradient(r, p));
    put_told((char *)b->told + mark_offset(r, p), b->dtype, !unused);
    p->unused = unused;
    return TT_OK;
}

/* The list is the reducer's; hooks only read it. */
static tt_bucket_gradient *hooks_list(const tt_reducer *r, size_t bucket) {
    return (tt_bucket_gradient *)r->buckets[bucket].view.gradients;
}

void tt__reducer_tell_own_marks(const tt_reducer *r, size_t bucket) {
    tt_bucket_gradient *list = hooks_list(r, bucket);
    for (int64_t g = 0; g < r->buckets[bucket].view.gradient_count; g++)
        list[g].used = !r->params[list[g].param].unused;
}

/* Does this rank need the others' marks or notes? If it uses all parameters itself, the marks tell it nothing. */
static bool has_to_hear(const tt_reducer *r, size_t bucket) {
    bool unused = bucket + 1 == r->bucket_count && r->examples >= 0;
    for (size_t i = 0; i < r->param_count && !unused; i++)
        unused = r->params[i].bucket == bucket && r->params[i].unused;
    return unused;
}

tt_status tt__reducer_read_marks(tt_reducer *r, size_t bucket) {
    if (r->place && has_to_hear(r, bucket))
        TT__TRY(tt__reducer_hear(r, &r->buckets[bucket]));
    for (size_t i = 0; i < r->param_count; i++)
        if (r->params[i].bucket == bucket)
            r->params[i].used = !r->params[i].unused || was_marked_used(r, &r->params[i]);
    tt_bucket_gradient *list = hooks_list(r, bucket);
    for (int64_t g = 0; g < r->buckets[bucket].view.gradient_count; g++)
        list[g].used = r->params[list[g].param].used;
    return TT_OK;
}

/* p->kept stays unchanged until it is read again, or the device has been waited for. */
static tt_status return_kept(const tt_reducer *r, const tt__reducer_param *p) {
    if (r->place)
        return r->place->write(r->place->user, p->gradient, p->kept, p->bytes);
    if (r->mirror && r->mirror->reaches(r->mirror_user, p->bucket))
        return r->mirror->write(r->mirror_user, (size_t)(p - r->params), p->kept);
    memcpy(p->gradient, p->kept, p->bytes);
    return TT_OK;
}

tt_status tt__reducer_settle_marks(tt_reducer *r, size_t bucket) {
    for (size_t i = 0; i < r->param_count; i++) {
        tt__reducer_param *p = &r->params[i];
        if (p->bucket != bucket)
            continue;
        if (!p->used)
            TT__TRY(return_kept(r, p));
        p->is_kept = false;
    }
    return TT_OK;
}

/* ---- notes ---- */

/* A float of 16 bits is exact up to 8 bits: there a note has digits of 5 bits. */
enum { NOTE_DIGITS = 5, NOTE_BASE = 32 };
_Static_assert((INT64_C(1) << 25) > TT__REDUCER_EXAMPLES, "NOTE_BASE to the power of NOTE_DIGITS is more");

static bool is_of_16_bits(tt_dtype dtype) { return tt_dtype_size(dtype) == 2; }

size_t tt__reducer_note_size(tt_dtype dtype) { return is_of_16_bits(dtype) ? NOTE_DIGITS : 1; }

void tt__reducer_set_examples(tt_reducer *r, int64_t examples) { r->examples = examples; }

void tt__reducer_put_note(const tt_reducer *r) {
    if (r->examples < 0)
        return;
    const tt__reducer_bucket *b = &r->buckets[r->bucket_count - 1];
    size_t size = tt_dtype_size(b->dtype), note = tt__reducer_note_size(b->dtype);
    char *at = (char *)b->told + (r->notes - b->marks_at) * size;
    memset(at, 0, (b->count - r->notes) * size);
    at += (size_t)tt_get_rank(r->group) * note * size;
    int64_t rest = r->examples;
    for (size_t k = 0; k < note; k++, rest /= NOTE_BASE)
        put_told(at + k * size, b->dtype, (float)(is_of_16_bits(b->dtype) ? rest % NOTE_BASE : rest));
}

/* The average is of one rank's whole number and others' zeros, so rounding on the way does not matter. */
static int64_t read_told(const void *at, tt_dtype dtype, int world) {
    double x;
    float f32;
    uint16_t half;
    if (dtype == TT_F64)
        memcpy(&x, at, sizeof x);
    else if (dtype == TT_F32) {
        memcpy(&f32, at, sizeof f32);
        x = f32;
    } else {
        memcpy(&half, at, sizeof half);
        x = dtype == TT_F16 ? tt__float_of_f16(half) : tt__float_of_bf16(half);
    }
    return (int64_t)(x * world + 0.5);
}

int64_t tt__reducer_examples_of(const tt_reducer *r, int rank) {
    const tt__reducer_bucket *b = &r->buckets[r->bucket_count - 1];
    size_t size = tt_dtype_size(b->dtype), note = tt__reducer_note_size(b->dtype);
    const char *at = (const char *)b->heard + (r->notes - b->marks_at + (size_t)rank * note) * size;
    int64_t number = 0;
    for (size_t k = note; k-- > 0;)
        number = number * NOTE_BASE + read_told(at + k * size, b->dtype, tt_get_world_size(r->group));
    return number;
}
