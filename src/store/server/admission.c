#include "store/server/admission.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "net/net.h"
#include "net/secure/munge.h"
#include "net/secure/peer_user.h"

#include <sys/resource.h>
#include <unistd.h>

enum { TIMEOUT_MS = 10000, FIRST_BYTE_OF_TLS = 0x16, MANY_DESCRIPTORS = 1 << 16, MIN_STAY_MS = 500 };

/* Return how many peers may be pending: they may take half of the descriptors. */
static size_t pending_limit(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur > MANY_DESCRIPTORS)
        return MANY_DESCRIPTORS / 2;
    return limit.rlim_cur > 16 ? (size_t)limit.rlim_cur / 2 : 8;
}

tt_status tt__admission_init(tt__admission *admission, tt_store_auth auth, const char *secret, int64_t timeout_ms,
                             size_t max_bytes) {
    *admission = (tt__admission){.auth = auth,
                                 .timeout_ms = timeout_ms ? timeout_ms : TIMEOUT_MS,
                                 .max_pending = pending_limit(),
                                 .max_bytes = max_bytes,
                                 .asking = auth == TT_STORE_AUTH_LOCAL ? tt__net_peer_user_begin() : -1};
    tt__list_init(&admission->pending);
    tt__list_init(&admission->silent);
    TT__TRY(tt__secret_choose(&admission->secret, secret));
    TT__TRY(tt__tls_load(&admission->tls, &admission->secret));
    if (auth == TT_STORE_AUTH_REQUIRED && !admission->secret.set && !admission->tls)
        return tt__fail(TT_ERR_INVALID, "a store that only those who prove themselves may use needs a job secret: set "
                                        "TT_SECRET or TT_SECRET_FILE");
    return TT_OK;
}

void tt__admission_free(tt__admission *admission) {
    if (admission->asking >= 0)
        close(admission->asking);
    tt__tls_free(admission->tls);
    tt__secret_wipe(&admission->secret);
}

void tt__admission_find_place(const tt__admission *admission, tt__pending_peer *peer, int fd) {
    uid_t user;
    if (!tt__net_is_local(fd))
        peer->place = TT__PEER_ELSEWHERE;
    else if (admission->auth != TT_STORE_AUTH_LOCAL ||
             (tt__net_peer_user(admission->asking, fd, &user) && (user == geteuid() || user == 0)))
        peer->place = TT__PEER_OWN;
    else
        peer->place = TT__PEER_STRANGER;
}

bool tt__admission_trusts(const tt__admission *admission, const tt__pending_peer *peer) {
    return admission->auth == TT_STORE_AUTH_NONE ||
           (admission->auth == TT_STORE_AUTH_LOCAL && peer->place == TT__PEER_OWN);
}

bool tt__admission_accepts(const tt__admission *admission, const tt__pending_peer *peer) {
    return admission->secret.set || admission->tls || tt__admission_trusts(admission, peer);
}

static void warn_once(tt__admission *admission, const tt__pending_peer *peer, const char *address) {
    if (admission->warned || peer->place != TT__PEER_ELSEWHERE)
        return;
    admission->warned = true;
    tt__log(TT_LOG_WARNING,
            "store: serving %s, which has proved nothing (and so from now on, without another warning, whoever comes): "
            "authentication is turned off",
            address);
}

tt__admission_decision tt__admission_decide(tt__admission *admission, const tt__pending_peer *peer, uint8_t first_byte,
                                            const char *address, const char **why) {
    if (first_byte == TT__ASKING_FIRST_BYTE)
        return TT__ADMIT_ASKING;
    if (first_byte == FIRST_BYTE_OF_TLS) {
        *why = "it wants to encrypt (TT_TLS=1), but this store was started without";
        return admission->tls ? TT__ADMIT_TLS : TT__ADMIT_NOT;
    }
    if (first_byte == TT__HANDSHAKE_FIRST_BYTE) {
        *why = "it does not encrypt, but this store was started with TT_TLS=1";
        return admission->tls ? TT__ADMIT_NOT : TT__ADMIT_HANDSHAKE;
    }
    *why = admission->auth == TT_STORE_AUTH_REQUIRED ? "it speaks PyTorch's dialect, which proves nothing"
           : peer->place == TT__PEER_ELSEWHERE
               ? "it speaks PyTorch's dialect, which proves nothing, and comes from another machine"
               : "it speaks PyTorch's dialect, which proves nothing, and belongs to another user of this machine, or "
                 "to nobody any more";
    if (!tt__admission_trusts(admission, peer))
        return TT__ADMIT_NOT;
    warn_once(admission, peer, address);
    return TT__ADMIT_NOW;
}

void tt__admission_list_pending(tt__admission *admission, tt__pending_peer *peer, size_t bytes) {
    if (peer->silent)
        tt__admission_remove(admission, peer);
    if (!peer->pending) {
        peer->pending = true;
        peer->deadline_ms = tt__deadline_ms(admission->timeout_ms);
        peer->movable_ms = tt__deadline_ms(MIN_STAY_MS);
        tt__list_append(&admission->pending, &peer->node);
        admission->pending_count++;
    }
    admission->pending_bytes += bytes - peer->bytes;
    peer->bytes = bytes;
}

void tt__admission_list_silent(tt__admission *admission, tt__pending_peer *peer) {
    peer->silent = true;
    peer->movable_ms = tt__deadline_ms(MIN_STAY_MS);
    tt__list_append(&admission->silent, &peer->node);
}

void tt__admission_remove(tt__admission *admission, tt__pending_peer *peer) {
    if (!peer->pending && !peer->silent)
        return;
    admission->pending_count -= peer->pending;
    admission->pending_bytes -= peer->bytes;
    peer->pending = peer->silent = false;
    peer->bytes = 0;
    tt__list_remove(&peer->node);
}

static tt__pending_peer *first_peer(const tt__list_node *peers) {
    return tt__list_empty(peers) ? NULL
                                 : (tt__pending_peer *)(void *)((char *)peers->next - offsetof(tt__pending_peer, node));
}

tt__pending_peer *tt__admission_oldest(const tt__admission *admission) {
    tt__pending_peer *pending = first_peer(&admission->pending), *silent = first_peer(&admission->silent);
    int64_t now_ms = tt__now_ms();
    if (pending && pending->movable_ms <= now_ms)
        return pending;
    return silent && silent->movable_ms <= now_ms ? silent : NULL;
}

bool tt__admission_crowded(const tt__admission *admission) {
    return admission->pending_count > admission->max_pending || admission->pending_bytes > admission->max_bytes;
}

tt__pending_peer *tt__admission_expired(tt__admission *admission) {
    tt__pending_peer *first = first_peer(&admission->pending);
    bool expired = first && (tt__admission_crowded(admission) || first->deadline_ms <= tt__now_ms());
    return expired ? first : NULL;
}

int64_t tt__admission_next_ms(const tt__admission *admission) {
    const tt__pending_peer *first = first_peer(&admission->pending);
    int64_t flush_ms = tt__refusals_next_ms(&admission->refusals);
    if (!first || (flush_ms >= 0 && flush_ms < first->deadline_ms))
        return flush_ms;
    return first->deadline_ms;
}
