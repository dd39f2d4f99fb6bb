/* The memory of a loader's batches, and the tensors that it lends to the caller, new ones in each batch.
 *
 * A buffer that anything else still uses is left alone, and the loader takes another one. */
#ifndef TT_DATA_BATCH_H
#define TT_DATA_BATCH_H

#include <tutti/data.h>

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

#endif
