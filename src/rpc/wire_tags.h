/* The byte that begins each value on the wire, and what follows it. */
#ifndef TT_RPC_WIRE_TAGS_H
#define TT_RPC_WIRE_TAGS_H

enum {
    TT__TAG_NONE,
    TT__TAG_FALSE,
    TT__TAG_TRUE,
    TT__TAG_INT,          /* 8 bytes */
    TT__TAG_FLOAT,        /* 8 bytes */
    TT__TAG_TEXT,         /* 4 bytes: how many follow, and a byte 0 */
    TT__TAG_BYTES,        /* 4 bytes: how many follow */
    TT__TAG_BYTES_APART,  /* 4 bytes: which part */
    TT__TAG_TENSOR,       /* form (its shape as far as it goes), 4 bytes: how many bytes of elements follow */
    TT__TAG_TENSOR_APART, /* form, 4 bytes: which part */
    TT__TAG_RREF,         /* 4 bytes: which reference */
    TT__TAG_LIST,         /* 4 bytes: how many values follow */
    TT__TAG_MAP,          /* likewise: an even number */
    TT__TAGS
};

#endif
