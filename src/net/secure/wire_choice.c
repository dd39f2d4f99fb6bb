#include "net/secure/wire_choice.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

bool tt__wire_named(const char *name, tt__wire *wire) {
    static const char *const names[] = {
        [TT__WIRE_PLAIN] = "plain", [TT__WIRE_SEALED] = "sealed", [TT__WIRE_TLS] = "tls"};
    for (int i = TT__WIRE_PLAIN; i <= TT__WIRE_TLS; i++)
        if (!strcmp(name, names[i])) {
            *wire = (tt__wire)i;
            return true;
        }
    return false;
}

tt_status tt__wire_asked(tt__wire *wire) {
    const char *name = getenv("TT_WIRE"), *tls = getenv("TT_TLS");
    *wire = TT__WIRE_DEFAULT;
    if (name && *name && !tt__wire_named(name, wire))
        return tt__fail(TT_ERR_INVALID, "TT_WIRE: expected sealed, plain or tls, got \"%.40s\"", name);
    if (!tls || !*tls)
        return TT_OK;
    if (strcmp(tls, "0") != 0 && strcmp(tls, "1") != 0)
        return tt__fail(TT_ERR_INVALID, "TT_TLS: expected 1 or 0, got \"%.40s\"", tls);
    if (*tls == '1' && *wire != TT__WIRE_DEFAULT && *wire != TT__WIRE_TLS)
        return tt__fail(TT_ERR_INVALID, "TT_TLS=1 asks for tls, TT_WIRE=%s for something else: unset one of them",
                        name);
    if (*tls == '1')
        *wire = TT__WIRE_TLS;
    return TT_OK;
}

tt_status tt__wire_check(tt__wire *wire, const tt__secret *secret) {
    TT__TRY(tt__wire_asked(wire));
    if (*wire != TT__WIRE_SEALED || secret->set)
        return TT_OK;
    return tt__fail(TT_ERR_INVALID,
                    "TT_WIRE=sealed needs a job secret: give all processes of the job the same TT_SECRET or "
                    "TT_SECRET_FILE (make one with: openssl rand -hex 32)");
}

tt_status tt__wire_choose(tt__wire *wire, const tt__secret *secret, bool one_host, bool says_so) {
    TT__TRY(tt__wire_check(wire, secret));
    bool asked = *wire != TT__WIRE_DEFAULT;
    if (!asked)
        *wire = secret->set && !one_host ? TT__WIRE_SEALED : TT__WIRE_PLAIN;
    if (*wire == TT__WIRE_PLAIN && says_so && !one_host)
        tt__log(TT_LOG_WARNING,
                asked ? "connections between hosts are plain (TT_WIRE=plain): who can change packets on their way can "
                        "change gradients unnoticed"
                      : "connections between hosts are plain, since the job has no secret: who can change packets on "
                        "their way can change gradients unnoticed (TT_SECRET, TT_SECRET_FILE)");
    return TT_OK;
}
