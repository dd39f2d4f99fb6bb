#include "store/gate.h"

#include "base/clock.h"
#include "base/error.h"

#include <sys/resource.h>

enum { TIMEOUT_MS = 10000, FIRST_BYTE_OF_TLS = 0x16, MANY_DESCRIPTORS = 1 << 16 };

/* Newcomers may take half of the descriptors. */
static size_t max_pending(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur > MANY_DESCRIPTORS)
        return MANY_DESCRIPTORS / 2;
    return limit.rlim_cur > 16 ? (size_t)limit.rlim_cur / 2 : 8;
}

tt_status tt__gate_init(tt__gate *gate, tt_store_auth auth, const char *secret, int64_t timeout_ms) {
    *gate = (tt__gate){.auth = auth, .timeout_ms = timeout_ms ? timeout_ms : TIMEOUT_MS, .max_pending = max_pending()};
    tt__link_init(&gate->pending);
    TT__TRY(tt__secret_choose(&gate->secret, secret));
    TT__TRY(tt__tls_load(&gate->tls, &gate->secret));
    if (auth == TT_STORE_AUTH_REQUIRED && !gate->secret.set && !gate->tls)
        return tt__fail(TT_ERR_INVALID, "a store that only those who prove themselves may use needs a job secret: set "
                                        "TT_SECRET or TT_SECRET_FILE");
    return TT_OK;
}

void tt__gate_free(tt__gate *gate) {
    tt__tls_free(gate->tls);
    tt__secret_wipe(&gate->secret);
}

bool tt__gate_trusts(const tt__gate *gate, const tt__newcomer *newcomer) {
    return gate->auth == TT_STORE_AUTH_NONE || (gate->auth == TT_STORE_AUTH_LOCAL && newcomer->local);
}

bool tt__gate_accepts(const tt__gate *gate, const tt__newcomer *newcomer) {
    return gate->secret.set || gate->tls || tt__gate_trusts(gate, newcomer);
}

static void warn_once(tt__gate *gate, const tt__newcomer *newcomer, const char *peer) {
    if (gate->warned || newcomer->local)
        return;
    gate->warned = true;
    tt__log(TT_LOG_WARNING,
            "store: serving %s, which has proved nothing (and so from now on, without another warning, whoever comes): "
            "authentication is turned off",
            peer);
}

tt__gate_answer tt__gate_ask(tt__gate *gate, const tt__newcomer *newcomer, uint8_t first_byte, const char *peer,
                             const char **why) {
    if (first_byte == FIRST_BYTE_OF_TLS) {
        *why = "it wants to encrypt (TT_TLS=1), but this store was started without";
        return gate->tls ? TT__GATE_ENCRYPT : TT__GATE_REFUSE;
    }
    if (first_byte == TT__HANDSHAKE_FIRST_BYTE) {
        *why = "it does not encrypt, but this store was started with TT_TLS=1";
        return gate->tls ? TT__GATE_REFUSE : TT__GATE_GREET;
    }
    *why = gate->auth == TT_STORE_AUTH_REQUIRED
               ? "it speaks PyTorch's dialect, which proves nothing"
               : "it speaks PyTorch's dialect, which proves nothing, and comes from another machine";
    if (!tt__gate_trusts(gate, newcomer))
        return TT__GATE_REFUSE;
    warn_once(gate, newcomer, peer);
    return TT__GATE_SERVE;
}

void tt__gate_watch(tt__gate *gate, tt__newcomer *newcomer) {
    if (newcomer->waiting)
        return;
    newcomer->waiting = true;
    newcomer->deadline_ms = tt__deadline_ms(gate->timeout_ms);
    tt__link_before(&gate->pending, &newcomer->link);
    gate->pending_count++;
}

void tt__gate_release(tt__gate *gate, tt__newcomer *newcomer) {
    if (!newcomer->waiting)
        return;
    newcomer->waiting = false;
    tt__link_remove(&newcomer->link);
    gate->pending_count--;
}

tt__newcomer *tt__gate_oldest(const tt__gate *gate) {
    return tt__link_alone(&gate->pending)
               ? NULL
               : (tt__newcomer *)(void *)((char *)gate->pending.next - offsetof(tt__newcomer, link));
}

tt__newcomer *tt__gate_overdue(tt__gate *gate) {
    tt__newcomer *first = tt__gate_oldest(gate);
    bool must_go = first && (gate->pending_count > gate->max_pending || first->deadline_ms <= tt__now_ms());
    return must_go ? first : NULL;
}

int64_t tt__gate_next_ms(const tt__gate *gate) {
    const tt__newcomer *first = tt__gate_oldest(gate);
    int64_t tell_ms = tt__refusals_next_ms(&gate->refusals);
    if (!first || (tell_ms >= 0 && tell_ms < first->deadline_ms))
        return tell_ms;
    return first->deadline_ms;
}
