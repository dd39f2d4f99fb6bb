/* The inside of loaders: their state, and how one batch is made. */
#ifndef TT_DATA_LOADER_H
#define TT_DATA_LOADER_H

#include "base/error.h"
#include "data/datasets/dataset.h"
#include "data/loader/crew.h"
#include "data/samplers/sampler.h"
#include "tensor/core/tensor.h"

#include <tutti/data.h>

/* ---- batch.c: the memory of a loader's batches, and the tensors that it lends to the caller, new ones in each batch.
 * A buffer that anything else still uses is left alone, and the loader takes another one. ---- */

/* Buffers that take turns for a caller that keeps earlier batches (a pipeline does), besides those that are filled
 * ahead. If it keeps more, a buffer is made for each batch. */
enum { TT__BATCH_BUFFERS = 4 };

typedef struct tt__batch_buffer {
    tt_tensor *x; /* (rows, ...) held */
    tt_tensor *y; /* (rows, ...) held; NULL: no targets */
    bool taken;   /* chosen, and not lent or given back yet */
    int64_t lent; /* when it was lent last: loans are counted from 1 */
} tt__batch_buffer;

typedef struct tt__batches {
    int64_t rows;         /* of the largest batch */
    tt_tensor_spec x, y;  /* one example in a batch */
    int64_t most;         /* buffers at one time */
    const tt_device *pin; /* buffers are pinned for copies to it; NULL: they are not */
    int64_t loans;
    tt__batch_buffer *buffer;
    int64_t count, oldest;
    tt_tensor *lent_x, *lent_y; /* the caller's batch: views of one of the buffers, or what was lent as it is */
} tt__batches;

/* Set up, with `pin` set or NULL, for batches of at most `rows` examples, `ahead` of which are filled at one time, and
 * allocate their buffers. The other fields are zero. After a failure, too, free must follow. */
tt_status tt__batches_init(tt__batches *batches, int64_t rows, int64_t ahead, const tt_tensor_spec *x,
                           const tt_tensor_spec *y);
void tt__batches_free(tt__batches *batches);

/* Make new buffers, pinned for `device`, in place of those that nobody uses. */
tt_status tt__batches_pin(tt__batches *batches, const tt_device *device);

/* Choose a buffer that nobody else uses, to be filled; its rows are uninitialised, and *out stays where it is. If
 * copies to a device still read all free buffers, wait for the oldest. */
tt_status tt__batches_choose(tt__batches *batches, tt__batch_buffer **out);

/* Lend tensors of the first n rows of a buffer: lent_x and lent_y. The loan before it has ended. */
tt_status tt__batches_lend(tt__batches *batches, tt__batch_buffer *buffer, int64_t n);

/* Lend a tensor that is the caller's, as it is. */
tt_status tt__batch_lend_tensor(tt_tensor *x);

/* End the loan; NULL both. Tensors that the caller kept stay as they are. */
void tt__batches_take_back(tt__batches *batches);

/* ---- the loader ---- */

/* Reads the examples of a batch into its memory: u8 inputs become f32, as their data set says. One thread uses a reader
 * at a time; several may read one data set. */
typedef struct tt__reader {
    tt_dataset *dataset; /* borrowed */
    uint8_t *raw;        /* (raw_rows) u8 inputs on their way to f32; NULL: inputs are taken as they are */
    int64_t raw_rows;
} tt__reader;

/* One batch on its way. A worker writes x, y and error. */
typedef struct tt__loader_job {
    const int64_t *indices; /* (n) */
    int64_t n;
    int64_t epoch; /* in which transforms draw */
    tt__normalization how;
    tt__batch_buffer *buffer;
    tt_tensor *x, *y; /* what a collate function made, lent */
    tt__saved_error error;
} tt__loader_job;

/* The state dict that was asked for last. */
enum { TT__LOADER_ENTRIES = 12 };
typedef struct tt__loader_state {
    const char *names[TT__LOADER_ENTRIES];
    tt_tensor *tensors[TT__LOADER_ENTRIES]; /* held */
    tt_named_tensors list;
} tt__loader_state;

