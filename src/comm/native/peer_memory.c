/* How the ranks of a group hand each other descriptors. Each rank listens on a Unix socket whose name is drawn for this
 * one trade; by a call of the group it tells the others the name, and a number that callers must know. Every rank calls
 * all others, sends one packet with its descriptor, and then receives theirs. A connection waits in the listener's
 * queue, so no rank waits for another to accept, and none can wait in a circle. */
#include "comm/native/peer_memory.h"

#include "base/error.h"
#include "base/files/fd.h"
#include "base/machine/clock.h"
#include "base/random_bytes.h"
#include "comm/group.h"
#include "comm/native_group.h"
#include "net/local_socket.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LOOK_MS = 20 /* between two looks at the group */, QUEUE = 128 /* room for strangers, too */ };

/* What each rank tells the others. */
typedef struct trade_place {
    char name[24]; /* of its socket; "": it has none */
    unsigned char key[16];
} trade_place;

/* The packet of a caller. */
typedef struct trade_word {
    unsigned char key[16]; /* of the rank that it calls */
    int32_t rank;
    int32_t given; /* is a descriptor attached? */
} trade_word;

typedef struct trade {
    tt_group *group;
    const char *who;
    int listener;
    trade_place places[TT__TRADE_RANKS];
    bool heard[TT__TRADE_RANKS];
    int *theirs;
} trade;

bool tt__group_can_trade(const tt_group *group) {
    if (!group || !group->native || group->size < 2 || group->size > TT__TRADE_RANKS || tt__is_inherited(group))
        return false;
    for (int r = 0; r < group->size; r++)
        if (!group->native->bases[r])
            return false;
    return true;
}

/* Returns false where no socket can be had. */
static bool listen_for_trade(trade *t, trade_place *own) {
    struct sockaddr_un address;
    unsigned char drawn[8];
    memset(own, 0, sizeof *own);
    t->listener = -1;
    if (tt__random_bytes(drawn, sizeof drawn) || tt__random_bytes(own->key, sizeof own->key))
        return false;
    t->listener = tt__fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    size_t n = (size_t)snprintf(own->name, sizeof own->name, "tutti-");
    for (size_t i = 0; i < sizeof drawn; i++)
        n += (size_t)snprintf(own->name + n, sizeof own->name - n, "%02x", drawn[i]);
    if (t->listener >= 0 &&
        !bind(t->listener, (struct sockaddr *)&address, tt__abstract_address(&address, own->name)) &&
        !listen(t->listener, QUEUE))
        return true;
    own->name[0] = '\0';
    return false;
}

static bool give_to(const trade *t, int r, int own) {
    struct sockaddr_un address;
    trade_word word = {.rank = t->group->rank, .given = own >= 0};
    int s = tt__fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    memcpy(word.key, t->places[r].key, sizeof word.key);
    bool given = s >= 0 &&
                 !connect(s, (struct sockaddr *)&address, tt__abstract_address(&address, t->places[r].name)) &&
                 tt__local_peer_is_us(s) && tt__send_packet(s, &word, sizeof word, own);
    if (s >= 0)
        close(s);
    return given;
}

/* Take one caller's descriptor. Packets of strangers are ignored. */
static void take_caller(trade *t) {
    int s = tt__fd(accept4(t->listener, NULL, NULL, SOCK_CLOEXEC)), attached = -1;
    trade_word word;
    if (s < 0)
        return;
    bool ours = tt__local_peer_is_us(s) && /* its word came with the connection, or within a moment */
                poll(&(struct pollfd){.fd = s, .events = POLLIN}, 1, LOOK_MS) == 1 &&
                tt__receive_packet(s, &word, sizeof word, MSG_DONTWAIT, &attached) == (ssize_t)sizeof word &&
                !memcmp(word.key, t->places[t->group->rank].key, sizeof word.key) && word.rank >= 0 &&
                word.rank < t->group->size && !t->heard[word.rank] && (attached >= 0) == word.given;
    close(s);
    if (!ours) {
        if (attached >= 0)
            close(attached);
        return;
    }
    t->heard[word.rank] = true;
    t->theirs[word.rank] = attached;
}

static bool has_heard_all(const trade *t) {
    for (int r = 0; r < t->group->size; r++)
        if (r != t->group->rank && !t->heard[r])
            return false;
    return true;
}

/* Receive all others' descriptors; *heard: all came in time. An error: the group has failed. */
static tt_status hear_all(trade *t, bool *heard) {
    const int64_t until = tt__deadline_ms(t->group->timeout_ms);
    while (!(*heard = has_heard_all(t)) && tt__now_ms() < until) {
        if (poll(&(struct pollfd){.fd = t->listener, .events = POLLIN}, 1, LOOK_MS) == 1)
            take_caller(t);
        else
            TT__TRY(tt__group_progress(t->group));
    }
    return TT_OK;
}

/* Does the same hold on all ranks? */
static tt_status trade_holds_on_all(trade *t, bool mine, bool *all) {
    uint8_t own = mine, each[TT__TRADE_RANKS];
    TT__TRY(tt__group_gather(t->group, &own, each, 1, TT_U8, t->who));
    *all = true;
    for (int r = 0; r < t->group->size; r++)
        *all &= each[r] == 1;
    return TT_OK;
}

/* *done: every rank has all descriptors. */
static tt_status meet_and_trade(trade *t, int own, bool *done) {
    trade_place place;
    bool could = listen_for_trade(t, &place), all;
    TT__TRY(tt__group_gather(t->group, &place, t->places, sizeof place, TT_U8, t->who));
    for (int r = 0; r < t->group->size; r++)
        could &= memchr(t->places[r].name, '\0', sizeof t->places[r].name) && t->places[r].name[0];
    *done = could; /* the same on all ranks until here */
    if (!could)
        return TT_OK;
    for (int r = 0; r < t->group->size && could; r++)
        could = r == t->group->rank || give_to(t, r, own);
    TT__TRY(trade_holds_on_all(t, could, &all)); /* then all words are on their way */
    if (all)
        TT__TRY(hear_all(t, &could));
    return trade_holds_on_all(t, all && could, done);
}

tt_status tt__group_trade(tt_group *group, int own, int *theirs, const char *who) {
    trade t = {.group = group, .who = who, .listener = -1, .theirs = theirs};
    bool done = false;
    for (int r = 0; r < group->size; r++)
        theirs[r] = -1;
    tt_status status = meet_and_trade(&t, own, &done);
    if (t.listener >= 0)
        close(t.listener);
    if (!status && done)
        return TT_OK;
    for (int r = 0; r < group->size; r++)
        if (theirs[r] >= 0)
            close(theirs[r]);
    for (int r = 0; r < group->size; r++)
        theirs[r] = -1;
    return status
               ? status
               : tt__fail(TT_ERR_UNSUPPORTED, "%s: the ranks can't hand each other descriptors over Unix sockets", who);
}

int64_t tt__symmetric_offset(const tt_group *group, const void *ptr) {
    const tt__native *native = group->native;
    if (!native || !native->bases[group->rank])
        return -1;
    for (const tt__allocation *a = group->allocations; a; a = a->next)
        if (a->at == ptr)
            return a->extent ? (const unsigned char *)ptr - native->bases[group->rank] : -1;
    return -1;
}

const void *tt__peer_memory(const tt_group *group, int peer, int64_t offset) {
    const tt__native *native = group->native;
    if (!native || offset < 0 || !native->bases[peer])
        return NULL;
    return native->bases[peer] + offset;
}
