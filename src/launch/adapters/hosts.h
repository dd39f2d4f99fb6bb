/* The hosts of a job, as users list them. */
#ifndef TT_LAUNCH_ADAPTERS_HOSTS_H
#define TT_LAUNCH_ADAPTERS_HOSTS_H

#include <tutti/base.h>

typedef struct tt__host {
    char *name; /* what ssh takes: "host", "user@host" */
    int slots;  /* ranks there; 0: not said */
} tt__host;

/* Zeroed = none. */
typedef struct tt__hosts {
    tt__host *of;
    int n;
} tt__hosts;

enum { TT__HOSTS_MAX = 4096, TT__SLOTS_MAX = 4096 };

/* Read "a,b:4,user@c,[2001:db8::1]:2". Errors: TT_ERR_INVALID; TT_ERR_MEMORY. *hosts is freed by the caller, also on
 * failure. */
tt_status tt__hosts_from_list(tt__hosts *hosts, const char *list);

/* Read a file with a host a line, as Open MPI and MPICH have them: "a", "a slots=4", "a:4"; "#" begins a comment.
 * Errors as above, with the line; TT_ERR_IO. */
tt_status tt__hosts_from_file(tt__hosts *hosts, const char *path);

/* The name without the user, in `bare` (size bytes), for finding its address. Returns `bare`. */
const char *tt__host_address(const tt__host *host, char *bare, size_t size);

void tt__hosts_free(tt__hosts *hosts);

#endif
