/* Admission to a store's server. A connection's first byte tells which protocol follows; the admission decides whether
 * it is allowed, and logs a bounded number of refusals. It lists peers that have yet to prove themselves in the order
 * in which they came, so expired ones are found without a search. It also lists peers that need no proof and have sent
 * nothing yet: when descriptors run out, the oldest is closed. */
#ifndef TT_STORE_ADMISSION_H
#define TT_STORE_ADMISSION_H

#include "base/list.h"
#include "net/net.h"
#include "net/stream.h"

#include <tutti/store.h>

typedef struct tt__admission {
    tt_store_auth auth;
    tt__secret secret;
    tt__tls *tls;          /* NULL: connections are not encrypted */
    int asking;            /* tt__net_peer_user_begin(): made early, before descriptors can run out */
    int64_t timeout_ms;    /* a peer's time to prove itself */
    size_t max_pending;    /* if more peers are pending, the oldest is refused */
    size_t max_bytes;      /* if they take more memory, the oldest is refused */
    tt__list_node pending; /* of tt__pending_peer.node, the oldest first */
    size_t pending_count, pending_bytes;
    tt__list_node silent; /* of tt__pending_peer.node of peers that may be silent, the oldest first */
    bool warned;
    tt__refusals refusals;
} tt__admission;

/* Where a peer comes from. */
typedef enum tt__peer_place {
    TT__PEER_ELSEWHERE, /* another machine */
    TT__PEER_STRANGER,  /* this machine, another user, or the kernel does not tell the user */
    TT__PEER_OWN        /* this machine, this process's user or root; also any user if that does not matter */
} tt__peer_place;

/* What the admission knows of a connection. Zeroed: not pending. */
typedef struct tt__pending_peer {
    tt__list_node node;
    bool pending, silent; /* it is in the list of that name */
    tt__peer_place place;
    int64_t deadline_ms;
    int64_t movable_ms; /* from then on it may be closed to make room */
    size_t bytes;       /* of memory, while it is pending */
} tt__pending_peer;

/* auth, timeout_ms: as given; secret: as in tt_store_server_new_args; max_bytes: of memory for pending peers. Errors:
 * as tt_store_server_new(). */
tt_status tt__admission_init(tt__admission *admission, tt_store_auth auth, const char *secret, int64_t timeout_ms,
                             size_t max_bytes);
void tt__admission_free(tt__admission *admission);

/* Find out where the peer at the other end of `fd` comes from. */
void tt__admission_find_place(const tt__admission *admission, tt__pending_peer *peer, int fd);

/* May this peer speak PyTorch's dialect, and stay silent for as long as it likes? */
bool tt__admission_trusts(const tt__admission *admission, const tt__pending_peer *peer);

/* What follows a connection's first byte. *why: the reason of a refusal. */
typedef enum tt__admission_decision {
    TT__ADMIT_NOT,
    TT__ADMIT_NOW,
    TT__ADMIT_HANDSHAKE,
    TT__ADMIT_TLS,
    TT__ADMIT_ASKING /* it asks for the credential of the job secret, which anybody may have */
} tt__admission_decision;
tt__admission_decision tt__admission_decide(tt__admission *admission, const tt__pending_peer *peer, uint8_t first_byte,
                                            const char *address, const char **why);

/* May this peer, whose handshake succeeded, be served? Without encryption and without a secret it has proved
 * nothing. */
bool tt__admission_accepts(const tt__admission *admission, const tt__pending_peer *peer);

/* Start the time within which the peer must prove itself, unless it runs already; `bytes`: its memory until then. */
void tt__admission_list_pending(tt__admission *admission, tt__pending_peer *peer, size_t bytes);
/* List a peer that may be silent for as long as it likes. */
void tt__admission_list_silent(tt__admission *admission, tt__pending_peer *peer);
/* Take a peer out of its list, if it is in one. */
void tt__admission_remove(tt__admission *admission, tt__pending_peer *peer);

/* Are there too many pending peers, or do they take too much memory? */
bool tt__admission_crowded(const tt__admission *admission);
/* Return a peer to refuse, because its time is over or too many are pending; NULL: there is none. */
tt__pending_peer *tt__admission_expired(tt__admission *admission);
/* Return the peer to close when room is needed: the one that has been pending longest, else the one that has been
 * silent longest; NULL: there is none. Peers that have just come are spared: else clients that come together would push
 * each other out again and again. */
tt__pending_peer *tt__admission_oldest(const tt__admission *admission);
/* Return when the next peer expires or suppressed log lines are due; -1: never. */
int64_t tt__admission_next_ms(const tt__admission *admission);

#endif
