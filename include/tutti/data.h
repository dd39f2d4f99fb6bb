/* tutti/data.h: data sets, and by its other headers samplers (samplers.h) and loaders (loader.h).
 *
 * A data set is a number of examples and a function that writes one of them; a sampler says which examples an epoch
 * visits and in which order; a loader makes batches of both. There are built-in data sets and samplers, and a program
 * can bring its own (docs/data.md shows how).
 *
 * Data sets, samplers and loaders are returned by their constructors, NULL after a failure with the error recorded. A
 * NULL given as a data set or sampler gives NULL and leaves the error that is already recorded. The maker frees each,
 * in any order, as users hold what they use. One thread at a time may use a loader with its data set and sampler,
 * besides the loader's own threads. */
#ifndef TUTTI_DATA_H
#define TUTTI_DATA_H

#include <tutti/tensor.h>

TT_BEGIN_DECLS

typedef struct tt_dataset tt_dataset;

/* ---- IDX files (the format of MNIST) ---- */

/* Read an IDX file, plain or gzip-compressed (told apart by content), into a tensor the caller owns (never a scope's):
 * types u8, i32, f32, f64; i8 and i16 become i32. *out is NULL after a failure. Errors, all naming the file: TT_ERR_IO
 * it can't be opened or read; TT_ERR_FORMAT wrong magic, dimensions that overflow or do not fit the length (both are
 * given), corrupt gzip stream, bytes left over. */
TT_API TT_NODISCARD tt_status tt_idx_read(tt_tensor **out, const char *path);

/* Write a contiguous tensor on the host as IDX (u8, i32, f32, f64), gzip-compressed if `path` ends in ".gz". Atomic: a
 * kill at any moment leaves the old or the new file whole.
 * Errors, naming the file: TT_ERR_DTYPE another type; TT_ERR_UNSUPPORTED a tensor on another device; TT_ERR_SHAPE one
 * that is not contiguous, or a size beyond 32 bits; TT_ERR_IO; TT_ERR_MEMORY; TT_ERR_INVALID no path. x NULL: as
 * tt_item(). */
TT_API TT_NODISCARD tt_status tt_idx_write(const tt_tensor *x, const char *path);

/* ---- built-in data sets: N examples, each with inputs x and, if the set has any, a target y ---- */

/* A data set in memory: inputs (N, ...), and targets (N) or (N, ...) or NULL. Both are taken over (freed with the data
 * set; also on failure). TT_ERR_SHAPE: their lengths differ; TT_ERR_UNSUPPORTED: they are on a device that pointers
 * don't reach.
 * PyTorch: TensorDataset. */
TT_API tt_dataset *tt_tensor_dataset(tt_tensor *inputs, tt_tensor *targets);

/* Images (N,H,W) u8 and labels (N) u8 from two IDX files: x (1,H,W) u8, y a scalar i64. TT_ERR_FORMAT if lengths differ
 * or a file does not have these dimensions. */
TT_API tt_dataset *tt_image_dataset(const char *images_path, const char *labels_path);

/* The data set that tt_image_dataset() makes of a directory's files with MNIST's canonical names, plain or .gz
 * ("train-images-idx3-ubyte", "t10k-..."), in `dir` itself, `dir`/MNIST/raw or `dir`/raw. TT_ERR_IO names what was
 * looked for. */
TT_API tt_dataset *tt_mnist(const char *dir, bool train);

/* `n` procedurally drawn digits, 28 x 28, in MNIST's conventions (0 background, 255 ink): strokes of ten glyphs,
 * randomly moved, scaled, turned, sheared, thickened, blurred and noised. Example i depends on (seed, i) alone, so that
 * any split is reproducible. */
TT_API tt_dataset *tt_digits(int64_t n, uint64_t seed);

/* Examples begin .. end-1 of `base`, which it holds. PyTorch: Subset. */
TT_API tt_dataset *tt_subset(tt_dataset *base, int64_t begin, int64_t end);

/* The examples of parts[0], then those of parts[1], and so on to parts[n-1], n >= 1. It holds the parts; the
 * array is copied. TT_ERR_SHAPE or TT_ERR_DTYPE if their examples differ in shape or type. PyTorch:
 * ConcatDataset. */
TT_API tt_dataset *tt_concat_dataset(tt_dataset *const *parts, int64_t n);

/* ---- data sets of one's own ---- */

/* Element type and shape of the x or the y of one example. Zeros: there is none. */
typedef struct tt_tensor_spec {
    bool given;
    tt_dtype dtype;
    tt_shape shape;
} tt_tensor_spec;

/* tt_spec(TT_U8, TT_SHAPE(3, 32, 32)): an image; tt_spec(TT_I64, TT_SCALAR): one label. */
static inline tt_tensor_spec tt_spec(tt_dtype dtype, tt_shape shape) {
    tt_tensor_spec spec = {true, dtype, shape};
    return spec;
}

/* Write example `index`, 0 .. size-1: the elements of its x, row-major, to `x`, and those of its target to `y` (NULL
 * for a data set without targets). Both have room for exactly what the specs say and may hold anything before. A
 * failure is any status but TT_OK, its text recorded by tt_fail(); the caller adds the data set's name and the
 * index. A loader with workers calls it from several threads at once, unless the data set is `serial`; the result must
 * depend on the index alone. */
typedef tt_status (*tt_dataset_get_fn)(void *user, int64_t index, void *x, void *y);

