/* How activations and their gradients go from stage to stage: in order, each under a header that says what it is.
 *
 * On one host a tensor is copied into a slot of the sender's symmetric memory, and the header, a small message, says
 * which; the receiver copies it out. So neither waits for the other while it computes. Where there are no slots (yet),
 * none is free, or the peer is on another host, the tensor follows its header as a message of its own. A rank that
 * fails says so in its neighbours' next headers. */
#ifndef TT_PARALLEL_PIPELINE_CHANNEL_H
#define TT_PARALLEL_PIPELINE_CHANNEL_H

#include <tutti/pipeline.h>

/* Which way: activations go to the next stage, their gradients to the one before. */
typedef enum tt__way { TT__ONWARD, TT__BACK } tt__way;

/* A tensor that was sent as a message, and is not there yet. */
typedef struct tt__sending {
    struct tt__sending *next;
    tt_work *work;
    tt_tensor *tensor; /* kept */
} tt__sending;

/* Tensors between two stages of this rank. */
typedef struct tt__handed {
    struct tt__handed *next;
    tt_tensor *tensor; /* kept */
} tt__handed;

typedef struct tt__channels {
    tt_group *group; /* held */
    int rank, ranks;
    const tt_device *device; /* where this rank's stages lie: what comes is brought there; NULL: the host */
    int64_t chunks;
    int64_t slots;         /* of each of this rank's outgoing channels */
    size_t slot_bytes;     /* 0: there are none */
    bool no_room;          /* for slots: not to be asked for again */
    unsigned char *memory; /* this rank's: counts of what it took, then its slots */
    int64_t *offsets;      /* (ranks): of all ranks' memory; -1: not to be reached */
    uint64_t *sent;        /* (chunks, 2): tensors that went through slots, by outgoing channel */
    size_t wanted_bytes;   /* the largest tensor that was sent */
    tt__sending *sendings;
    tt__handed **handed; /* (chunks, 2): by the sender's channel */
    int failed_rank;     /* that another rank has told of; -1: none */
    char failure[400];   /* its error */
    bool differs;        /* what failed is that ranks differ (TT_ERR_MISMATCH), not a rank */
} tt__channels;

tt_status tt__channels_init(tt__channels *c, tt_group *group, int64_t chunks);

/* Once, before tensors are sent: how many slots each outgoing channel is to have. */
void tt__channels_set_slots(tt__channels *c, int64_t slots);

/* Collective, and never fails. */
void tt__channels_end(tt__channels *c);

/* How large slots this rank would like; 0: none, as no rank that it sends to can reach them. */
size_t tt__channels_want(const tt__channels *c);

/* Collective: have slots of at least `bytes`, the most that any rank wants, or none from then on, where the heap has no
 * room for them on some rank. */
tt_status tt__channels_grow(tt__channels *c, size_t bytes);

/* Send x out of this rank's chunk, for micro-batch m. x is read before it returns, or kept. */
tt_status tt__channel_send(tt__channels *c, int64_t chunk, tt__way way, int64_t m, tt_tensor *x);

/* Receive what comes into this rank's chunk for micro-batch m; it is made in the open scope. NULL on failure, which
 * says what was waited for. */
tt_tensor *tt__channel_recv(tt__channels *c, int64_t chunk, tt__way way, int64_t m);

/* Wait until all that was sent is there. */
tt_status tt__channels_flush(tt__channels *c);

/* Collective, also where this rank has failed (tt__channels_mark_failed()): did all come through? TT_ERR_PEER names the
 * rank that did not, and `where`, unless it is this one, whose error stays. */
tt_status tt__channels_settle(tt__channels *c, const char *where);

/* This rank has failed, as the thread's last error says, unless it was told of another's failure: remember it. Keeps
 * that error. */
void tt__channels_mark_failed(tt__channels *c);

/* The same, and let the neighbours know. */
void tt__channels_fail(tt__channels *c);

#endif
