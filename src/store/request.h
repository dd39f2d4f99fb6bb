/* Requests as they arrive: from any cut of the byte stream to whole, checked requests. A pure function over bytes. */
#ifndef TT_STORE_REQUEST_H
#define TT_STORE_REQUEST_H

#include "store/wire.h"

/* Which dialect do the first bytes of a connection speak? */
typedef enum tt__store_first {
    TT__STORE_FIRST_MORE,
    TT__STORE_FIRST_TORCH_2,
    TT__STORE_FIRST_TORCH_1_13
} tt__store_first;
tt__store_first tt__store_first_contact(const uint8_t *data, size_t size);

/* How far into a request the parser is. Zeroed = at its start. A request that comes in many pieces is walked once, not
 * once a piece. */
typedef struct tt__store_parser {
    tt__store_op op;
    uint64_t count;    /* how many times the repeated fields come; 1 where none are repeated */
    uint64_t left;     /* of those, how many are not whole yet */
    const char *field; /* the next field's letter; NULL before the fields */
    size_t pos;        /* where that field starts */
} tt__store_parser;

typedef enum tt__store_parsed { TT__STORE_MORE, TT__STORE_WHOLE, TT__STORE_BAD } tt__store_parsed;

/* Continue with the request that starts at `data`, of which `size` bytes are there (at least those of the last call,
 * perhaps moved). TT__STORE_WHOLE: it is data[0 .. parser->pos); zero the parser for the next. TT__STORE_BAD: `why`
 * says which rule it breaks; lengths are checked as soon as they are known, so that a huge one is refused at once. */
enum { TT__STORE_WHY_SIZE = 320 };
tt__store_parsed tt__store_parse(tt__store_parser *parser, tt_store_dialect dialect, const uint8_t *data, size_t size,
                                 char why[TT__STORE_WHY_SIZE]);

/* The fields of a whole request, to be read in their order. */
typedef struct tt__store_fields {
    const uint8_t *at;
} tt__store_fields;
tt__store_fields tt__store_fields_of(const tt__store_parser *parser, const uint8_t *data);
tt__span tt__store_take_string(tt__store_fields *fields);
int64_t tt__store_take_i64(tt__store_fields *fields);
uint32_t tt__store_take_u32(tt__store_fields *fields);

#endif
