/* tutti/samplers.h: which examples an epoch visits, and in which order. Ranks are only numbers that a sampler divides
 * by.
 *
 * There are built-in samplers, and a program can bring its own (docs/data.md shows how). Samplers are returned by their
 * constructors, NULL after a failure with the error recorded: TT_ERR_INVALID an argument that is missing or out of
 * range, by name; TT_ERR_MEMORY; of a sampler of one's own also what its functions failed with. The maker frees each;
 * loaders hold theirs. One thread at a time. */
#ifndef TUTTI_SAMPLERS_H
#define TUTTI_SAMPLERS_H

#include <tutti/tensor.h>

TT_BEGIN_DECLS

typedef struct tt_sampler tt_sampler;

/* ---- built-in samplers ---- */

typedef struct tt_distributed_sampler_args {
    int64_t dataset_size; /* required: >= 1 */
    int num_replicas;     /* required: the number of ranks, >= 1 */
    int rank;             /* required: 0 .. num_replicas-1 */
    TT_OPTIONS;
    bool no_shuffle;
    uint64_t seed;
    bool drop_last;    /* drop the tail instead of repeating examples so that all ranks get the same number */
    bool exact;        /* do neither: each example comes exactly once, and some ranks get one more; for evaluation */
    int virtual_ranks; /* share the order among so many, of which this rank has some: see below; 0: among ranks */
    char tt_end;       /* not an option: see base.h */
} tt_distributed_sampler_args;
#define TT_DISTRIBUTED_SAMPLER_ARGS_INIT TT_ARGS_INIT

/* This rank's share of each epoch, shuffled from seed + epoch: tt_distributed_sampler(n, world_size, rank, .seed = 7).
 * The same indices as torch.utils.data.DistributedSampler, for every argument. */
TT_API tt_sampler *tt_distributed_sampler_with(const tt_distributed_sampler_args *args, size_t size);

/* With .virtual_ranks = V (tt_ddp() has them, too) the order is divided as among V ranks, and rank r of W has the
 * shares r*V/W to (r+1)*V/W - 1, one after the other in its indices. A loader takes a batch of `batch_size` from each
 * in turn, in the order in which tt_ddp() wants them: the first of each, the second of each, ...; the last ones may be
 * smaller. Its state counts whole rounds, and goes on on any number of ranks with the batches that would have come. Not
 * for tt_batch_sampler(). TT_ERR_INVALID: fewer virtual ranks than ranks. */

/* 0, 1, ..., dataset_size-1. PyTorch: SequentialSampler. */
TT_API tt_sampler *tt_sequential_sampler(int64_t dataset_size);

typedef struct tt_random_sampler_args {
    int64_t dataset_size; /* required: >= 1 */
    TT_OPTIONS;
    bool replacement;        /* draw each example independently of the others */
    int64_t num_samples;     /* examples an epoch; 0 = dataset_size */
    tt_generator *generator; /* borrowed; NULL = the thread's default one */
    char tt_end;             /* not an option: see base.h */
} tt_random_sampler_args;
#define TT_RANDOM_SAMPLER_ARGS_INIT TT_ARGS_INIT

/* Another random order in each epoch. The draws are those of a loop over DataLoader(set, shuffle=True, generator=...)
 * that is not left early, so that after the same seed (tt_manual_seed()) the order is PyTorch's. For replacement and
 * num_samples: those of DataLoader(set, sampler=RandomSampler(set, ...)). set_epoch has no influence. */
TT_API tt_sampler *tt_random_sampler_with(const tt_random_sampler_args *args, size_t size);

typedef struct tt_subset_random_sampler_args {
    int64_t dataset_size;   /* required: >= 1 */
    const int64_t *indices; /* required: copied; each 0 .. dataset_size-1 */
    int64_t n;              /* required: how many, >= 0 */
    TT_OPTIONS;
    tt_generator *generator; /* borrowed; NULL = the thread's default one */
    char tt_end;             /* not an option: see base.h */
} tt_subset_random_sampler_args;
#define TT_SUBSET_RANDOM_SAMPLER_ARGS_INIT TT_ARGS_INIT