struct tt_loader {
    tt_dataset *dataset;
    tt_sampler *sampler;
    int64_t batch_size;
    tt_collate_fn collate; /* or NULL */
    void *collate_user;
    bool drop_last;
    int64_t wanted_in_a_row; /* batches of a virtual rank before the next one's, in epochs to come */
    int64_t in_a_row;        /* the same in the epoch under way */
    int64_t examples;        /* of this epoch, without what drop_last leaves out */
    bool begun;              /* an epoch is under way */
    int64_t epochs;          /* epochs that have begun */
    int64_t epoch;  /* in which transforms draw: what the sampler was told, else the number of epochs before this one */
    int64_t at;     /* place in `order` of the caller's next example */
    int64_t lent;   /* batches that the caller has had */
    int64_t share;  /* indices of this epoch, with what drop_last leaves out */
    int64_t given;  /* place in `order` of the next example that no job has */
    int64_t *order; /* (size of the sampler) the examples that this epoch visits */
    int64_t *sizes; /* (batches of the sampler) if it is a batch sampler of the program's own; else NULL */
    int64_t batch;  /* batches that have jobs */
    tt__normalization how;
    tt__batches batches;
    int64_t readers, jobs;
    tt__reader *reader;    /* (readers) one for each worker; without workers one */
    tt__loader_job *job;   /* (jobs) one for each slot of the crew; without workers one */
    tt__loader_crew *crew; /* or NULL: the caller makes batches */
    int64_t began_ns;      /* when the caller asked for the epoch's first batch */
    int64_t seen_ns;       /* when it got its last one */
    int64_t waited_ns;     /* how long it was in tt_loader_next() in between */
    tt__loader_state state;
    tt__saved_error error; /* what ended the epoch; status TT_OK: nothing */
};

/* ---- loader_shards.c: the sampler has the shares of several virtual ranks ---- */

/* Return how many of an epoch's n examples come in batches, and in how many batches. */
int64_t tt__shard_examples(const tt_loader *loader, int64_t n);
int64_t tt__shard_batches(const tt_loader *loader, int64_t n);

/* Return the length of batch number `batch` of the epoch under way; *at := where it begins in the order. */
int64_t tt__shard_batch(const tt_loader *loader, int64_t batch, int64_t *at);

/* Return how many examples of all shares have been visited in the epoch under way. A batch counts once all shares have
 * had theirs of its round. */
int64_t tt__shard_position(const tt_loader *loader);

/* Have each share give so many batches before the next one does, from the next epoch on; the last round of an epoch may
 * have fewer. With more than one, shares must be equal (no .exact). */
void tt__shard_in_a_row(tt_loader *loader, int64_t batches);

/* ---- any loader ---- */

/* Return how many of an epoch's n examples come in batches. */
int64_t tt__loader_examples(const tt_loader *loader, int64_t n);

/* Have the loader's sampler, one that ranks share, divide by `replicas` ranks from now on. The epoch under way is
 * forgotten: a state is loaded next. TT_ERR_UNSUPPORTED: no such sampler. */
tt_status tt__loader_share(tt_loader *loader, int64_t replicas, int64_t rank);

/* Have the loader pin the memory of its batches for copies to `device` from now on, unless it does so for one. Batches
 * that are being made stay as they are. */
tt_status tt__loader_pin(tt_loader *loader, const tt_device *device);

/* Note that an epoch begins now. */
tt_status tt__loader_clock_epoch(tt_loader *loader);

static inline void tt__loader_state_free(tt__loader_state *state) {
    for (int64_t i = 0; i < state->list.count; i++)
        tt__tensor_disown(state->tensors[i]);
    state->list.count = 0;
}

/* Does the order of this loader depend on the epoch alone, so that a state of one rank tells where all of them
 * stand? */
bool tt__loader_order_is_pure(const tt_loader *loader);

/* Would loading this state succeed? Changes nothing. The errors are those of loading. */
tt_status tt__loader_check_state(const tt_loader *loader, const tt_named_tensors *state);

/* Set up to read; with `convert`, u8 inputs become f32. After a failure, too, free must follow. */
tt_status tt__reader_init(tt__reader *reader, tt_dataset *dataset, bool convert);
void tt__reader_free(tt__reader *reader);

/* Make the batch of the job in `slot`, as worker number `worker`: a tt__loader_crew_work of a tt_loader. */
void tt__loader_work(void *loader, int worker, int64_t slot);

#endif
