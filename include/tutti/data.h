/* tutti/data.h: data sets, samplers, loaders. Knows ranks only as numbers that a sampler divides by. */
#ifndef TUTTI_DATA_H
#define TUTTI_DATA_H

#include <tutti/tensor.h>

TT_BEGIN_DECLS

typedef struct tt_dataset tt_dataset;
typedef struct tt_sampler tt_sampler;
typedef struct tt_loader tt_loader;

/* ---- IDX files (the format of MNIST) ---- */

/* Read an IDX file, plain or gzip-compressed (told apart by content), into a tensor the caller owns (never a scope's): types u8, i32, f32,
 * f64; i8 and i16 become i32. Errors, all naming the file: TT_ERR_IO can't be opened or read; TT_ERR_FORMAT wrong magic, dimensions
 * that overflow or do not fit the length (both are given), corrupt gzip stream, bytes left over. */
TT_API tt_status tt_idx_read(tt_tensor **out, const char *path);

/* Write a contiguous tensor as IDX (u8, i32, f32, f64), gzip-compressed if `path` ends in ".gz". Atomic. */
TT_API tt_status tt_idx_write(const tt_tensor *x, const char *path);

/* ---- data sets: N examples of one shape with one target each ---- */

/* inputs (N, ...), targets (N) or (N, ...) or NULL: both are taken over (freed with the data set; also on failure).
 * TT_ERR_SHAPE if their lengths differ. PyTorch: TensorDataset. */
TT_API tt_dataset *tt_tensor_dataset(tt_tensor *inputs, tt_tensor *targets);

/* Images (N,H,W) u8 and labels (N) u8 from two IDX files: inputs (N,1,H,W) u8, targets i64. TT_ERR_FORMAT if lengths differ or a file does not
 * have these dimensions. */
TT_API tt_dataset *tt_image_dataset(const char *images_path, const char *labels_path);

/* The same from a directory with MNIST's canonical names, plain or .gz ("train-images-idx3-ubyte", "t10k-..."), in `dir`
 * itself, `dir`/MNIST/raw or `dir`/raw. TT_ERR_IO names what was looked for. */
TT_API tt_dataset *tt_mnist(const char *dir, bool train);

/* `n` procedurally drawn digits, 28 x 28, in MNIST's conventions (0 background, 255 ink): strokes of ten glyphs, randomly moved, scaled, turned,
 * sheared, thickened, blurred and noised. Example i depends on (seed, i) alone, so that any split is reproducible. */
TT_API tt_dataset *tt_digits(int64_t n, uint64_t seed);

/* Examples begin .. end-1 of `base`, which is borrowed and must outlive it. PyTorch: Subset. */
TT_API tt_dataset *tt_subset(tt_dataset *base, int64_t begin, int64_t end);

/* What the loader does to u8 inputs of this set: nothing (they become f32 as they are), or ToTensor, x / 255, then Normalize, (x - mean) / std,
 * in f32 as torchvision computes them. std > 0, else TT_ERR_INVALID; TT_ERR_DTYPE if the inputs are not u8. ToTensor alone is mean 0, std 1.
 * Loaders follow from their next batch on. A subset does as its base does, until it is given its own. */
TT_API tt_status tt_dataset_normalize(tt_dataset *dataset, double mean, double std);

/* Number of examples; tensors of all inputs and targets (borrowed; of a subset: views; targets may be NULL). */
TT_API int64_t tt_dataset_size(const tt_dataset *dataset);
TT_API tt_tensor *tt_dataset_inputs(const tt_dataset *dataset);
TT_API tt_tensor *tt_dataset_targets(const tt_dataset *dataset);

/* NULL is allowed. */
TT_API void tt_dataset_free(tt_dataset *dataset);

/* ---- samplers: the order in which examples are visited ---- */

typedef struct tt_distributed_sampler_args {
    int64_t dataset_size; /* required: >= 1 */
    int num_replicas;     /* 0 = 1 */
    int rank;             /* 0 .. num_replicas-1 */
    bool no_shuffle;
    uint64_t seed;
    bool drop_last; /* drop the tail instead of repeating examples so that all ranks get the same number */
    char tt_end;    /* not an option: see base.h */
} tt_distributed_sampler_args;

/* The same indices as torch.utils.data.DistributedSampler, for every argument. TT_ERR_INVALID a value out of range. */
TT_API tt_sampler *tt_distributed_sampler_with(const tt_distributed_sampler_args *args, size_t size);
#ifndef __cplusplus
#define tt_distributed_sampler(...) tt_distributed_sampler_with(TT_ARGS(tt_distributed_sampler_args, __VA_ARGS__))
#endif

/* Shuffle anew for this epoch: the permutation is drawn from seed + epoch. Without it every epoch has the same order. */
TT_API void tt_sampler_set_epoch(tt_sampler *sampler, int64_t epoch);

/* Examples per epoch of this rank, and their indices (borrowed; valid until set_epoch or free). */
TT_API int64_t tt_sampler_size(const tt_sampler *sampler);
TT_API const int64_t *tt_sampler_indices(tt_sampler *sampler);

/* The seed it was made with. */
TT_API uint64_t tt_sampler_seed(const tt_sampler *sampler);

/* NULL is allowed. */
TT_API void tt_sampler_free(tt_sampler *sampler);

/* ---- loaders ---- */

/* One batch: x (B, ...) f32 from u8 or f32 inputs, else the inputs' dtype; y the targets as they are, NULL if there are none. Both belong
 * to the loader and are overwritten by the next call, after which they are no leaves (tt_requires_grad_); no scope ends them. size: B, smaller in the last batch of an epoch. */
typedef struct tt_batch {
    tt_tensor *x;
    tt_tensor *y;
    int64_t size;
} tt_batch;

typedef struct tt_loader_args {
    tt_dataset *dataset; /* required: borrowed */
    int64_t batch_size;  /* required: >= 1 */
    tt_sampler *sampler; /* borrowed; NULL = in order: check first that one was made */
    bool drop_last;      /* leave out a last batch that is smaller */
    char tt_end;         /* not an option: see base.h */
} tt_loader_args;

/* Allocates everything it needs; batches allocate nothing. TT_ERR_INVALID: batch_size below 1, or a sampler of another size than
 * the data set. dataset NULL fails with the error already recorded. PyTorch: DataLoader. */
TT_API tt_loader *tt_loader_with(const tt_loader_args *args, size_t size);
#ifndef __cplusplus
#define tt_loader_new(...) tt_loader_with(TT_ARGS(tt_loader_args, __VA_ARGS__))
#endif

/* The next batch, true; or false at the end of the epoch, after which the next call starts the next one. */
TT_API bool tt_loader_next(tt_loader *loader, tt_batch *batch);

/* Make the next call start an epoch anew, for a loop that was left before its end (in Python every "for" does). */
TT_API void tt_loader_restart(tt_loader *loader);

/* Batches per epoch. */
TT_API int64_t tt_loader_batches(const tt_loader *loader);

/* NULL is allowed. */
TT_API void tt_loader_free(tt_loader *loader);

TT_END_DECLS
#endif
