/* What travels on a link: frames, each a header of 48 bytes and its payload. Both ends are of one version and byte
 * order. */
#ifndef TT_COMM_MESSAGE_FRAME_H
#define TT_COMM_MESSAGE_FRAME_H

#include "comm/message/message.h"

typedef enum tt__frame_type {
    TT__FRAME_EAGER = 1, /* key; `bytes` of data follow */
    TT__FRAME_ANNOUNCE,  /* key, id of the send, its bytes; other: the receive that gets it, if it is ready, or 0 */
    TT__FRAME_READY,     /* key, id of the receive, its bytes; other: the send that was announced, 0 if none was */
    TT__FRAME_DATA,      /* other: the receive; `bytes` of data follow */
    TT__FRAME_REFUSE,    /* a message will not be transferred: see TT__REFUSE_... */
    TT__FRAME_CREDIT,    /* only what every header carries */
    TT__FRAME_BEAT,      /* tt__beat follows */
    TT__FRAME_NEWS,      /* tt__news_body and a text follow */
    TT__FRAME_ASK,       /* id; of the key group and seq, or, with seq 0, group and record */
    TT__FRAME_ANSWER,    /* id; flags TT__ANSWER_...; if known, word of the key, and a text follows */
    TT__FRAME_GOODBYE,
    TT__FRAME_PACKET, /* `bytes` of a packet follow */
    TT__FRAMES
} tt__frame_type;

/* flags of REFUSE. id: the refusing rank's message; other: the message it is about, 0 if unknown; key and bytes: those
 * of the refusing rank's message. */
enum {
    TT__REFUSE_RECEIVE = 1, /* the message is a receive; else a send */
    TT__REFUSE_MISMATCH = 2 /* because they differ; else because it was cancelled */
};

/* flags of ANSWER */
enum {
    TT__ANSWER_KNOWN = 1,
    TT__ANSWER_MAY_CALL = 2 /* the rank waits, but another of its threads may still make the call */
};

typedef struct tt__frame {
    uint16_t magic;
    uint8_t type, flags;
    uint32_t credit; /* bytes of the eager window that the receiver gives back */
    tt__key key;
    uint32_t id, other, unused;
    uint64_t bytes;
} tt__frame;

_Static_assert(sizeof(tt__frame) == 48, "the header has no padding");

enum {
    TT__FRAME_MAGIC = 0x5474,
    TT__CHUNK = 256 << 10,  /* data of one DATA frame at most, so that large messages take turns */
    TT__CONTROL_MAX = 1024, /* payload of the other frames at most */
    TT__EAGER_COST = 64,    /* of an eager message in the window, beside its bytes, so that small ones count, too */
    TT__KEPT_MAX = 1 << 20  /* announcements, or readies, that are kept for one peer */
};

/* Payload of BEAT. Times are realtime, in ns. */
typedef struct tt__beat {
    int64_t sent_ns;
    int64_t echo_ns, echo_at_ns; /* sent_ns of the last beat received from the peer, and when it came; 0: none yet */
    uint32_t group, seq, record; /* what the sender waits for */
    int32_t whom;
    uint32_t word;  /* of the call's signature */
    uint32_t waits; /* 0: it waits for nothing */
} tt__beat;

/* Payload of NEWS, before its text. */
typedef struct tt__news_body {
    uint32_t group, seq;
    int32_t news, status;
} tt__news_body;

#endif