typedef struct tt_dataset_from_args {
    int64_t size;          /* required: number of examples, >= 0 */
    tt_dataset_get_fn get; /* required */
    tt_tensor_spec x;      /* required: what `get` writes to x; at most TT_MAX_DIMS - 1 dimensions */
    TT_OPTIONS;
    tt_tensor_spec y; /* what `get` writes to y; none = no targets */
    void *user;       /* handed to `get`; borrowed */
    const char *name; /* for errors; borrowed; NULL = "a data set" */
    bool serial;      /* `get` must not run in two threads at once: a loader's workers take turns */
    char tt_end;      /* not an option: see base.h */
} tt_dataset_from_args;
#define TT_DATASET_FROM_ARGS_INIT TT_ARGS_INIT

/* A data set by callback: tt_dataset_from(1000, get, tt_spec(TT_F32, TT_SHAPE(2)), .y = tt_spec(TT_F32, TT_SHAPE(1))).
 * TT_ERR_INVALID, TT_ERR_SHAPE, TT_ERR_DTYPE name the argument. PyTorch: a class with __len__ and __getitem__. */
TT_API tt_dataset *tt_dataset_from_with(const tt_dataset_from_args *args, size_t size);

/* The functions of a kind of data set. Only `size` and `get` are required. */
typedef struct tt_dataset_class {
    const char *name;            /* for errors; borrowed for the data set's life; NULL = "a data set" */
    int64_t (*size)(void *user); /* number of examples; asked once, when the data set is made; below 0: a failure */
    tt_dataset_get_fn get;       /* write one example */
    tt_status (*get_batch)(void *user, const int64_t *indices, int64_t n, void *x, void *y);
    /* write n examples, one behind the other; NULL = n calls of `get` */
    void (*destroy)(void *user); /* release `user`, when the data set is freed; NULL = nothing */
    bool serial; /* `get` and `get_batch` must not run in two threads at once: a loader's workers take turns */
} tt_dataset_class;

typedef struct tt_dataset_new_args {
    const tt_dataset_class *cls; /* required; copied */
    size_t cls_size;             /* required: sizeof(tt_dataset_class), which the macro fills in */
    void *user;                  /* required: handed to the functions; taken over if the class has `destroy` */
    tt_tensor_spec x;            /* required: as for tt_dataset_from() */
    TT_OPTIONS;
    tt_tensor_spec y;
    char tt_end; /* not an option: see base.h */
} tt_dataset_new_args;
#define TT_DATASET_NEW_ARGS_INIT TT_ARGS_INIT

/* A data set of this class: tt_dataset_new(&faces_class, faces, tt_spec(TT_U8, TT_SHAPE(3, 64, 64))). `user` is
 * destroyed on failure, too, unless the class itself is NULL. Errors as tt_dataset_from(). */
TT_API tt_dataset *tt_dataset_new_with(const tt_dataset_new_args *args, size_t size);

#ifndef __cplusplus
#define tt_dataset_from(size_, get_, ...) \
    tt_dataset_from_with(TT_ARGS(tt_dataset_from_args, .size = (size_), .get = (get_), .x = __VA_ARGS__))
#define tt_dataset_new(cls_, user_, ...) \
    tt_dataset_new_with(                 \
        TT_ARGS(tt_dataset_new_args, .cls = (cls_), .cls_size = sizeof *(cls_), .user = (user_), .x = __VA_ARGS__))
#endif

/* ---- every data set ---- */

/* Have loaders convert u8 inputs of this set by ToTensor, x / 255, then Normalize, (x - mean) / std, in f32 as
 * torchvision computes them. Without this call u8 inputs become f32 as they are. std > 0, else TT_ERR_INVALID;
 * TT_ERR_DTYPE if the inputs are not u8. ToTensor alone is mean 0, std 1. Loaders follow from their next batch on.
 * Until it is given its own, a subset does as its base does, and a concatenation as its parts do, all of which must do
 * the same (TT_ERR_STATE in the loader otherwise). */
TT_API TT_NODISCARD tt_status tt_dataset_normalize(tt_dataset *dataset, double mean, double std);

/* Return the number of examples; 0 for NULL. */
TT_API int64_t tt_dataset_size(const tt_dataset *dataset);

/* Return the type and shape of an example's x, or of its y. */
TT_API tt_tensor_spec tt_dataset_x(const tt_dataset *dataset);
TT_API tt_tensor_spec tt_dataset_y(const tt_dataset *dataset);

/* Write one example to raw memory as large as the specs say, u8 as it is; `y` may be NULL for a set without targets.
 * For data sets made of others, and for looking. TT_ERR_INVALID: an index outside 0 .. size-1. */
TT_API TT_NODISCARD tt_status tt_dataset_get(tt_dataset *dataset, int64_t index, void *x, void *y);
#ifndef __cplusplus
#define tt_dataset_get(dataset, index, x, y) (tt_dataset_get)(dataset, index, TT_BUFFER(x), TT_BUFFER(y))
#endif

/* Return the tensor of all inputs, or of all targets, of a set in memory (borrowed; of a subset: a view). NULL for any
 * other set, and if there are no targets. */
TT_API tt_tensor *tt_dataset_inputs(const tt_dataset *dataset);
TT_API tt_tensor *tt_dataset_targets(const tt_dataset *dataset);

/* Free a set. What was made of it (loaders, subsets, concatenations) holds it: it lives on until the last of them is
 * freed, and so must what its callbacks use. NULL is allowed. */
TT_API void tt_dataset_free(tt_dataset *dataset);

TT_END_DECLS

#include <tutti/loader.h>
#include <tutti/samplers.h>
#include <tutti/transforms.h>

#endif
