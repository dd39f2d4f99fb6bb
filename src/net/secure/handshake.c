#include "net/secure/handshake.h"

#include "base/error.h"
#include "base/random_bytes.h"

#include <string.h>

enum { HELLO = 1, CHALLENGE, PROOF, ACCEPT, REFUSAL };

/* Where the fields of HELLO and CHALLENGE lie; ranks are 32 bits, little-endian. */
enum {
    AT_VERSION = 1,
    AT_KIND = 2,
    AT_DETAIL = 3, /* of a refusal: the reason; else 0 */
    HEADER = 4,
    AT_PURPOSE = 4,
    AT_PROVES = 5,
    AT_SEALING = 6,
    AT_RANK = 8,
    AT_PEER = 12,
    AT_JOB = 16,
    AT_RANDOM = 32,
    RANDOM_SIZE = 32
};

/* Return the size of a message, header included; 0: not a message. */
static size_t message_size(uint8_t kind) {
    static const uint8_t sizes[] = {[HELLO] = 64,
                                    [CHALLENGE] = 64,
                                    [PROOF] = HEADER + TT__MAC_SIZE,
                                    [ACCEPT] = HEADER + TT__MAC_SIZE,
                                    [REFUSAL] = HEADER};
    return kind < sizeof sizes ? sizes[kind] : 0;
}

static void put_handshake_rank(uint8_t *at, int rank) {
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)((uint32_t)rank >> 8 * i);
}

static int get_rank(const uint8_t *at) {
    uint32_t rank = 0;
    for (int i = 0; i < 4; i++)
        rank |= (uint32_t)at[i] << 8 * i;
    return rank > INT32_MAX ? TT__ANY_RANK : (int)rank;
}

static bool proves_secret(const tt__handshake *h) { return h->role.secret && h->role.secret->set; }

static uint8_t *put_header(tt__handshake *h, uint8_t kind, uint8_t detail) {
    const uint8_t header[HEADER] = {TT__HANDSHAKE_FIRST_BYTE, TT__HANDSHAKE_VERSION, kind, detail};
    uint8_t *message = h->out + h->out_size;
    memcpy(message, header, HEADER);
    h->out_size += message_size(kind);
    return message;
}

/* Write HELLO or CHALLENGE, and keep it for the proofs. */
static tt_status put_introduction(tt__handshake *h, uint8_t kind, uint8_t kept[TT__HANDSHAKE_MESSAGE_MAX]) {
    uint8_t random[RANDOM_SIZE];
    TT__TRY(tt__random_bytes(random, sizeof random));
    uint8_t *message = put_header(h, kind, 0);
    memset(message + HEADER, 0, message_size(kind) - HEADER);
    message[AT_PURPOSE] = (uint8_t)h->role.purpose;
    message[AT_PROVES] = proves_secret(h);
    message[AT_SEALING] = (uint8_t)h->role.sealing;
    put_handshake_rank(message + AT_RANK, h->role.rank);
    put_handshake_rank(message + AT_PEER, h->role.server ? h->peer : h->role.peer);
    memcpy(message + AT_JOB, h->role.job, TT__JOB_SIZE);
    memcpy(message + AT_RANDOM, random, sizeof random);
    memcpy(kept, message, message_size(kind));
    return TT_OK;
}

static void proof_of(const tt__handshake *h, bool server, uint8_t mac[TT__MAC_SIZE]) {
    const char *who = server ? "server" : "client";
    tt__mac(mac, (tt__span){h->role.secret->handshake_key, TT__MAC_SIZE},
            (const tt__span[]){{(const uint8_t *)who, strlen(who)},
                               {h->hello, message_size(HELLO)},
                               {h->challenge, message_size(CHALLENGE)},
                               {h->role.channel, sizeof h->role.channel}},
            4);
}

static bool proof_is_good(const tt__handshake *h, bool server, const uint8_t *message) {
    uint8_t mac[TT__MAC_SIZE];
    proof_of(h, server, mac);
    return tt__mac_equal(mac, message + HEADER);
}

/* Fail the handshake. A server sends its client the reason, but nothing to a stranger. */
static void fail_handshake(tt__handshake *h, tt__refusal why) {
    h->state = TT__HANDSHAKE_FAILED;
    h->refusal = why;
    if (h->role.server && why <= TT__REFUSED_FULL) {
        h->out_size = 0;
        put_header(h, REFUSAL, (uint8_t)why);
    }
}

/* Is it the same job? A client of a store need not know the job, and sends zeros. */
static bool is_same_job(const tt__handshake *h, const uint8_t job[TT__JOB_SIZE]) {
    static const uint8_t unknown[TT__JOB_SIZE];
    if (h->role.purpose != TT__PURPOSE_STORE)
        return !memcmp(job, h->role.job, TT__JOB_SIZE);
    return !h->role.server || !memcmp(job, unknown, TT__JOB_SIZE);
}

