/* Showing what workers write to their log files (--tee): the launcher reads the files as they grow, and passes whole
 * lines on to its own stdout and stderr, each with the worker's prefix. Lines that contain one of the filters are also
 * kept in a file for all workers.
 *
 * Nothing here waits for the reader of our output: while that is full, the files are not read, which loses nothing. */
#ifndef TT_LAUNCH_LOCAL_FOLLOW_H
#define TT_LAUNCH_LOCAL_FOLLOW_H

#include "launch/job.h"
#include "launch/local/streams.h"

typedef struct tt__follow tt__follow;

/* Follow the files that `job` tees; NULL if there are none. `errors` gets what goes to stderr. */
tt_status tt__follow_new(tt__follow **out, const tt__job *job, tt__streams *errors);

/* The workers of attempt job->attempt are about to start. What workers of an earlier one have written is still
 * shown. */
void tt__follow_begin(tt__follow *follow);

/* As tt__streams_poll(): at most 2 entries. */
int tt__follow_poll(const tt__follow *follow, struct pollfd *fds, int *timeout_ms);

void tt__follow_serve(tt__follow *follow);

/* The workers have ended: show what is left. While tt__follow_is_behind(), serve; *progress changes as bytes move. */
void tt__follow_end(tt__follow *follow);
bool tt__follow_is_behind(const tt__follow *follow, size_t *progress);

/* How many descriptors it needs. */
int tt__follow_descriptors(const tt__job *job);

void tt__follow_free(tt__follow *follow);

#endif
