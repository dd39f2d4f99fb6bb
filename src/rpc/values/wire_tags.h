/* The byte that begins each value on the wire. The comments say what follows it; numbers have the host's byte order. */
#ifndef TT_RPC_WIRE_TAGS_H
#define TT_RPC_WIRE_TAGS_H

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

#endif
