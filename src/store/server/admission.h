/* Admission to a store's server. A connection's first byte says which protocol follows; the admission decides whether
 * that is allowed, keeps peers that have yet to prove themselves in the order in which they came (so that expired ones
 * are found without a search), and logs a bounded number of refusals. Those that need to prove nothing and have said
 * nothing yet are kept as well: when descriptors are short, the oldest of them makes room. */
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
    int asking;            /* of tt__net_peer_user(): made early, so that it is there when descriptors are short */
    int64_t timeout_ms;    /* within which a peer proves itself */
    size_t max_pending;    /* beyond so many the oldest is refused */
    size_t max_bytes;      /* nor may they take more memory */
    tt__list_node pending; /* of tt__pending_peer.node, the oldest first */
    size_t pending_count, pending_bytes;
    tt__list_node silent; /* likewise, of those that may be silent */
    bool warned;
    tt__refusals refusals;
} tt__admission;

/* Where a peer comes from. */
typedef enum tt__peer_place {
    TT__PEER_ELSEWHERE, /* another machine */
    TT__PEER_STRANGER,  /* this machine; another user, or the kernel does not say which: asked where that matters */
    TT__PEER_OWN        /* this machine; this process's user or root, where that matters */
} tt__peer_place;

/* A connection's part. Zeroed: not pending. */
typedef struct tt__pending_peer {
    tt__list_node node;
    bool pending, silent; /* in which list it stands */
    tt__peer_place place;
    int64_t deadline_ms;
    int64_t movable_ms; /* from then on it may have to make room */
    size_t bytes;       /* of memory, while it is pending */
} tt__pending_peer;

/* auth, timeout_ms: as given; secret: as in tt_store_server_new_args; max_bytes: of memory for pending peers. Errors:
 * as tt_store_server_new(). */
tt_status tt__admission_init(tt__admission *admission, tt_store_auth auth, const char *secret, int64_t timeout_ms,
                             size_t max_bytes);
void tt__admission_free(tt__admission *admission);

/* Find out where the peer at the other end of `fd` comes from. */
void tt__admission_place(const tt__admission *admission, tt__pending_peer *peer, int fd);

/* May this peer speak PyTorch's dialect, and stay silent for as long as it likes? */
bool tt__admission_trusts(const tt__admission *admission, const tt__pending_peer *peer);

/* What a connection's first byte leads to. *why: the reason of a refusal. */
typedef enum tt__admission_decision {
    TT__ADMIT_NOT,
    TT__ADMIT_NOW,
    TT__ADMIT_HANDSHAKE,
    TT__ADMIT_TLS,
    TT__ADMIT_ASKING /* for the credential of the job secret, which anybody may have */
} tt__admission_decision;
tt__admission_decision tt__admission_decide(tt__admission *admission, const tt__pending_peer *peer, uint8_t first_byte,
                                            const char *address, const char **why);

/* May this peer, whose handshake succeeded, be served? Without encryption and without a secret it has proved
 * nothing. */
bool tt__admission_accepts(const tt__admission *admission, const tt__pending_peer *peer);

/* Start the time within which the peer must prove itself, if it does not run; `bytes`: what memory it takes until then.
 * Stop it, if it runs. */
void tt__admission_add(tt__admission *admission, tt__pending_peer *peer, size_t bytes);
/* Keep a peer that may be silent for as long as it likes, until tt__admission_remove(). */
void tt__admission_keep(tt__admission *admission, tt__pending_peer *peer);
void tt__admission_remove(tt__admission *admission, tt__pending_peer *peer);

/* Are there too many pending peers, or do they take too much memory? */
bool tt__admission_crowded(const tt__admission *admission);
/* Return a peer to be refused, because its time is over or too many are pending; NULL if there is none. */
tt__pending_peer *tt__admission_expired(tt__admission *admission);
/* Return the peer to make room: the one that has been pending longest, or else been silent longest; NULL if none has
 * had the time to say something. (Clients that come together would otherwise push out each other, again and again.) */
tt__pending_peer *tt__admission_oldest(const tt__admission *admission);
/* Return when the next peer expires or suppressed log lines are due; -1: never. */
int64_t tt__admission_next_ms(const tt__admission *admission);

#endif
