/* The packets (comm/message) that workers send each other. A packet has five fields; the header has the sizes of the
 * others:
 *
 *   header | name of the function | value | sizes of the parts (u64 each) | references (tt__rpc_ref each)
 *
 * The value is a tree of tagged bytes (TT__TAG_NONE and so on). Bytes and tensors above TT__RPC_INLINE are parts: each
 * travels as a message of its own, whose key has the call's id, into memory that the receiver allocates after it has
 * read the packet. A value that is too large for a packet becomes the last part (TT__RPC_VALUE_APART). Both ends have
 * the same version and byte order.
 *
 *   caller                                        callee
 *   CALL, KEEP or FETCH ------------------------> queues the call
 *   the parts of the arguments -----------------> are received when a thread takes the call from the queue
 *                       <------------------------ CREDIT, or the header of another packet: the call has begun
 *                       <------------------------ REPLY or ERROR
 *                       <------------------------ the parts of the result
 *   FORGET -------------------------------------> only if the caller gave the call up, as its timeout passed
 *
 * HOLD, RELEASE, SETTLE and SETTLED count references (references.h). PROBE and PROBED look for cycles of calls
 * (cycles.h). LEAVING, WAVE, IDLE and END find out that no call is under way (leaving.h). */
#ifndef TT_RPC_WIRE_H
#define TT_RPC_WIRE_H

#include "comm/message/message.h"
#include "rpc/values/tensor_hooks.h"

/* The byte that begins each value. The comments say what follows it; numbers have the host's byte order. */
enum {
    TT__TAG_NONE,
    TT__TAG_FALSE,
    TT__TAG_TRUE,
    TT__TAG_INT,          /* 8 bytes */
    TT__TAG_FLOAT,        /* 8 bytes */
    TT__TAG_TEXT,         /* u32 n, n bytes, a byte 0 */
    TT__TAG_BYTES,        /* u32 n, n bytes */
    TT__TAG_BYTES_APART,  /* u32: the number of the part that has the bytes */
    TT__TAG_TENSOR,       /* tt__rpc_form with `ndim` dimensions, u32 n, n bytes of elements */
    TT__TAG_TENSOR_APART, /* tt__rpc_form with `ndim` dimensions, u32: the number of the part that has the elements */
    TT__TAG_RREF,         /* u32: the number of the reference */
    TT__TAG_LIST,         /* u32 n, n values */
    TT__TAG_MAP,          /* u32 n, which is even, n values: keys and values take turns */
    TT__TAGS
};

typedef enum tt__rpc_packet_kind {
    TT__RPC_CALL = 1, /* call the function `name` with the arguments `value`; call number `id` of the sender */
    TT__RPC_KEEP,     /* the same, and keep the result for reference number `serial` of the sender */
    TT__RPC_FETCH,    /* send a copy of the value of the packet's reference */
    TT__RPC_REPLY,    /* call `id` has the result `value` */
    TT__RPC_ERROR,    /* call `id` failed with the text `value` and the tt_status `flags` */
    TT__RPC_FORGET,   /* the sender wants no reply to its call `id` any more */
    TT__RPC_CREDIT,   /* nothing but the header's credit */
    TT__RPC_HOLD,     /* to the owner: the sender passes its value's reference on to worker `id` */
    TT__RPC_RELEASE,  /* to the owner: the sender drops the reference, which worker `id` gave it `serial` times */
    TT__RPC_PROBE,    /* in search `context`: can call `serial` of the sender go on? Answer with `id` */
    TT__RPC_PROBED,   /* the answer to probe `id`: flags (cycles.c), and the text of the path */
    TT__RPC_LEAVING,  /* the sender has called tt_rpc_shutdown(), and waits until no call is under way */
    TT__RPC_WAVE,     /* from the leader: answer with IDLE as soon as no call is under way at the receiver; wave `id` */
    TT__RPC_IDLE,     /* the answer in wave `id`: the sender has sent `context` calls and received `message` */
    TT__RPC_END,      /* from the leader: all may leave; `serial`: 1 + a lost worker, or 0 */
    TT__RPC_SETTLE,   /* from an owner: worker `id` is lost; which references to the owner's values did it give you? */
    TT__RPC_SETTLED,  /* to the owner: HOLD packets have named all references that lost worker `id` gave the sender */
    TT__RPC_PACKET_KINDS
} tt__rpc_packet_kind;

enum { TT__RPC_VALUE_APART = 128 /* in `flags`: the last part is the value */ };

enum {
    TT__RPC_INLINE = 8 << 10,  /* bytes and tensors up to this size are in the value */
    TT__RPC_PARTS_MAX = 4096,  /* in a packet; a value with more is refused */
    TT__RPC_REFS_MAX = 1024,   /* in a packet */
    TT__RPC_GROUP = 0x7ffffff0 /* the group in the keys of parts; no real group has this id */
};

typedef struct tt__rpc_header {
    uint8_t kind, flags;
    uint16_t name_bytes, parts, refs; /* bytes of the name; how many parts and references */
    uint32_t id, value_bytes;
    uint32_t credit; /* bytes of the receiver's requests that the sender has begun since its last packet */
    uint32_t unused;
    uint64_t context, message; /* of distributed autograd, except where the packet's kind says otherwise */
    uint64_t serial;
} tt__rpc_header;