/* These examples, in another random order in each epoch: tt_subset_random_sampler(60000, chosen, 500). The draws are
 * those of a loop over DataLoader(set, sampler=SubsetRandomSampler(indices, generator)). */
TT_API tt_sampler *tt_subset_random_sampler_with(const tt_subset_random_sampler_args *args, size_t size);

typedef struct tt_weighted_random_sampler_args {
    const double *weights; /* required: one for each example, >= 0, not all 0; copied */
    int64_t dataset_size;  /* required: how many, >= 1 */
    int64_t num_samples;   /* required: examples an epoch, >= 1 */
    TT_OPTIONS;
    bool no_replacement;     /* no example twice: num_samples of those whose weight is above 0 */
    tt_generator *generator; /* borrowed; NULL = the thread's default one */
    char tt_end;             /* not an option: see base.h */
} tt_weighted_random_sampler_args;
#define TT_WEIGHTED_RANDOM_SAMPLER_ARGS_INIT TT_ARGS_INIT

/* Examples drawn with probabilities in proportion to their weights: tt_weighted_random_sampler(weights, 1000, 500).
 * The draws are those of a loop over DataLoader(set, sampler=WeightedRandomSampler(weights, n, not no_replacement,
 * generator)), of a PyTorch without MKL where examples come only once; of 1.13 where an epoch is one example. */
TT_API tt_sampler *tt_weighted_random_sampler_with(const tt_weighted_random_sampler_args *args, size_t size);

/* For tt_loader_new(): all examples in order, or in another random order in each epoch (DataLoader's shuffle=True). The
 * loader makes the sampler itself; these stand for it, have no size or indices, and need not be freed. */
TT_API tt_sampler *tt_in_order(void);
TT_API tt_sampler *tt_shuffled(void);

typedef struct tt_batch_sampler_args {
    tt_sampler *sampler; /* required: held; not a batch sampler itself */
    int64_t batch_size;  /* required: >= 1 */
    TT_OPTIONS;
    bool drop_last; /* leave out a last batch that is smaller */
    char tt_end;    /* not an option: see base.h */
} tt_batch_sampler_args;
#define TT_BATCH_SAMPLER_ARGS_INIT TT_ARGS_INIT

/* A batch sampler says which examples come together: tt_batch_sampler(sampler, 32, .drop_last = true). This one cuts a
 * sampler's order into batches, as tt_loader_new(dataset, 32, sampler, .drop_last = true) does; one of the program's
 * own may do it in any other way. Only loaders take it, as .batch_sampler. PyTorch: BatchSampler. */
TT_API tt_sampler *tt_batch_sampler_with(const tt_batch_sampler_args *args, size_t size);

/* ---- samplers of one's own ---- */

/* Write the n indices of an epoch, each 0 .. dataset_size-1, in the order of their visits. `epoch` is what
 * tt_sampler_set_epoch() set last, else 0. Called once at the start of each epoch. Fails as tt_dataset_get_fn does. */
typedef tt_status (*tt_sampler_order_fn)(void *user, int64_t epoch, int64_t *indices, int64_t n);

typedef struct tt_sampler_from_args {
    int64_t dataset_size;      /* required: >= 0 */
    int64_t size;              /* required: examples an epoch, >= 0 */
    tt_sampler_order_fn order; /* required */
    TT_OPTIONS;
    void *user;       /* handed to `order`; borrowed */
    const char *name; /* for errors; borrowed; NULL = "a sampler" */
    char tt_end;      /* not an option: see base.h */
} tt_sampler_from_args;
#define TT_SAMPLER_FROM_ARGS_INIT TT_ARGS_INIT

/* A sampler by callback: tt_sampler_from(1000, 100, order, .user = &state). */
TT_API tt_sampler *tt_sampler_from_with(const tt_sampler_from_args *args, size_t size);

