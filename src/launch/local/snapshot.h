/* A job at one moment, for a reader: its ranks, their states, and their flight recorders, mapped. */
#ifndef TT_LAUNCH_LOCAL_SNAPSHOT_H
#define TT_LAUNCH_LOCAL_SNAPSHOT_H

#include "net/job/job_socket.h"

#include <pthread.h>

typedef struct tt__seen_rank {
    tt__job_rank rank;
    const void *recorder; /* rank.at.size bytes, as the rank writes them; NULL: it has none */
    int memory;           /* a descriptor of its file, or -1 */
    void *mapping;        /* what is unmapped */
    size_t mapped;
} tt__seen_rank;

typedef struct tt__snapshot {
    tt__job_info info;
    tt__seen_rank *ranks; /* (n), in no order */
    int n;
} tt__snapshot;

/* Ask the launcher at socket `name`. Errors: TT_ERR_NOT_FOUND, TT_ERR_AUTH, TT_ERR_TIMEOUT, TT_ERR_NET it ended
 * meanwhile, TT_ERR_MEMORY. */
tt_status tt__snapshot_ask(tt__snapshot *snapshot, const char *name, int64_t timeout_ms);

/* Add a rank. Takes `memory` (-1: it has none), also on failure. */
tt_status tt__snapshot_add(tt__snapshot *snapshot, const tt__job_rank *rank, int memory);

void tt__snapshot_free(tt__snapshot *snapshot);

/* Map the recorder that rank.at describes in `memory`: sets recorder, or leaves it NULL. Unmap it; `memory` stays
 * open. */
void tt__seen_map(tt__seen_rank *seen);
void tt__seen_unmap(tt__seen_rank *seen);

/* A job whose launcher's socket is known, and the launcher's answer. */
typedef struct tt__job_heard {
    char name[TT__JOB_NAME_SIZE]; /* of the socket */
    tt_status status;             /* of its answer: TT_ERR_TIMEOUT there was none */
    tt__job_info info;            /* if TT_OK */
    int64_t timeout_ms;           /* this and what follows is for the thread that asks */
    pthread_t thread;
    bool apart;
} tt__job_heard;

/* List this user's jobs on this host (in this network namespace): *jobs (n), to be freed. They have not been asked
 * yet. */
tt_status tt__jobs_find(tt__job_heard **jobs, int *n);

/* Ask all of them at once: sets `status` and `info`. Takes at most timeout_ms, however many don't answer. */
void tt__jobs_ask(tt__job_heard *jobs, int n, int64_t timeout_ms);

/* Pack the ranks of `node` into *bytes (*size), to be freed. TT_ERR_MEMORY. */
tt_status tt__blob_pack(const tt__snapshot *snapshot, int node, void **bytes, size_t *size);

/* Add the ranks in the bytes, at most `most`, to `snapshot`. TT_ERR_PROTOCOL it is something else, TT_ERR_MEMORY,
 * TT_ERR_SYSTEM. */
tt_status tt__blob_unpack(tt__snapshot *snapshot, int most, const void *bytes, size_t size);

#endif
