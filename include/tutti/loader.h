/* tutti/loader.h: loaders make batches of a data set's examples, in a sampler's order, also ahead in threads. */
#ifndef TUTTI_LOADER_H
#define TUTTI_LOADER_H

#include <tutti/data.h>
#include <tutti/samplers.h>
#include <tutti/tensor.h>

TT_BEGIN_DECLS

typedef struct tt_loader tt_loader;

/* One batch of `size` examples: x (size, ...) f32 from u8 or f32 inputs, else the inputs' dtype; y the targets as they
 * are, NULL if there are none; indices (size), which examples these are. `size` is smaller in the last batch of an
 * epoch.
 *
 * x and y are new tensors in each batch. They and `indices` belong to the loader, whatever scopes are open, and are
 * valid until the next tt_loader_next() or tt_loader_free(): a loop needs no scope and leaks nothing. tt_keep() makes x
 * or y the caller's, to free with tt_tensor_free(). Whatever still uses a batch's elements (a kept tensor, a view, a
 * recorded operator) keeps them as they are: the loader fills other memory then. */
typedef struct tt_batch {
    tt_tensor *x;
    tt_tensor *y;
    int64_t size;
    const int64_t *indices;
} tt_batch;

/* What a collate function gets: n examples as the data set's specs say, one behind the other; u8 inputs are bytes. */
typedef struct tt_examples {
    int64_t n;
    const int64_t *indices; /* (n) which ones */
    const void *x;          /* (n, ...) */
    const void *y;          /* (n, ...); NULL: no targets */
} tt_examples;

/* Make the tensors of a batch of n examples of the caller's: of any shapes and types, so that examples may have sizes
 * of their own (docs/data.md has a program). Both are NULL before; *x must be set, *y may be. They are new in each
 * batch, in an open scope or not, and become the loader's, also after a failure, which is any status but TT_OK, its
 * text recorded by tt_fail(). With workers it is called from several threads at once. */
typedef tt_status (*tt_collate_fn)(void *user, const tt_examples *examples, tt_tensor **x, tt_tensor **y);

typedef struct tt_loader_new_args {
    tt_dataset *dataset; /* required: held */
    int64_t batch_size;  /* required: >= 1; 0 with .batch_sampler */
    tt_sampler *sampler; /* required: held; tt_in_order() and tt_shuffled() for those that the loader makes itself;
                            NULL with .batch_sampler */
    TT_OPTIONS;
    bool drop_last;            /* leave out a last batch that is smaller */
    int workers;               /* threads that make batches ahead; 0: the caller makes each when it asks for it */
    int prefetch;              /* batches that are ahead for each worker; 0 = 2. PyTorch: prefetch_factor */
    tt_collate_fn collate;     /* NULL = one example behind the other */
    void *collate_user;        /* handed to `collate`; borrowed */
    tt_sampler *batch_sampler; /* held: says which examples make a batch, in place of batch_size, sampler, drop_last */
    const tt_device *pin_memory; /* make batches in memory from which copies to this CUDA device run beside the host;
                                    NULL, or a device of the host: no */
    char tt_end;                 /* not an option: see base.h */
} tt_loader_new_args;
#define TT_LOADER_NEW_ARGS_INIT TT_ARGS_INIT

/* tt_loader_new(dataset, 32, sampler), tt_loader_new(test_set, 1000, tt_in_order()), tt_loader_new(train, 64, sampler,
 * .workers = 4), tt_loader_new(texts, 0, NULL, .batch_sampler = by_length). Allocates everything it needs; batches
 * allocate nothing, unless the caller holds on to earlier ones, or a function of the program's does. The sampler is
 * required, so that one that could not be made (NULL) is an error and not another order.
 *
 * Batches are the same for any number of workers, to the bit, and come in the same order. Workers are threads of this
 * process, without signals; they begin with an epoch and go no further than its end. An error in one of them comes
 * with the batch in which it happened. In a forked child the loader has no workers: its calls fail with TT_ERR_STATE.
 *
 * With .pin_memory, which tt_trainer_run() sets for a model on a CUDA device, tt_to_device() of a batch's x or y,
 * whole, to that device returns while the copy is still under way. The loader fills other memory then, or, with as many
 * copies under way as it has buffers, waits for the oldest. tt_tensor_data() and calls that change a tensor wait for
 * its copy; don't write by a pointer from before. Memory that can't be pinned serves as well, more slowly; the log says
 * why. A forked child can't use batches from before the fork; its loader fills other memory. PyTorch: pin_memory.
 *
 * Errors: TT_ERR_INVALID: batch_size below 1, a batch sampler and what it replaces, a sampler for a data set of another
 * size, workers or prefetch out of range, prefetch without workers; TT_ERR_SYSTEM: a thread could not be started.
 * PyTorch: DataLoader. */
