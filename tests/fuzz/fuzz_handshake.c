/* The handshake against a peer that says anything: no crash, and nobody gets in without the secret.
 *
 * Input: a mode byte (bit 0: we are the server, bit 1: we have a secret, bit 2: what comes is spoiled rather than
 * invented, bits 3-5: cut sizes), then
 *   invented  the peer's bytes. With a secret, they must never lead to success
 *   spoiled   pairs (place, xor) applied to what a true peer with the same secret says; any change must
 *             keep us from success */
#include "net/secure/handshake.h"

#include <stdlib.h>
#include <string.h>

static const char secret_text[] = "an old and well kept secret";

static void require(bool condition) {
    if (!condition)
        abort();
}

static tt__handshake_role role_of(bool server, const tt__secret *secret) {
    return (tt__handshake_role){.server = server,
                                .purpose = TT__PURPOSE_TRANSPORT,
                                .secret = secret,
                                .job = "the job's number",
                                .rank = server,
                                .peer = !server};
}

/* Move a side's output to the other, in pieces of at most `cut` bytes. */
static void hand_over(tt__handshake *from, tt__handshake *to, size_t cut) {
    while (from->out_size) {
        size_t n = from->out_size < cut ? from->out_size : cut;
        size_t taken = tt__handshake_feed(to, from->out, n);
        tt__handshake_sent(from, n);
        if (taken < n)
            from->out_size = 0;
    }
}

static void check(const tt__handshake *h) {
    require(h->out_size <= sizeof h->out && h->in_size <= sizeof h->in);
    require((tt__handshake_wants(h) == 0) == (h->state != TT__HANDSHAKE_GOING));
    if (h->state == TT__HANDSHAKE_FAILED) {
        require(h->refusal != TT__REFUSED_NOT);
        require(tt__handshake_error(h) != TT_OK);
        require(*tt__handshake_reason(h));
    }
}

static void invented(bool server, const tt__secret *secret, size_t cut, const uint8_t *data, size_t size) {
    tt__handshake h;
    tt__handshake_role role = role_of(server, secret);
    require(tt__handshake_begin(&h, &role) == TT_OK);
    if (cut > 1)
        h.out_size = 0; /* else the peer answers before we have said a word */
    for (size_t at = 0; at < size;) {
        size_t n = cut < size - at ? cut : size - at, wants = tt__handshake_wants(&h);
        size_t taken = tt__handshake_feed(&h, data + at, n);
        require(taken <= n && (taken == n || h.state != TT__HANDSHAKE_GOING));
        require(wants || !taken);
        check(&h);
        h.out_size = 0;
        at += n;
    }
    require(!secret->set || h.state != TT__HANDSHAKE_DONE);
}

static void spoiled(bool server, const tt__secret *secret, size_t cut, const uint8_t *data, size_t size) {
    tt__handshake ours, peer;
    tt__handshake_role our_role = role_of(server, secret), peer_role = role_of(!server, secret);
    require(tt__handshake_begin(&peer, &peer_role) == TT_OK);
    require(tt__handshake_begin(&ours, &our_role) == TT_OK);
    bool changed = false;
    for (int turn = 0; turn < 4; turn++) {
        uint8_t before[TT__HANDSHAKE_MESSAGE_MAX];
        hand_over(&ours, &peer, cut);
        memcpy(before, peer.out, sizeof before);
        for (; size >= 2 && data[0] / 64 == turn; data += 2, size -= 2)
            if ((size_t)data[0] % 64 < peer.out_size && ours.state == TT__HANDSHAKE_GOING)
                peer.out[data[0] % 64] ^= data[1];
        changed = changed || memcmp(before, peer.out, peer.out_size) != 0;
        hand_over(&peer, &ours, cut);
        check(&ours);
        check(&peer);
    }
    require(!changed || !secret->set || ours.state != TT__HANDSHAKE_DONE);
    if (!changed)
        require(ours.state == TT__HANDSHAKE_DONE && peer.state == TT__HANDSHAKE_DONE);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tt__secret secret = {0};
    if (!size)
        return 0;
    if (data[0] & 2)
        tt__secret_from(&secret, secret_text, strlen(secret_text));
    size_t cut = (size_t)1 << (data[0] >> 3 & 7);
    if (data[0] & 4)
        spoiled(data[0] & 1, &secret, cut, data + 1, size - 1);
    else
        invented(data[0] & 1, &secret, cut, data + 1, size - 1);
    return 0;
}
