/* tutti/transforms.h: what is done to an example's x each time it is read: cropped, turned, resized, normalised.
 *
 * A transform is made, put together with others by tt_compose(), and given to tt_dataset_transform(), which makes a
 * data set of transformed examples. What is random in it depends on a seed, the epoch and the number of the example
 * alone: neither order, nor workers, nor ranks change it, and a run that is resumed draws what the first one drew.
 *
 * Images are (..., H, W), channels first, u8 or f32. Results are those of torchvision's transforms on tensors (0.14),
 * without its antialiasing. Transforms are returned, NULL after a failure with the error recorded: TT_ERR_INVALID an
 * argument out of range, by name; TT_ERR_MEMORY. tt_dataset_transform() checks whether examples fit. A function that
 * gets a transform takes it over, also on failure. NULL gives NULL, and leaves the error that is recorded. A transform
 * that was taken over already is TT_ERR_STATE, and stays where it is. One thread at a time, besides the threads of a
 * loader that reads the transformed data set. */
#ifndef TUTTI_TRANSFORMS_H
#define TUTTI_TRANSFORMS_H

#include <tutti/data.h>

TT_BEGIN_DECLS

typedef struct tt_transform tt_transform;

/* The random numbers of one example in one epoch. */
typedef struct tt_draws tt_draws;

/* ---- data sets ---- */

typedef struct tt_dataset_transform_args {
    tt_dataset *dataset;     /* required: held */
    tt_transform *transform; /* required: taken over */
    TT_OPTIONS;
    uint64_t seed;
    char tt_end; /* not an option: see base.h */
} tt_dataset_transform_args;
#define TT_DATASET_TRANSFORM_ARGS_INIT TT_ARGS_INIT

/* The examples of `dataset`, transformed whenever they are read; targets are as they were:
 *   tt_dataset_transform(train, tt_compose(tt_random_crop(32, 32, .padding = 4), tt_random_horizontal_flip(0.5)),
 *                        .seed = 7)
 * The epoch is what tt_sampler_set_epoch() set for the loader's sampler; without that call, how many epochs the loader
 * has begun before; 0 for tt_dataset_get(). u8 results are normalised by the loader as `dataset` would be. An
 * example takes no memory from the system after a thread's first ones. Errors: TT_ERR_SHAPE, TT_ERR_DTYPE: what a
 * transform can't take, and TT_ERR_INVALID a `fill` that u8 doesn't have; all name it; TT_ERR_INVALID NULL;
 * TT_ERR_MEMORY. PyTorch: the `transform` argument of torchvision's data sets. */
TT_API tt_dataset *tt_dataset_transform_with(const tt_dataset_transform_args *args, size_t size);

/* Several transforms, one after the other, in this order: tt_compose(first, second, third). PyTorch: Compose. */
typedef struct tt_compose_args {
    tt_transform *const *transforms; /* required: `count` of them, taken over */
    int64_t count;                   /* required: >= 1 */
    char tt_end;                     /* not an option: see base.h */
} tt_compose_args;
#define TT_COMPOSE_ARGS_INIT TT_ARGS_INIT
TT_API tt_transform *tt_compose_with(const tt_compose_args *args, size_t size);

/* Free a transform that nothing took over. NULL is allowed. */
TT_API void tt_transform_free(tt_transform *transform);

/* ---- numbers ---- */

/* u8 to f32, x / 255. PyTorch: ToTensor. */
TT_API tt_transform *tt_to_tensor(void);

/* (x - mean[c]) / std[c] of f32 images (C, H, W); with n = 1 of any f32 x. The arrays are copied. TT_ERR_INVALID: n
 * below 1, numbers that are not finite, a std that is not above 0. PyTorch: Normalize. */
TT_API tt_transform *tt_normalize_channels(const double *mean, const double *std, int64_t n);