/* Do the two sides agree, by the fields that HELLO and CHALLENGE share? */
static tt__refusal check_introduction(const tt__handshake *h, const uint8_t *message) {
    bool other_proves = message[AT_PROVES] != 0;
    int rank = get_rank(message + AT_RANK), wanted = get_rank(message + AT_PEER);
    if (message[AT_PURPOSE] != h->role.purpose)
        return TT__REFUSED_PURPOSE;
    if (proves_secret(h) != other_proves)
        return h->role.server == proves_secret(h) ? TT__REFUSED_NO_PROOF : TT__REFUSED_NO_SECRET;
    if (!is_same_job(h, message + AT_JOB))
        return TT__REFUSED_JOB;
    if (message[AT_SEALING] != h->role.sealing)
        return TT__REFUSED_SEALING;
    if ((h->role.peer != TT__ANY_RANK && rank != h->role.peer) ||
        (h->role.rank != TT__ANY_RANK && wanted != TT__ANY_RANK && wanted != h->role.rank))
        return TT__REFUSED_RANK;
    return TT__REFUSED_NOT;
}

static void on_hello(tt__handshake *h) {
    memcpy(h->hello, h->in, message_size(HELLO));
    tt__refusal why = check_introduction(h, h->hello);
    if (why) {
        fail_handshake(h, why);
        return;
    }
    h->peer = get_rank(h->hello + AT_RANK);
    if (put_introduction(h, CHALLENGE, h->challenge)) {
        fail_handshake(h, TT__REFUSED_BROKEN);
        return;
    }
    h->expected = PROOF;
    if (!proves_secret(h))
        h->state = TT__HANDSHAKE_DONE;
}

static void on_challenge(tt__handshake *h) {
    memcpy(h->challenge, h->in, message_size(CHALLENGE));
    tt__refusal why = check_introduction(h, h->challenge);
    if (why) {
        fail_handshake(h, why);
        return;
    }
    h->peer = get_rank(h->challenge + AT_RANK);
    memcpy(h->job, h->challenge + AT_JOB, TT__JOB_SIZE);
    if (proves_secret(h)) {
        proof_of(h, false, put_header(h, PROOF, 0) + HEADER);
        h->expected = ACCEPT;
    } else {
        h->state = TT__HANDSHAKE_DONE;
    }
}

static void on_proof(tt__handshake *h) {
    if (!proof_is_good(h, false, h->in)) {
        fail_handshake(h, TT__REFUSED_PROOF);
        return;
    }
    proof_of(h, true, put_header(h, ACCEPT, 0) + HEADER);
    h->state = TT__HANDSHAKE_DONE;
}

static void on_accept(tt__handshake *h) {
    if (proof_is_good(h, true, h->in))
        h->state = TT__HANDSHAKE_DONE;
    else
        fail_handshake(h, TT__REFUSED_PROOF);
}

static void on_refusal(tt__handshake *h) {
    uint8_t why = h->in[AT_DETAIL];
    fail_handshake(h, why != TT__REFUSED_NOT && why <= TT__REFUSED_FULL ? (tt__refusal)why : TT__REFUSED_BROKEN);
}

static void on_message(tt__handshake *h) {
    if (h->out_size) { /* an answer to what was not sent yet */
        fail_handshake(h, TT__REFUSED_BROKEN);
        return;
    }
    switch (h->in[AT_KIND]) {
    case HELLO:
        on_hello(h);
        break;
    case CHALLENGE:
        on_challenge(h);
        break;
    case PROOF:
        on_proof(h);
        break;
    case ACCEPT:
        on_accept(h);
        break;
    default:
        on_refusal(h);
    }
    h->in_size = 0;
}

/* Check the header byte by byte, so as not to wait for the rest of what is no message. */
static tt__refusal judge_header(const tt__handshake *h) {
    if (h->in_size > 0 && h->in[0] != TT__HANDSHAKE_FIRST_BYTE)
        return TT__REFUSED_STRANGER;
    if (h->in_size > AT_VERSION && h->in[AT_VERSION] != TT__HANDSHAKE_VERSION)
        return TT__REFUSED_VERSION;
    if (h->in_size > AT_KIND && h->in[AT_KIND] != h->expected && (h->role.server || h->in[AT_KIND] != REFUSAL))
        return TT__REFUSED_BROKEN;
    if (h->in_size > AT_DETAIL && h->in[AT_DETAIL] && h->in[AT_KIND] != REFUSAL)
        return TT__REFUSED_BROKEN;
    return TT__REFUSED_NOT;
}

tt_status tt__handshake_begin(tt__handshake *h, const tt__handshake_role *role) {
    *h = (tt__handshake){.role = *role, .peer = TT__ANY_RANK, .expected = role->server ? HELLO : CHALLENGE};
    memcpy(h->job, role->job, TT__JOB_SIZE);
    return role->server ? TT_OK : put_introduction(h, HELLO, h->hello);
}

size_t tt__handshake_wants(const tt__handshake *h) {
    if (h->state != TT__HANDSHAKE_GOING)
        return 0;
    size_t size = h->in_size < HEADER ? HEADER : message_size(h->in[AT_KIND]);
    return size - h->in_size;
}

