/* TCPStore's wire: operations, their numbers in the two dialects, how fields are written, and how whole, checked
 * requests are read from bytes that arrive in any pieces. All functions here are pure.
 *
 * A request is one opcode byte and its fields, without framing; numbers are little-endian; a string is a u64 length and
 * its bytes. Replies carry no header. The 2.x dialect opens with VALIDATE and a magic number, the 1.13 dialect with its
 * first request. */
#ifndef TT_STORE_WIRE_H
#define TT_STORE_WIRE_H

#include "base/bytes.h"

#include <tutti/store.h>

/* Operation: name, opcode in 1.13, opcode in 2.x (-1: not there), fields (k key, v value, i i64, u u32; after *: a u64
 * count, then that many times what follows). */
#define TT__STORE_OPS(X)        \
    X(VALIDATE, -1, 0, "u")     \
    X(SET, 0, 1, "kv")          \
    X(COMPARE_SET, 1, 2, "kvv") \
    X(GET, 2, 3, "k")           \
    X(ADD, 3, 4, "ki")          \
    X(CHECK, 4, 5, "*k")        \
    X(WAIT, 5, 6, "*k")         \
    X(NUM_KEYS, 6, 7, "")       \
    X(WATCH_KEY, 7, -1, "k")    \
    X(DELETE_KEY, 8, 8, "k")    \
    X(APPEND, -1, 9, "kv")      \
    X(MULTI_GET, -1, 10, "*k")  \
    X(MULTI_SET, -1, 11, "*kv") \
    X(CANCEL_WAIT, -1, 12, "")  \
    X(PING, -1, 13, "u")        \
    X(QUEUE_PUSH, -1, 14, "kv") \
    X(QUEUE_POP, -1, 15, "k")   \
    X(QUEUE_LEN, -1, 16, "k")   \
    X(LIST_KEYS, -1, 17, "")    \
    X(BARRIER, -1, 18, "ki")

typedef enum tt__store_op {
#define TT__STORE_OP_ENUM(name, torch_1_13, torch_2, fields) TT__STORE_##name,
    TT__STORE_OPS(TT__STORE_OP_ENUM)
#undef TT__STORE_OP_ENUM
        TT__STORE_OP_COUNT
} tt__store_op;

typedef struct tt__store_op_info {
    const char *name, *fields;
    int opcode[2]; /* by tt_store_dialect */
} tt__store_op_info;

extern const tt__store_op_info tt__store_op_table[TT__STORE_OP_COUNT];

/* Return the operation of `opcode`; TT__STORE_OP_COUNT if there is none. */
tt__store_op tt__store_op_of(tt_store_dialect dialect, uint8_t opcode);

#define TT__STORE_MAGIC UINT32_C(0x3C85F7CE)
#define TT__STORE_MAX_COUNT ((uint64_t)131072)

/* The counter of clients that have connected; PyTorch's only key without a leading slash. */
#define TT__STORE_INIT_KEY "init/"

enum { TT__STORE_READY = 0, TT__STORE_NOT_READY = 1 };            /* replies to CHECK */
enum { TT__STORE_STOP_WAITING = 0, TT__STORE_WAIT_CANCELED = 1 }; /* replies to WAIT, BARRIER, CANCEL_WAIT */
enum { TT__STORE_UPDATED, TT__STORE_CREATED, TT__STORE_DELETED, TT__STORE_WATCHING }; /* replies to WATCH_KEY */

void tt__store_put_u8(tt__bytes *out, uint8_t value);
void tt__store_put_u32(tt__bytes *out, uint32_t value);
void tt__store_put_u64(tt__bytes *out, uint64_t value);
void tt__store_put_string(tt__bytes *out, tt__span string);

/* Return the little-endian number in the first `size` <= 8 bytes. */
uint64_t tt__store_number(const uint8_t *data, size_t size);

/* ---- reading requests */

/* Which dialect do the first bytes of a connection speak? */
typedef enum tt__store_first {
    TT__STORE_FIRST_MORE,
    TT__STORE_FIRST_TORCH_2,
    TT__STORE_FIRST_TORCH_1_13
} tt__store_first;
tt__store_first tt__store_first_contact(const uint8_t *data, size_t size);

/* How far the parser is in a request. Zeroed = at its start. A request that comes in many pieces is read once, not
 * again with each piece. */
typedef struct tt__store_parser {
    tt__store_op op;
    uint64_t count;    /* how many times the repeated fields come; 1: none are repeated */
    uint64_t left;     /* how many of these are not whole yet */
    const char *field; /* the next field's letter; NULL before the fields */
    size_t pos;        /* where that field starts */
} tt__store_parser;

typedef enum tt__store_parsed { TT__STORE_MORE, TT__STORE_WHOLE, TT__STORE_BAD } tt__store_parsed;

/* Continue with the request that starts at `data`, of which `size` bytes have come. They begin with the bytes of the
 * last call, perhaps at another address. TT__STORE_WHOLE: it is data[0 .. parser->pos); zero the parser for the next
 * request. TT__STORE_BAD: `why` says which rule it breaks. A length is checked as soon as it is known, so a huge one is
 * refused at once. */
enum { TT__STORE_WHY_SIZE = 320 };
tt__store_parsed tt__store_parse(tt__store_parser *parser, tt_store_dialect dialect, const uint8_t *data, size_t size,
                                 char why[TT__STORE_WHY_SIZE]);

/* The fields of a whole request, which are read in their order. */
typedef struct tt__store_fields {
    const uint8_t *at;
} tt__store_fields;
tt__store_fields tt__store_fields_of(const tt__store_parser *parser, const uint8_t *data);
tt__span tt__store_take_string(tt__store_fields *fields);
int64_t tt__store_take_i64(tt__store_fields *fields);
uint32_t tt__store_take_u32(tt__store_fields *fields);

#endif
