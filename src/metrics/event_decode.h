/* Scalars from the event files that tt_summary_writer writes for TensorBoard.
 *
 * A record is written by one write at the end of the file, and what a failed write left is cut off (append_file.h). A
 * process may still be killed while it writes. So reading stops at the first record that is torn or damaged, keeps what
 * came before, and says so. */
#ifndef TT_METRICS_EVENT_DECODE_H
#define TT_METRICS_EVENT_DECODE_H

#include "metrics/scalar_log.h"

/* Is this the beginning of an event file, that is a first record whose length has its checksum? */
bool tt__events_recognise(const void *data, size_t size);

/* Add the scalars of a file's bytes to `log`; texts and histograms are passed over. `name` stands for the path in
 * texts. An unfinished last record is left out, and noted; so is all that follows a damaged one, as in TensorBoard.
 * Errors: TT_ERR_FORMAT it is no event file; TT_ERR_UNSUPPORTED a record is of a kind that another program wrote;
 * TT_ERR_MEMORY. */
tt_status tt__events_decode(tt__scalar_log *log, const void *data, size_t size, const char *name);

#endif