/* Change brightness, contrast, saturation and hue, in a random order, by factors that are drawn evenly from these
 * ranges: 1 leaves an image as it is, 0 makes it black, or grey. The factor of hue is a number of turns, -0.5 to 0.5,
 * where 0 leaves an image as it is. (..., 1 or 3, H, W), f32 from 0 to 1; one channel has neither saturation nor hue.
 * TT_ERR_INVALID: a range that is none. PyTorch: ColorJitter((0.6, 1.4), ...).
 *   tt_color_jitter(.brightness = {0.6, 1.4}, .hue = {-0.1, 0.1}) */
typedef struct tt_color_jitter_args {
    TT_OPTIONS;
    double brightness[2], contrast[2], saturation[2], hue[2]; /* both 0: left alone */
    char tt_end;                                              /* not an option: see base.h */
} tt_color_jitter_args;
#define TT_COLOR_JITTER_ARGS_INIT TT_ARGS_INIT
TT_API tt_transform *tt_color_jitter_with(const tt_color_jitter_args *args, size_t size);

/* ---- places ---- */

/* Cut out the middle; an image that is smaller gets zeros around it. PyTorch: CenterCrop. */
TT_API tt_transform *tt_center_crop(int64_t height, int64_t width);

/* Resize, bilinear from the four nearest elements, without antialiasing; u8 is rounded. PyTorch: Resize((height,
 * width), antialias=False). */
typedef struct tt_resize_image_args {
    int64_t height, width; /* required: >= 1 */
    TT_OPTIONS;
    bool nearest; /* take the nearest element */
    char tt_end;  /* not an option: see base.h */
} tt_resize_image_args;
#define TT_RESIZE_IMAGE_ARGS_INIT TT_ARGS_INIT
TT_API tt_transform *tt_resize_image_with(const tt_resize_image_args *args, size_t size);

/* Cut out a part of this size anywhere in the image, with `padding` elements of value `fill` around it. TT_ERR_SHAPE:
 * an image that is smaller. PyTorch: RandomCrop. */
typedef struct tt_random_crop_args {
    int64_t height, width; /* required: >= 1 */
    TT_OPTIONS;
    int64_t padding; /* on each side, >= 0 */
    double fill;
    char tt_end; /* not an option: see base.h */
} tt_random_crop_args;
#define TT_RANDOM_CROP_ARGS_INIT TT_ARGS_INIT
TT_API tt_transform *tt_random_crop_with(const tt_random_crop_args *args, size_t size);

/* Cut out a part of random size and place, and resize it. Its share of the area is drawn evenly from `scale`, the
 * logarithm of the ratio of its sides (width / height) evenly from those of `ratio`. PyTorch: RandomResizedCrop. */
typedef struct tt_random_resized_crop_args {
    int64_t height, width; /* required: >= 1 */
    TT_OPTIONS;
    double scale[2]; /* both 0 = 0.08, 1 */
    double ratio[2]; /* both 0 = 3/4, 4/3 */
    bool nearest;
    char tt_end; /* not an option: see base.h */
} tt_random_resized_crop_args;
#define TT_RANDOM_RESIZED_CROP_ARGS_INIT TT_ARGS_INIT
TT_API tt_transform *tt_random_resized_crop_with(const tt_random_resized_crop_args *args, size_t size);

/* Mirror with probability p, 0 to 1. PyTorch: RandomHorizontalFlip, RandomVerticalFlip. */
TT_API tt_transform *tt_random_horizontal_flip(double p);
TT_API tt_transform *tt_random_vertical_flip(double p);

/* Turn about the middle by an angle between the two, in degrees, counterclockwise; elements from outside of the image
 * are `fill`. PyTorch: RandomRotation((min, max)). */
typedef struct tt_random_rotation_args {
    double min_degrees, max_degrees; /* required */
    TT_OPTIONS;
    bool bilinear; /* instead of the nearest element */
    double fill;
    char tt_end; /* not an option: see base.h */
} tt_random_rotation_args;
#define TT_RANDOM_ROTATION_ARGS_INIT TT_ARGS_INIT
TT_API tt_transform *tt_random_rotation_with(const tt_random_rotation_args *args, size_t size);