/* The functions of a kind of sampler. `size` and `order` are required. */
typedef struct tt_sampler_class {
    const char *name;            /* for errors; borrowed for the sampler's life; NULL = "a sampler" */
    int64_t (*size)(void *user); /* examples an epoch; asked once, when the sampler is made; below 0: a failure */
    tt_sampler_order_fn order;   /* write an epoch's indices */
    void (*destroy)(void *user); /* release `user`, when the sampler is freed; NULL = nothing */
} tt_sampler_class;

typedef struct tt_sampler_new_args {
    const tt_sampler_class *cls; /* required; copied */
    size_t cls_size;             /* required: sizeof(tt_sampler_class), which the macro fills in */
    void *user;                  /* required: handed to the functions; taken over if the class has `destroy` */
    int64_t dataset_size;        /* required: >= 0 */
    TT_OPTIONS;
    char tt_end; /* not an option: see base.h */
} tt_sampler_new_args;
#define TT_SAMPLER_NEW_ARGS_INIT TT_ARGS_INIT

/* A sampler of this class: tt_sampler_new(&by_length_class, lengths, 1000). `user` is destroyed on failure, too, unless
 * the class itself is NULL. */
TT_API tt_sampler *tt_sampler_new_with(const tt_sampler_new_args *args, size_t size);

/* Write the batches of an epoch: at most `n` indices, each 0 .. dataset_size-1, one batch behind the other, and how
 * many of them each batch has, which is at least 1 and at most what `largest` said. `sizes` are `batches` zeros before;
 * an epoch may have fewer batches: it ends before the first 0. `epoch` and failures as in tt_sampler_order_fn. */
typedef tt_status (*tt_batch_sampler_fill_fn)(void *user, int64_t epoch, int64_t *indices, int64_t n, int64_t *sizes,
                                              int64_t batches);

typedef struct tt_batch_sampler_from_args {
    int64_t dataset_size;          /* required: >= 0 */
    int64_t batches;               /* required: an epoch has at most so many, >= 0 */
    int64_t largest;               /* required: examples of a batch at most, >= 1 */
    tt_batch_sampler_fill_fn fill; /* required */
    TT_OPTIONS;
    int64_t size;     /* examples an epoch at most; 0 = dataset_size */
    void *user;       /* handed to `fill`; borrowed */
    const char *name; /* for errors; borrowed; NULL = "a batch sampler" */
    char tt_end;      /* not an option: see base.h */
} tt_batch_sampler_from_args;
#define TT_BATCH_SAMPLER_FROM_ARGS_INIT TT_ARGS_INIT

/* A batch sampler by callback, whose batches may have different sizes: tt_batch_sampler_from(1000, 40, 64, by_length,
 * .user = lengths). docs/data.md has a program. Loaders keep room for the largest batch. */
TT_API tt_sampler *tt_batch_sampler_from_with(const tt_batch_sampler_from_args *args, size_t size);

/* The functions of a kind of batch sampler. `batches`, `largest` and `fill` are required. The three that give numbers
 * are asked once, when the sampler is made; below 0: a failure. */
typedef struct tt_batch_sampler_class {
    const char *name;               /* for errors; borrowed for the sampler's life; NULL = "a batch sampler" */
    int64_t (*batches)(void *user); /* an epoch has at most so many */
    int64_t (*largest)(void *user); /* examples of a batch at most */
    tt_batch_sampler_fill_fn fill;  /* write an epoch's batches */
    int64_t (*size)(void *user);    /* examples an epoch at most; NULL = dataset_size */
    void (*destroy)(void *user);    /* release `user`, when the sampler is freed; NULL = nothing */
} tt_batch_sampler_class;

typedef struct tt_batch_sampler_new_args {
    const tt_batch_sampler_class *cls; /* required; copied */
    size_t cls_size;                   /* required: sizeof(tt_batch_sampler_class), which the macro fills in */
    void *user;                        /* required: handed to the functions; taken over if the class has `destroy` */
    int64_t dataset_size;              /* required: >= 0 */
    TT_OPTIONS;
    char tt_end; /* not an option: see base.h */
} tt_batch_sampler_new_args;
#define TT_BATCH_SAMPLER_NEW_ARGS_INIT TT_ARGS_INIT