TT_API tt_loader *tt_loader_new_with(const tt_loader_new_args *args, size_t size);
#ifndef __cplusplus
#define tt_loader_new(dataset_, batch_size_, ...) \
    tt_loader_new_with(                           \
        TT_ARGS(tt_loader_new_args, .dataset = (dataset_), .batch_size = (batch_size_), .sampler = __VA_ARGS__))
#endif

/* Get the next batch. Returns 1 for a batch, and 0 at the end of the epoch; the call after that starts the next epoch.
 * Returns -1 after an error (of the data set's or sampler's functions, or TT_ERR_MEMORY); so does every further call,
 * with the same error, until tt_loader_restart(). Without a batch x and y are NULL and size is 0, so in a loop that
 * only looks for zero tt_backward(NULL) fails, with the loader's error. `size` is sizeof(tt_batch) of the caller's
 * version. Blocks: without workers it reads the examples, with workers it waits for the oldest batch, without a
 * deadline. One thread at a time. */
TT_API TT_NODISCARD int tt_loader_next_with(tt_loader *loader, tt_batch *batch, size_t size);
#define tt_loader_next(loader, batch) tt_loader_next_with(loader, batch, sizeof *(batch))

/* Make the next call start an epoch anew, for a loop that was left before its end (in Python every "for" does), or
 * after an error. The last batch stays valid. Waits for the batches that workers are making. */
TT_API void tt_loader_restart(tt_loader *loader);

/* Return the number of batches of an epoch; with a batch sampler of the program's own, the most that an epoch can
 * have. */
TT_API int64_t tt_loader_batches(const tt_loader *loader);

/* Return how many batches are still to come in the epoch under way, also if it was resumed; between epochs, all of the
 * next one. */
TT_API int64_t tt_loader_batches_left(const tt_loader *loader);

/* Return how much of the time the caller has waited for batches, from 0 to 1, since it asked for the first batch of the
 * epoch that began last. Without workers this is the time in which batches are made. 0 for NULL, and before the first
 * batch. */
TT_API double tt_loader_waited(const tt_loader *loader);

/* Return where the loader stands: epochs, the position in this one, and what its sampler needs to give the same order
 * again. The tensors are copies, and borrowed until the next call or tt_loader_free(). Batches that workers have made
 * ahead don't count. For samplers other than tt_in_order() and tt_distributed_sampler() the state has 8 bytes for each
 * example of an epoch. NULL gives NULL. */
TT_API const tt_named_tensors *tt_loader_state_dict(tt_loader *loader);

/* Go on where a state says: the next batch is the one that would have come next, with the same random numbers of
 * transforms. The loader must have a data set of the same size and a sampler of the same kind and seed. What draws from
 * the thread's default generator (tt_shuffled(), dropout) needs its state, too: tt_generator_set_state().
 *
 * A distributed sampler may be one of another number of ranks. What no rank has visited in this epoch is then dealt
 * anew: nothing of it is lost or comes twice, except that, as in a whole epoch, positions past the end start again from
 * the order's front, or the tail is dropped, so that all ranks get the same number. The state of any rank will do,
 * after a step that all have made. Errors: TT_ERR_NOT_FOUND an entry is missing; TT_ERR_DTYPE, TT_ERR_SHAPE,
 * TT_ERR_INVALID: it doesn't fit. Then nothing has changed. */
TT_API TT_NODISCARD tt_status tt_loader_load_state_dict(tt_loader *loader, const tt_named_tensors *state);

/* Free a loader at any moment; waits for the batches that workers are making. NULL is allowed. */
TT_API void tt_loader_free(tt_loader *loader);

TT_END_DECLS
#endif
