/* Lists of named tensors as bytes, from one process to another of the same program. */
#ifndef TT_PARALLEL_NAMED_COPY_H
#define TT_PARALLEL_NAMED_COPY_H

#include <tutti/elastic.h>
#include <tutti/tensor.h>

/* Write names, element types, shapes and elements. */
tt_status tt__named_write(tt_elastic_writer *writer, const tt_named_tensors *list);

typedef struct tt__named_copy {
    tt_named_tensors list; /* of tensors that belong to the scope they were read in */
    const char **names;
    tt_tensor **tensors;
} tt__named_copy;

/* Read a list from *data on, and move *data and *size behind it. After a failure, too, tt__named_copy_free() must
 * follow. TT_ERR_FORMAT: there is none. */
tt_status tt__named_read(tt__named_copy *copy, const void **data, size_t *size);
void tt__named_copy_free(tt__named_copy *copy);

#endif
