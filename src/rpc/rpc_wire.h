/* What workers say to each other: packets (comm/message), each a header and what it counts.
 *
 *   header | name of the function | value | sizes of the parts | references
 *
 * The value is a tree of tagged bytes. Bytes and tensors above TT__RPC_INLINE are parts: they travel as messages of
 * their own, under the key of the call, into memory that the receiver makes once it has read the packet. A value that
 * is too large for a packet is itself the last part (TT__RPC_VALUE_APART). Both ends are of one version and byte
 * order. */
#ifndef TT_RPC_WIRE_H
#define TT_RPC_WIRE_H

#include "comm/message/message.h"
#include "rpc/tensor_hooks.h"

typedef enum tt__rpc_packet_kind {
    TT__RPC_CALL = 1, /* name, arguments */
    TT__RPC_KEEP,     /* the same, and the result stays: `serial` is the reference's, made by the sender */
    TT__RPC_FETCH,    /* the value of the one reference */
    TT__RPC_REPLY,    /* to call `id`: its result */
    TT__RPC_ERROR,    /* to call `id`: a text; flags: tt_status */
    TT__RPC_FORGET,   /* of call `id`: its reply is not wanted any more */
    TT__RPC_CREDIT,   /* only what every header carries */
    TT__RPC_HOLD,     /* the one reference was given to worker `id` */
    TT__RPC_RELEASE,  /* the one reference, got `serial` times from worker `id`, is let go */
    TT__RPC_PROBE,    /* of search `context`: can call `serial` of yours go on? Answer with `id` */
    TT__RPC_PROBED,   /* the answer: flags (cycles.c), and a text, who waits for whom */
    TT__RPC_LEAVING,  /* the sender waits for the end of all calls */
    TT__RPC_WAVE,     /* number `id`: say when you are idle */
    TT__RPC_IDLE,     /* in wave `id`: `context` calls were sent, `message` received */
    TT__RPC_END,      /* all may leave */
    TT__RPC_SETTLE,   /* worker `id` is lost: what does the receiver hold of the sender's values that it got of it? */
    TT__RPC_SETTLED,  /* that is counted anew: what worker `id` gave the sender besides has never come */
    TT__RPC_PACKET_KINDS
} tt__rpc_packet_kind;

enum { TT__RPC_VALUE_APART = 128 /* of flags */ };

enum {
    TT__RPC_INLINE = 8 << 10,
    TT__RPC_PARTS_MAX = 4096, /* of one packet; what is more is a value too large, for which lists of bytes are not */
    TT__RPC_REFS_MAX = 1024,
    TT__RPC_GROUP = 0x7ffffff0 /* of the keys of parts: no group has this id */
};

typedef struct tt__rpc_header {
    uint8_t kind, flags;
    uint16_t name_bytes, parts, refs;
    uint32_t id, value_bytes, credit, unused;
    uint64_t context, message; /* of distributed autograd */
    uint64_t serial;
} tt__rpc_header;

_Static_assert(sizeof(tt__rpc_header) == 48, "the header has no padding");

/* Which reference: made by worker `creator` as its number `serial`; the value lies with `owner`. */
typedef struct tt__rpc_ref {
    uint32_t owner, creator;
    uint64_t serial;
} tt__rpc_ref;

/* ---- writing */

typedef struct tt__rpc_part {
    const void *data;
    uint64_t bytes;
    void *keep; /* a tensor's: let go when it has been sent */
    void *copy; /* memory of the part's own */
} tt__rpc_part;

/* A packet in the making. `data` begins with the header. */
typedef struct tt__rpc_encoder {
    uint8_t *data;
    size_t size, room;
    tt_status status; /* of what failed, recorded */
    tt__rpc_part *parts;
    tt_rref **refs; /* borrowed from the value */
    struct tt_tensor **tensors;
    uint32_t part_count, part_room, ref_count, ref_room, tensor_count, tensor_room;
    bool requires_grad;  /* a tensor does */
    bool copies_bytes;   /* parts too are copied: nobody can tell when they have been sent */
    uint8_t *apart;      /* a value that is a part of its own */
    uint8_t small[1024]; /* `data`, at first */
} tt__rpc_encoder;

/* Begin a packet; put a value, or several as a list; a text. Then finish it, which sets all of the header but kind, id,
 * serial and credit. Errors stay in ->status. */
void tt__encoder_begin(tt__rpc_encoder *e, const char *name);
void tt__encoder_values(tt__rpc_encoder *e, const tt_rpc_value *first, const tt_rpc_value *values, int64_t count);
void tt__encoder_value(tt__rpc_encoder *e, const tt_rpc_value *value);
void tt__encoder_text(tt__rpc_encoder *e, const char *text);
tt_status tt__encoder_finish(tt__rpc_encoder *e, const tt__rpc_ref *refs);

static inline tt__rpc_header *tt__encoder_header(const tt__rpc_encoder *e) { return (tt__rpc_header *)(void *)e->data; }

/* Free what it made, but not the parts' keeps and copies, unless `parts`. */
void tt__encoder_free(tt__rpc_encoder *e, bool parts);

/* ---- reading */

/* A packet as it came, checked: all that the header counts is there. */
typedef struct tt__rpc_packet_view {
    tt__rpc_header header;
    const char *name;
    const uint8_t *value;
    const uint8_t *part_sizes, *refs; /* not aligned */
} tt__rpc_packet_view;

/* TT_ERR_PROTOCOL, recorded. */
tt_status tt__packet_view(tt__rpc_packet_view *out, const void *data, size_t bytes);
uint64_t tt__packet_part_bytes(const tt__rpc_packet_view *view, uint32_t i);
tt__rpc_ref tt__packet_ref(const tt__rpc_packet_view *view, uint32_t i);

/* Where a part is received. */
typedef struct tt__rpc_landing {
    void *data;
    uint64_t bytes;
    struct tt_tensor *tensor; /* whose elements it has; or NULL */
    tt__rpc_form form;
} tt__rpc_landing;

/* What reading a value needs and makes. */
typedef struct tt__rpc_decoder {
    const tt__rpc_packet_view *view;
    const uint8_t *at, *end;
    uint32_t owed;             /* elements that are still to come in the lists around */
    bool own;                  /* texts and bytes are copied; else they lie in the packet */
    tt_rref **refs;            /* (header.refs): what the references are here; each place in the value takes a share */
    tt__rpc_landing *landings; /* (header.parts): filled in */
    struct tt_tensor ***tensors; /* places of the tensors, in order; NULL: not wanted */
    uint32_t tensor_count, tensor_room;
} tt__rpc_decoder;

/* Read the value at ->at. What it owns, with memory for its parts, is the caller's to free, also on failure. Errors:
 * TT_ERR_PROTOCOL, TT_ERR_MEMORY, TT_ERR_UNSUPPORTED a tensor without libtutti. */
tt_status tt__decode_value(tt__rpc_decoder *d, tt_rpc_value *out);

#endif