/* A batch sampler of this class: tt_batch_sampler_new(&by_length_class, lengths, 1000). `user` is destroyed on failure,
 * too, unless the class itself is NULL. */
TT_API tt_sampler *tt_batch_sampler_new_with(const tt_batch_sampler_new_args *args, size_t size);

#ifndef __cplusplus
#define tt_batch_sampler(sampler_, ...) \
    tt_batch_sampler_with(TT_ARGS(tt_batch_sampler_args, .sampler = (sampler_), .batch_size = __VA_ARGS__))
#define tt_batch_sampler_from(dataset_size_, batches_, largest_, ...)                               \
    tt_batch_sampler_from_with(TT_ARGS(tt_batch_sampler_from_args, .dataset_size = (dataset_size_), \
                                       .batches = (batches_), .largest = (largest_), .fill = __VA_ARGS__))
#define tt_batch_sampler_new(cls_, user_, ...)                                                              \
    tt_batch_sampler_new_with(TT_ARGS(tt_batch_sampler_new_args, .cls = (cls_), .cls_size = sizeof *(cls_), \
                                      .user = (user_), .dataset_size = __VA_ARGS__))
#define tt_distributed_sampler(dataset_size_, num_replicas_, ...)                                     \
    tt_distributed_sampler_with(TT_ARGS(tt_distributed_sampler_args, .dataset_size = (dataset_size_), \
                                        .num_replicas = (num_replicas_), .rank = __VA_ARGS__))
#define tt_random_sampler(...) tt_random_sampler_with(TT_ARGS(tt_random_sampler_args, .dataset_size = __VA_ARGS__))
#define tt_subset_random_sampler(dataset_size_, indices_, ...)                                            \
    tt_subset_random_sampler_with(TT_ARGS(tt_subset_random_sampler_args, .dataset_size = (dataset_size_), \
                                          .indices = (indices_), .n = __VA_ARGS__))
#define tt_weighted_random_sampler(weights_, dataset_size_, ...)                                    \
    tt_weighted_random_sampler_with(TT_ARGS(tt_weighted_random_sampler_args, .weights = (weights_), \
                                            .dataset_size = (dataset_size_), .num_samples = __VA_ARGS__))
#define tt_sampler_from(dataset_size_, size_, ...) \
    tt_sampler_from_with(                          \
        TT_ARGS(tt_sampler_from_args, .dataset_size = (dataset_size_), .size = (size_), .order = __VA_ARGS__))
#define tt_sampler_new(cls_, user_, ...)                                                                         \
    tt_sampler_new_with(TT_ARGS(tt_sampler_new_args, .cls = (cls_), .cls_size = sizeof *(cls_), .user = (user_), \
                                .dataset_size = __VA_ARGS__))
#endif

/* ---- every sampler ---- */

/* Set which epoch comes next. tt_distributed_sampler() shuffles from seed + epoch: without this call every epoch has
 * the same order. An epoch that a loader has begun keeps its order. */
TT_API void tt_sampler_set_epoch(tt_sampler *sampler, int64_t epoch);

/* Return the number of examples of an epoch (of this rank); of an epoch that a loader resumed, of what was left of it;
 * 0 for NULL. Of a batch sampler of the program's own: of the epoch that was drawn last, or before the first one the
 * most that there may be. */
TT_API int64_t tt_sampler_size(const tt_sampler *sampler);

/* Return the indices (borrowed) of the epoch that a loader began last, or of the next one if none began since the
 * sampler was made or tt_sampler_set_epoch() set another one. Valid until the next epoch begins, set_epoch, or free.
 * NULL and an error if the order can't be made. */
TT_API const int64_t *tt_sampler_indices(tt_sampler *sampler);

/* Return the seed that a distributed sampler was made with; 0 for others. */
TT_API uint64_t tt_sampler_seed(const tt_sampler *sampler);

/* Free a sampler. Loaders hold theirs: it lives on until the last of them is freed, and so must what its callbacks use.
 * NULL is allowed. */
TT_API void tt_sampler_free(tt_sampler *sampler);

TT_END_DECLS
#endif
