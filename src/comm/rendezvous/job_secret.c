/* The job secret of ranks that srun starts on several hosts, where nobody gave one: rank 0 draws it, seals it with
 * MUNGE, and its store hands the credential to the others (net/secure/munge.h).
 *
 * The credential can be opened by processes of this user alone, on hosts with the cluster's key, for as long as munged
 * lets it live; it names the job and its step. A stranger that listens at the place first, or replays an older
 * credential, does not know the secret, and fails in the handshake that follows. */
#include "comm/rendezvous/rendezvous.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "net/secure/munge.h"
#include "net/secure/secret.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How long a rank that can't use MUNGE waits to see whether rank 0 could. */
enum { LOOK_MS = 2000 };

tt_status tt__job_secret_missing(const tt__meeting *meeting, const char *why) {
    return tt__fail(
        TT_ERR_AUTH,
        "%d ranks on several hosts, but no job secret%s%s%s: without one, the store that rank 0 serves answers "
        "no other machine. Make one that all hosts can read, (umask 077; set -C; openssl rand -hex 32 >FILE), "
        "and set TT_SECRET_FILE=FILE for all ranks",
        meeting->world, why ? " (" : "", why ? why : "", why ? ")" : "");
}

/* Do certificates prove who belongs to the job? */
static bool has_certificates(void) {
    const char *certificate = secure_getenv("TT_TLS_CERT");
    tt__wire wire;
    return certificate && *certificate && !tt__wire_asked(&wire) && wire == TT__WIRE_TLS;
}

/* Fail, as MUNGE can't be used here, for the reason in the last error. Usually that is so on all hosts, and rank 0
 * reports it; if rank 0 has a credential, only this host differs. */
static tt_status munge_is_missing(const tt__meeting *meeting) {
    char why[512], credential[TT__MUNGE_CREDENTIAL_MAX];
    snprintf(why, sizeof why, "%s", tt_last_error());
    bool alone = meeting->rank && !tt__asking_ask(credential, meeting->host, meeting->port, tt__deadline_ms(LOOK_MS));
    if (alone)
        return tt__fail(TT_ERR_AUTH,
                        "rank 0 has drawn a job secret and hands it out by MUNGE, but here %s. Let munged run on all "
                        "hosts of the job (TT_MUNGE_SOCKET names its socket), or set TT_SECRET_FILE for all ranks",
                        why);
    tt__job_secret_missing(meeting, why);
    return tt__fail_alike();
}

/* What every credential of this job begins with. */
static void sealed_begin(const tt__meeting *meeting, char text[TT__MUNGE_PAYLOAD_MAX]) {
    snprintf(text, TT__MUNGE_PAYLOAD_MAX, "tutti job secret 1 %s ", meeting->secret_of);
}

/* Draw the secret once, as a program may join again; its credential is new each time. */
static tt_status draw_secret(const tt__meeting *meeting) {
    char secret[TT__SECRET_MADE_SIZE], text[TT__MUNGE_PAYLOAD_MAX], credential[TT__MUNGE_CREDENTIAL_MAX];
    tt__secret_kept(secret);
    tt_status status = *secret ? TT_OK : tt__secret_make(secret);
    if (!status) {
        sealed_begin(meeting, text);
        strncat(text, secret, sizeof text - strlen(text) - 1);
        status = tt__munge_seal(credential, text) ? munge_is_missing(meeting) : TT_OK;
    }
    if (!status) {
        tt__secret_keep(secret, credential);
        tt__log(TT_LOG_DEBUG, "the job secret is drawn here, and handed out sealed by MUNGE");
    }
    explicit_bzero(secret, sizeof secret);
    explicit_bzero(text, sizeof text);
    return status;
}

static tt_status read_sealed(const tt__meeting *meeting, const char *text) {
    char begin[TT__MUNGE_PAYLOAD_MAX];
    sealed_begin(meeting, begin);
    const char *secret = text + strlen(begin);
    if (strncmp(text, begin, strlen(begin)) != 0 || strlen(secret) != TT__SECRET_MADE_SIZE - 1)
        return tt__fail(TT_ERR_AUTH, "the credential is no job secret of %s: another job's, or an older one",
                        meeting->secret_of);
    tt__secret_keep(secret, NULL);
    return TT_OK;
}

static tt_status ask_for_secret(const tt__meeting *meeting, int64_t timeout_ms) {
    char text[TT__MUNGE_PAYLOAD_MAX], credential[TT__MUNGE_CREDENTIAL_MAX];
    if (tt__munge_seal(credential, "can munged be used here?"))
        return munge_is_missing(meeting);
    tt_status status = tt__asking_ask(credential, meeting->host, meeting->port, tt__deadline_ms(timeout_ms));
    if (!status)
        status = tt__munge_open(credential, text);
    if (!status) {
        status = read_sealed(meeting, text);
        explicit_bzero(text, sizeof text);
    }
    if (status)
        return tt__fail_prefix("rank %d can't get the job secret from rank 0 at %s:%d%s%s%s", meeting->rank,
                               meeting->host, meeting->port, meeting->whence ? " (" : "",
                               meeting->whence ? meeting->whence : "",
                               meeting->whence ? "; MASTER_ADDR and MASTER_PORT choose another place)" : "");
    tt__log(TT_LOG_DEBUG, "the job secret comes from rank 0 at %s:%d, sealed by MUNGE", meeting->host, meeting->port);
    return TT_OK;
}

tt_status tt__job_secret_find(const tt__meeting *meeting, int64_t timeout_ms) {
    if (meeting->world < 2 || !meeting->needs_secret || !*meeting->secret_of || tt__secret_is_named() ||
        has_certificates())
        return TT_OK;
    return meeting->serves ? draw_secret(meeting) : ask_for_secret(meeting, timeout_ms);
}
