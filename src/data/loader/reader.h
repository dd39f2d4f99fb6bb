/* Reading the examples of a batch into its memory: u8 inputs become f32, as their data set says. One thread uses a
 * reader at a time; several may read one data set. */
#ifndef TT_DATA_READER_H
#define TT_DATA_READER_H

#include "data/datasets/dataset.h"

typedef struct tt__reader {
    tt_dataset *dataset; /* borrowed */
    uint8_t *raw;        /* (raw_rows) u8 inputs on their way to f32; NULL: inputs are taken as they are */
    int64_t raw_rows;
} tt__reader;

/* Set up to read; with `convert`, u8 inputs become f32. After a failure, too, free must follow. */
tt_status tt__reader_init(tt__reader *reader, tt_dataset *dataset, bool convert);
void tt__reader_free(tt__reader *reader);

/* Write n examples to x and y (NULL: no targets), one behind the other; `how` normalises u8 inputs. */
tt_status tt__reader_read(tt__reader *reader, const tt__normalization *how, const int64_t *indices, int64_t n, void *x,
                          void *y);

#endif
