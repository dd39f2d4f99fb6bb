/* How the larger examples join a job, and what they look at before they end. */
#ifndef EXAMPLES_JOB_H
#define EXAMPLES_JOB_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

/* Join it. Without a launcher this process is a world of its own. */
static inline tt_status join_job(tt_group **world) { return tt_init_process_group(world, .or_alone = true); }

/* The device that --device names: "cuda" is another GPU for each rank of a host. NULL: an error. */
static inline const tt_device *find_device(const char *name) {
    return strcmp(name, "cuda") != 0 ? tt_device_get(name) : TT_CUDA(tt_get_node_local_rank(0));
}

/* Was all written that was printed? A full disk is only told here: nobody asks printf(). */
static inline tt_status flush_output(void) {
    errno = 0;
    if (!fflush(stdout) && !ferror(stdout))
        return TT_OK;
    return tt_fail(TT_ERR_IO, "writing the output failed%s%s", errno ? ": " : "", errno ? strerror(errno) : "");
}

#endif