size_t tt__handshake_feed(tt__handshake *h, const void *data, size_t size) {
    size_t taken = 0;
    for (size_t n; taken < size && (n = tt__handshake_wants(h)) > 0; taken += n) {
        n = n < size - taken ? n : size - taken;
        memcpy(h->in + h->in_size, (const uint8_t *)data + taken, n);
        h->in_size += n;
        tt__refusal why = judge_header(h);
        if (why)
            fail_handshake(h, why);
        else if (h->in_size >= HEADER && h->in_size == message_size(h->in[AT_KIND]))
            on_message(h);
    }
    return taken;
}

void tt__handshake_keys(const tt__handshake *h, uint8_t send[TT__MAC_SIZE], uint8_t receive[TT__MAC_SIZE]) {
    static const char *const directions[2] = {"from client", "from server"};
    uint8_t both[2 * TT__HANDSHAKE_MESSAGE_MAX];
    memcpy(both, h->hello, TT__HANDSHAKE_MESSAGE_MAX);
    memcpy(both + TT__HANDSHAKE_MESSAGE_MAX, h->challenge, TT__HANDSHAKE_MESSAGE_MAX);
    for (int server = 0; server < 2; server++)
        tt__mac_derive(server == h->role.server ? send : receive, (tt__span){h->role.secret->wire_key, TT__MAC_SIZE},
                       (tt__span){both, sizeof both},
                       (tt__span){(const uint8_t *)directions[server], strlen(directions[server])});
}

void tt__handshake_sent(tt__handshake *h, size_t size) {
    h->out_size -= size;
    memmove(h->out, h->out + size, h->out_size);
}

size_t tt__handshake_refusal(tt__refusal why, uint8_t message[TT__HANDSHAKE_MESSAGE_MAX]) {
    tt__handshake none = {.out_size = 0};
    put_header(&none, REFUSAL, (uint8_t)why);
    memcpy(message, none.out, none.out_size);
    return none.out_size;
}

/* ---- in words */

#define SAME_SECRET "Give all processes of the job the same TT_SECRET or TT_SECRET_FILE (`tutti run` makes one itself)"

static const struct {
    tt_status status;
    const char *reason; /* what is wrong with the other side, for the log */
    const char *text;   /* the same for an error, and what to do */
} words[] = {
    [TT__REFUSED_NOT] = {TT_ERR_AUTH, "nothing", "the handshake has not ended"},
    [TT__REFUSED_VERSION] = {TT_ERR_PROTOCOL, "it has another version of the handshake",
                             "the other side has another version of Tutti's handshake. Use one version of Tutti"},
    [TT__REFUSED_PURPOSE] = {TT_ERR_AUTH, "it looks for another service",
                             "the other side is there for another service of Tutti. Is the port right?"},
    [TT__REFUSED_NO_PROOF] = {TT_ERR_AUTH, "it does not prove that it belongs to the job",
                              "the other side asks for a job secret, but this process has none. " SAME_SECRET},
    [TT__REFUSED_NO_SECRET] = {TT_ERR_AUTH, "it has a job secret, and this process has none",
                               "this process has a job secret, but the other side has none. " SAME_SECRET},
    [TT__REFUSED_PROOF] = {TT_ERR_AUTH, "it has another job secret",
                           "the other side has another job secret. " SAME_SECRET},
    [TT__REFUSED_JOB] = {TT_ERR_AUTH, "it belongs to another job",
                         "the other side belongs to another job. Are address and port this job's own?"},
    [TT__REFUSED_RANK] = {TT_ERR_AUTH, "it is not, or does not look for, the rank that belongs here",
                          "the other side is not the rank that was expected there"},
    [TT__REFUSED_PLAIN] = {TT_ERR_AUTH, "it does not encrypt",
                           "the other side wants an encrypted connection. Give all processes of the job TT_TLS=1"},
    [TT__REFUSED_SEALING] = {TT_ERR_AUTH, "one side seals its connections, the other does not",
                             "one side seals its connections, the other does not. Give all processes of the job the "
                             "same TT_WIRE"},
    [TT__REFUSED_FULL] = {TT_ERR_NET, "this process has no descriptor left for it (ulimit -n)",
                          "the other side has no descriptor left for more connections. Let it have more (ulimit -n)"},
    [TT__REFUSED_STRANGER] = {TT_ERR_PROTOCOL, "it does not speak Tutti's handshake",
                              "who listens there does not speak Tutti's handshake. Are address and port right?"},
    [TT__REFUSED_BROKEN] = {TT_ERR_PROTOCOL, "its handshake is broken",
                            "the other side sent an impossible message in the handshake"},
};

tt_status tt__handshake_error(const tt__handshake *h) {
    tt__refusal why = h->refusal;
    if (why == TT__REFUSED_NO_PROOF || why == TT__REFUSED_NO_SECRET) /* told from this side's point of view */
        why = proves_secret(h) ? TT__REFUSED_NO_SECRET : TT__REFUSED_NO_PROOF;
    return tt__fail(words[why].status, "%s", words[why].text);
}

const char *tt__handshake_reason(const tt__handshake *h) { return words[h->refusal].reason; }
