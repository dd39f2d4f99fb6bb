/* What passes between two stages.
 *
 *   sender                                receiver
 *   heading   ------- tag ------------->  tells what follows
 *   elements  ------- tag ------------->
 *   elements  <------ gradient's tag ---  received into memory that waits for them from the beginning
 *   notice    <------ the next tag -----  small, behind them: what a sender waits for in backward, from then on
 *
 * The sender chooses the gradient's tag, another one for each activation, so that gradients may come in any order. As
 * the memory for a gradient waits for it, a receiver can send it whatever the sender does meanwhile. */
#ifndef TT_PARALLEL_MODEL_PARALLEL_ACTIVATION_H
#define TT_PARALLEL_MODEL_PARALLEL_ACTIVATION_H

#include <tutti/autograd.h>
#include <tutti/comm.h>

/* Tags from here on are those of gradients. */
#define TT__GRADIENT_TAGS ((int64_t)1 << 30)

typedef struct tt__activation_heading {
    int64_t magic; /* TT__ACTIVATION */
    int64_t dtype;
    int64_t gradient_tag; /* -1: no gradient is wanted */
    int64_t ndim;
    int64_t dim[TT_MAX_DIMS];
} tt__activation_heading;

enum { TT__HEADING_WORDS = sizeof(tt__activation_heading) / sizeof(int64_t), TT__ACTIVATION = 0x54744163 };

/* The other end of a call, how long to wait for it, and where the call was made. */
typedef struct tt__stage_link {
    tt_group *group;
    int peer; /* in the group; its number in the job is what errors say */
    int64_t timeout_ms;
    const char *file;
    int line;
} tt__stage_link;

/* Can `link` and `tag` be used? Else TT_ERR_INVALID. */
tt_status tt__stage_link_check(const char *who, const tt__stage_link *link, int tag);

/* The peer's number in the job. */
int tt__stage_peer(const tt__stage_link *link);

/* Begin to send / to receive; *work is the caller's. */
tt_status tt__stage_send(const tt__stage_link *link, const void *data, int64_t count, tt_dtype dtype, int tag,
                         tt_work **work);
tt_status tt__stage_recv(const tt__stage_link *link, void *data, int64_t count, tt_dtype dtype, int tag,
                         tt_work **work);

/* Wait for the work and free it. NULL is TT_OK. */
tt_status tt__stage_finish(tt_work **work);

/* x as contiguous memory of the host: a tensor without history over x's storage or a copy's, whose one reference is the
 * caller's. NULL: no memory. */
tt_tensor *tt__activation_plain(const char *who, tt_tensor *x);

#endif
