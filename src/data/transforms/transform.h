/* The inside of transforms. */
#ifndef TT_DATA_TRANSFORM_H
#define TT_DATA_TRANSFORM_H

#include <tutti/transforms.h>

/* A kind of transform. */
typedef struct tt__transform_class {
    const char *name; /* "tt_random_crop" */
    /* *out := the form of a transformed example. Errors, which begin with the name, refuse examples of form *in. */
    tt_status (*fit)(const tt_transform *self, const tt_tensor_spec *in, tt_tensor_spec *out);
    tt_status (*apply)(const tt_transform *self, const tt_tensor_spec *in, const void *from, void *to, tt_draws *draws);
    void (*destroy)(tt_transform *self); /* release what the struct holds; NULL: nothing */
} tt__transform_class;

/* The first member of each kind's struct, which is one allocation. */
struct tt_transform {
    const tt__transform_class *cls;
    bool owned;           /* taken over by a composition or a data set, which ends it */
    int64_t count;        /* of a composition: how many transforms it has */
    tt_transform **parts; /* (count) those, owned; none is a composition */
};

/* Make a transform: a copy of a kind's struct. */
tt_transform *tt__transform_new(const void *kind, size_t size);

/* ---- images (..., H, W) ---- */

typedef struct tt__image_size {
    int64_t planes, height, width;
    size_t element; /* bytes */
} tt__image_size;

/* Check that a spec is an image of u8 or f32. */
tt_status tt__image_check(const char *who, const tt_tensor_spec *spec);
tt__image_size tt__image_size_of(const tt_tensor_spec *spec);

/* Check a size that an image shall get. */
tt_status tt__image_check_size(const char *who, int64_t height, int64_t width);

/* Describe the same image in another size. */
tt_tensor_spec tt__image_resized(const tt_tensor_spec *spec, int64_t height, int64_t width);

/* Return x w + sum, rounded once, as torch's processors do: the product of two f32 is exact in f64. */
static inline float tt__fused(float x, float w, float sum) { return (float)((double)x * (double)w + (double)sum); }

/* to[0..n) := from, rounded to the nearest (halves to even), and cut to 0 .. 255. */
void tt__floats_to_u8(uint8_t *to, const float *from, int64_t n);
void tt__u8_to_floats(float *to, const uint8_t *from, int64_t n);

/* ---- random numbers of an example ---- */

struct tt_draws {
    uint64_t key;
    uint64_t count; /* numbers drawn */
};

/* Return true with probability p. */
bool tt__draws_chance(tt_draws *draws, double p);

/* Set the epoch in which this thread reads examples: a loader does around each batch; else it is 0. */
void tt__draws_set_epoch(int64_t epoch);

#endif