/* Turn (clockwise), move, scale and shear. PyTorch: RandomAffine((min, max), ...). */
typedef struct tt_random_affine_args {
    double min_degrees, max_degrees; /* required */
    TT_OPTIONS;
    double translate[2]; /* at most these shares of width and height, each 0 to 1, either way */
    double scale[2];     /* between these; both 0 = 1, 1 */
    double shear[4];     /* along x between the first two, along y between the last two, in degrees */
    bool bilinear;
    double fill;
    char tt_end; /* not an option: see base.h */
} tt_random_affine_args;
#define TT_RANDOM_AFFINE_ARGS_INIT TT_ARGS_INIT
TT_API tt_transform *tt_random_affine_with(const tt_random_affine_args *args, size_t size);

/* ---- transforms of one's own ---- */

/* Make `to` from `from`, both as their specs say. Runs in several threads at once; fails as tt_dataset_get_fn does. */
typedef tt_status (*tt_transform_fn)(void *user, const void *from, void *to, tt_draws *draws);

typedef struct tt_transform_from_args {
    tt_tensor_spec from;   /* required: what it takes */
    tt_transform_fn apply; /* required */
    TT_OPTIONS;
    tt_tensor_spec to; /* what it gives; none = `from` */
    void *user;        /* handed to `apply`; borrowed */
    const char *name;  /* for errors; borrowed; NULL = "a transform" */
    char tt_end;       /* not an option: see base.h */
} tt_transform_from_args;
#define TT_TRANSFORM_FROM_ARGS_INIT TT_ARGS_INIT

/* A transform by callback: tt_transform_from(tt_spec(TT_U8, TT_SHAPE(3, 32, 32)), darken, .user = &amount).
 * Errors: TT_ERR_INVALID `apply` is NULL; TT_ERR_SHAPE, TT_ERR_DTYPE a spec that no tensor has. */
TT_API tt_transform *tt_transform_from_with(const tt_transform_from_args *args, size_t size);

/* Draw the example's next random number, evenly from low .. high, or from 0 .. n-1. Each call gives another one. 0 for
 * NULL, and for n below 1. */
TT_API double tt_draws_uniform(tt_draws *draws, double low, double high);
TT_API int64_t tt_draws_integer(tt_draws *draws, int64_t n);

#ifndef __cplusplus
#define tt_dataset_transform(dataset_, ...) \
    tt_dataset_transform_with(TT_ARGS(tt_dataset_transform_args, .dataset = (dataset_), .transform = __VA_ARGS__))
#define tt_compose(...)                                                                                           \
    tt_compose_with(                                                                                              \
        &(tt_compose_args){.transforms = (tt_transform *[]){__VA_ARGS__},                                         \
                           .count = (int64_t)(sizeof((tt_transform *[]){__VA_ARGS__}) / sizeof(tt_transform *))}, \
        offsetof(tt_compose_args, tt_end))
#define tt_color_jitter(...) tt_color_jitter_with(TT_ARGS(tt_color_jitter_args, __VA_ARGS__))
#define tt_resize_image(height_, ...) \
    tt_resize_image_with(TT_ARGS(tt_resize_image_args, .height = (height_), .width = __VA_ARGS__))
#define tt_random_crop(height_, ...) \
    tt_random_crop_with(TT_ARGS(tt_random_crop_args, .height = (height_), .width = __VA_ARGS__))
#define tt_random_resized_crop(height_, ...) \
    tt_random_resized_crop_with(TT_ARGS(tt_random_resized_crop_args, .height = (height_), .width = __VA_ARGS__))
#define tt_random_rotation(min_degrees_, ...) \
    tt_random_rotation_with(TT_ARGS(tt_random_rotation_args, .min_degrees = (min_degrees_), .max_degrees = __VA_ARGS__))
#define tt_random_affine(min_degrees_, ...) \
    tt_random_affine_with(TT_ARGS(tt_random_affine_args, .min_degrees = (min_degrees_), .max_degrees = __VA_ARGS__))
#define tt_transform_from(from_, ...) \
    tt_transform_from_with(TT_ARGS(tt_transform_from_args, .from = (from_), .apply = __VA_ARGS__))
#endif

TT_END_DECLS
#endif
