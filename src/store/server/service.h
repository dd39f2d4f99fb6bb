/* What a store does with requests, without sockets: bytes of a client in, bytes for clients out. The server moves the
 * bytes; tests and the fuzzer drive a service directly. One thread only.
 *
 * A session is one client's connection. Feeding one session may leave replies in others, which waited for the key that
 * was set. The service's queue has the sessions with bytes to send, and those that broke the protocol and must be
 * closed. */
#ifndef TT_STORE_SERVICE_H
#define TT_STORE_SERVICE_H

#include "store/server/key_table.h"
#include "store/wire.h"

/* One limit holds for all memory: values may take three quarters of it, unread replies and unfinished requests the
 * rest. Beyond that the client that holds the most is closed, so that it can't starve the others. */
typedef struct tt__store_service {
    tt__store_table table;
    tt__list_node queue;    /* of tt__store_session.queued */
    tt__list_node sessions; /* of tt__store_session.node */
    size_t limit;           /* bytes; SIZE_MAX at first */
    size_t buffered;        /* what the sessions hold: requests, replies, places */
} tt__store_service;

/* A session's place in an entry's ring: it waits for the key, stands at its barrier, or watches it. */
typedef struct tt__store_place {
    tt__list_node in_entry;
    tt__store_entry *entry;
    struct tt__store_session *session;
} tt__store_place;

typedef struct tt__store_session {
    tt__store_service *service;
    void *owner; /* the server's connection */
    tt__list_node node;
    size_t charged; /* what service->buffered counts for it */
    bool known;     /* `dialect` is known */
    tt_store_dialect dialect;
    bool validated;   /* 2.x: it has sent its VALIDATE */
    bool lasting;     /* it has set a key that outlives a renewal, so the session does, too */
    tt__bytes living; /* the key that ends with it; empty: none */
    tt__store_parser parser;
    tt__bytes in; /* the beginning of an incomplete request */
    tt__bytes out;
    bool held; /* requests wait until replies are sent: tt__store_session_resume() */

    uint64_t gets_left; /* of a MULTI_GET that is being answered */
    size_t gets_at;     /* the offset of its next key */

    tt__store_place *waits; /* the places of the one WAIT or BARRIER that will be answered later */
    size_t wait_count, wait_missing;
    tt__store_place **watches;
    size_t watch_count;

    tt__list_node queued;
    bool broken; /* to be closed; `why` for the log */
    char why[TT__STORE_WHY_SIZE];
} tt__store_session;

/* A client with more unsent bytes is not served until it has read replies. */
#define TT__STORE_OUT_PAUSE ((size_t)1 << 20)
/* The most bytes of one reply, or of all notifications of watched keys. */
#define TT__STORE_OUT_MAX ((size_t)1 << 30)

void tt__store_service_init(tt__store_service *service);
/* Free the service. All sessions must have been ended. */
void tt__store_service_free(tt__store_service *service);

/* Take the next session out of the queue; NULL if there is none. */
tt__store_session *tt__store_service_next(tt__store_service *service);

void tt__store_session_init(tt__store_session *session, tt__store_service *service, void *owner);
/* End a session whose client is gone, with what it waits for. */
void tt__store_session_end(tt__store_session *session);

/* Take bytes of the client, and serve all whole requests. */
void tt__store_session_feed(tt__store_session *session, const void *data, size_t size);

/* Note the memory that the session holds, after something was added or sent. */
void tt__store_session_charge(tt__store_session *session);

/* May `more` bytes be stored? If not, the session is marked to be closed, since its client asked for that. */
bool tt__store_has_room(tt__store_session *session, size_t more);

/* After replies were sent, serve the requests that TT__STORE_OUT_PAUSE held back. */
void tt__store_session_resume(tt__store_session *session);

#define TT__STORE_NO_MEMORY "out of memory"

/* Mark the session to be closed, with a reason. */
void tt__store_session_break(tt__store_session *session, const char *format, ...) TT_PRINTF(2, 3);

/* Put the session into the service's queue. */
void tt__store_session_queue(tt__store_session *session);

#endif