_Static_assert(sizeof(tt__rpc_header) == 48, "the header has no padding");

/* A reference on the wire: number `serial` of those that worker `creator` made, to a value that worker `owner` has. */
typedef struct tt__rpc_ref {
    uint32_t owner, creator;
    uint64_t serial;
} tt__rpc_ref;

/* ---- writing */

typedef struct tt__rpc_part {
    const void *data;
    uint64_t bytes;
    void *keep; /* of a tensor: given to the hook release() when the part has been sent; or NULL */
    void *copy; /* memory that the part owns; or NULL */
} tt__rpc_part;

/* A packet that is being written. `data` begins with the header. */
typedef struct tt__rpc_encoder {
    uint8_t *data;
    size_t size, room;
    tt_status status; /* the first failure, recorded */
    tt__rpc_part *parts;
    tt_rref **refs; /* borrowed from the value */
    struct tt_tensor **tensors;
    uint32_t part_count, part_room, ref_count, ref_room, tensor_count, tensor_room;
    bool requires_grad;  /* one of the tensors does */
    bool copies_bytes;   /* copy large bytes, too: the caller of tt_rpc_remote() isn't told when they have been sent */
    uint8_t *apart;      /* the value, if it is a part; else NULL */
    uint8_t small[1024]; /* where `data` points until it needs more room */
} tt__rpc_encoder;

/* Begin a packet with the name of a function, or "". */
void tt__encoder_begin(tt__rpc_encoder *e, const char *name);

/* Write the packet's value: one value; a list of `first` (may be NULL) and `count` others; or a text, of which at most
 * 4096 bytes are kept. Errors stay in ->status. */
void tt__encoder_value(tt__rpc_encoder *e, const tt_rpc_value *value);
void tt__encoder_values(tt__rpc_encoder *e, const tt_rpc_value *first, const tt_rpc_value *values, int64_t count);
void tt__encoder_text(tt__rpc_encoder *e, const char *text);

/* Write the rest of the packet: the sizes of parts, the references (->ref_count at `refs`), and the header except kind,
 * id, serial, credit, context and message, which the caller sets. Returns ->status. */
tt_status tt__encoder_finish(tt__rpc_encoder *e, const tt__rpc_ref *refs);

static inline tt__rpc_header *tt__encoder_header(const tt__rpc_encoder *e) { return (tt__rpc_header *)(void *)e->data; }

/* Free the packet. The parts, with what they keep and copy, are freed only if `parts`; else another has taken them. */
void tt__encoder_free(tt__rpc_encoder *e, bool parts);

/* ---- reading */

/* A received packet whose sizes were checked: all that the header counts is there. */
typedef struct tt__rpc_packet_view {
    tt__rpc_header header;
    const char *name;
    const uint8_t *value;
    const uint8_t *part_sizes, *refs; /* unaligned */
} tt__rpc_packet_view;

/* Check the sizes in a packet. Errors: TT_ERR_PROTOCOL. */
tt_status tt__packet_view(tt__rpc_packet_view *out, const void *data, size_t bytes);

/* Return the bytes of part i, or reference i. */
uint64_t tt__packet_part_bytes(const tt__rpc_packet_view *view, uint32_t i);
tt__rpc_ref tt__packet_ref(const tt__rpc_packet_view *view, uint32_t i);

/* Memory that a part is received into. */
typedef struct tt__rpc_landing {
    void *data;
    uint64_t bytes;
    struct tt_tensor *tensor; /* the tensor whose elements the part has; NULL: bytes, or a value */
    tt__rpc_form form;        /* of the tensor */
} tt__rpc_landing;

/* Reads a value: what it needs, and what it makes besides the value. */
typedef struct tt__rpc_decoder {
    const tt__rpc_packet_view *view;
    const uint8_t *at, *end;
    uint32_t owed;               /* elements still to be read in the enclosing lists, of at least one byte each */
    bool own;                    /* copy texts and bytes; else the value borrows them from the packet */
    tt_rref **refs;              /* (header.refs) the packet's references; each use in the value takes a share */
    tt__rpc_landing *landings;   /* (header.parts) filled in */
    struct tt_tensor ***tensors; /* (tensor_count) where the value has its tensors, in order; the caller's to free() */
    uint32_t tensor_count, tensor_room;
} tt__rpc_decoder;

/* Read the value from ->at to ->end, and allocate memory for its parts. *out is the caller's to free, also on failure.
 * Errors: TT_ERR_PROTOCOL, TT_ERR_MEMORY, TT_ERR_UNSUPPORTED a tensor in a program without libtutti. */
tt_status tt__decode_value(tt__rpc_decoder *d, tt_rpc_value *out);

/* Finish the `count` tensors of a value that worker `from` has sent, after all of its parts have been received. `what`
 * was sent, for errors: "call" or "reply". */
tt_status tt__decoded_finish(tt_rpc *rpc, int from, const tt__rpc_header *header, const tt__rpc_landing *landings,
                             struct tt_tensor ***tensors, uint32_t count, const char *what);

#endif
