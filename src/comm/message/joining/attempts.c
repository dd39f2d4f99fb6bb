/* The attempts of an engine. The candidates of a target are tried one after the other, the next a quarter of a second
 * after the last or as soon as that has failed. Only a limited number of strangers is served: beyond that the oldest
 * are dropped for new ones. */
#include "base/error.h"
#include "base/files/fd.h"
#include "base/machine/clock.h"
#include "comm/message/joining/joining.h"
#include "comm/message/message_parts.h"
#include "net/secure/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    STAGGER_MS = 250,
    ROUNDS = 3,     /* rounds over all addresses of a rank before it counts as unreachable */
    PAUSE_MS = 200, /* between two rounds */
    TRY_MS = 5000,  /* no new round begins after this time */
    ACCEPTS_AT_ONCE = 64,
    STRANGERS = 256 /* accepted at a time beside those expected, if there are four times as many descriptors */
};

/* Count how many strangers may connect and leave enough descriptors for everything else. */
static int count_strangers(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur / 4 >= STRANGERS)
        return STRANGERS;
    return limit.rlim_cur > 16 ? (int)limit.rlim_cur / 4 : 4;
}

tt_status tt__attempts_begin(tt__attempts *attempts, tt__messages *messages) {
    tt__wire wire;
    *attempts = (tt__attempts){.messages = messages, .strangers = count_strangers(), .epoll = -1, .spare = -1};
    TT__TRY(tt__secret_load(&attempts->secret));
    TT__TRY(tt__wire_choose(&wire, &attempts->secret, messages->one_host, !messages->config.rank));
    messages->seals = wire == TT__WIRE_SEALED;
    return tt__tls_load(&messages->tls, &attempts->secret);
}

void tt__attempts_end(tt__attempts *attempts) {
    char who[TT__RANK_TEXT_SIZE];
    if (attempts->messages)
        tt__refusals_flush_now(&attempts->refusals,
                               tt__rank_name(attempts->messages, attempts->messages->config.rank, who));
    tt__secret_wipe(&attempts->secret);
}

/* ---- connecting */

const char *tt__target_tried(const tt__target *target, char text[TT__TRIED_SIZE]) {
    size_t n = 0, size = TT__TRIED_SIZE;
    snprintf(text, size, "no address");
    for (int i = 0; i < target->count && n < size; i++) {
        const tt__candidate *candidate = &target->candidates[i];
        const char *why = *candidate->why ? candidate->why : i < target->next_candidate ? "no answer" : "not yet";
        n += (size_t)snprintf(text + n, size - n, "%s%s (%s)", i ? ", " : "", candidate->text, why);
    }
    return text;
}

void tt__target_note_failed(const tt__attempt *attempt) {
    tt__target *target = attempt->target;
    tt__candidate *candidate = &target->candidates[attempt->candidate];
    candidate->gone = attempt->gone;
    if (target->chosen == attempt)
        target->chosen = NULL;
    snprintf(candidate->why, sizeof candidate->why, "%s", attempt->why);
    if (attempt->status == TT_ERR_AUTH || !target->worst)
        target->worst = attempt->status;
    target->trying--;
    target->next_ms = 0;
}

static bool has_tried_enough(const tt__attempts *attempts, tt__target *target, int64_t start_ms, int64_t now) {
    int64_t try_ms = attempts->patience_ms && attempts->patience_ms < TRY_MS ? attempts->patience_ms : TRY_MS;
    return ++target->round == ROUNDS || !target->count || target->worst == TT_ERR_AUTH || now - start_ms >= try_ms;
}

/* Put a new attempt into the list; for workers, fill in what only they use. */
static void add_attempt(tt__attempts *attempts, tt__attempt *attempt) {
    attempt->next = attempts->first;
    attempts->first = attempt;
    attempt->patience_ms = attempts->patience_ms;
    attempt->says = attempts->intro;
    attempt->epoll = attempts->epoll;
    int64_t until = attempt->began_ms + attempts->patience_ms;
    if (attempts->patience_ms && until < attempt->deadline_ms)
        attempt->deadline_ms = until;
}

tt_status tt__target_try(tt__attempts *attempts, tt__target *target, int64_t start_ms, int64_t now, bool *given_up) {
    *given_up = false;
    if (now < target->next_ms)
        return TT_OK;
    if (target->next_candidate == target->count) {
        if (target->trying)
            return TT_OK;
        *given_up = has_tried_enough(attempts, target, start_ms, now);
        if (*given_up)
            return TT_OK;
        target->next_candidate = 0;
        target->next_ms = now + PAUSE_MS;
        return TT_OK;
    }
    tt__attempt *attempt = tt__attempt_connect(attempts->messages, &attempts->secret, target, target->next_candidate++);
    if (!attempt)
        return tt_last_status();
    add_attempt(attempts, attempt);
    target->trying++;
    target->next_ms = now + STAGGER_MS;
    return TT_OK;
}

int64_t tt__target_due_ms(const tt__target *target) {
    return target->next_candidate < target->count || !target->trying ? target->next_ms : -1;
}

/* ---- accepting */

void tt__attempts_refuse(tt__attempts *attempts, const tt__attempt *attempt, const char *why) {
    char who[TT__RANK_TEXT_SIZE];
    tt__refusals_log(&attempts->refusals, tt__rank_name(attempts->messages, attempts->messages->config.rank, who),
                     "a connection from %s is refused: %s", attempt->where, why);
}

void tt__attempts_drop(tt__attempts *attempts, tt__attempt **at) {
    tt__attempt *attempt = *at;
    attempts->accepted -= !attempt->target;
    *at = attempt->next;
    tt__attempt_free(attempt);
}

/* Return a number for the network that a stranger calls from: of its IPv4 address, or of the upper half of its IPv6
 * address. */
static uint32_t source_of(const struct sockaddr_storage *from) {
    const struct sockaddr_in *in4 = (const struct sockaddr_in *)(const void *)from;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)(const void *)from;
    uint32_t half[2];
    if (from->ss_family == AF_INET)
        return in4->sin_addr.s_addr;
    memcpy(half, &in6->sin6_addr, sizeof half);
    return half[0] * 31 + half[1];
}

static bool is_stranger(const tt__attempt *attempt) { return !attempt->target && attempt->step < TT__ATTEMPT_CHOOSING; }

static bool is_of_crowd(const tt__attempts *attempts, const tt__attempt *stranger) {
    int count = 0;
    for (const tt__attempt *a = attempts->first; a; a = a->next)
        count += is_stranger(a) && a->source == stranger->source;
    return count > attempts->strangers / 4;
}

/* Find the oldest stranger, the last in the list, to drop it; NULL: none. Many workers may call at once, so a worker is
 * spared for the time that an honest one may need; for less if more than a quarter of the allowed strangers come from
 * one network, so that others get a turn. */
static tt__attempt **oldest_stranger(tt__attempts *attempts) {
    enum { HONEST_MS = 1000, CROWD_MS = 100 };
    tt__attempt **oldest = NULL, **of_crowd = NULL;
    int64_t now = attempts->patience_ms ? tt__now_ms() : 0;
    for (tt__attempt **at = &attempts->first; *at; at = &(*at)->next) {
        if (!is_stranger(*at))
            continue;
        oldest = at;
        if (now - (*at)->began_ms >= CROWD_MS && is_of_crowd(attempts, *at))
            of_crowd = at;
    }
    bool is_young = oldest && attempts->patience_ms && now - (*oldest)->began_ms < HONEST_MS;
    return is_young ? of_crowd : oldest;
}

/* Hang up on that stranger; false: there is none. */
static bool drop_oldest_stranger(tt__attempts *attempts) {
    tt__attempt **oldest = oldest_stranger(attempts);
    if (!oldest)
        return false;
    tt__attempts_refuse(attempts, *oldest, "too many connections that have not proved anything");
    tt__attempts_drop(attempts, oldest);
    return true;
}

/* Fail after an error of accept(), unless it is the peer's connection that failed. */
static tt_status fail_accept(const tt__attempts *attempts, int errnum) {
    char who[TT__RANK_TEXT_SIZE];
    const tt__messages *messages = attempts->messages;
    if (errnum != EMFILE && errnum != ENFILE && errnum != ENOBUFS && errnum != ENOMEM)
        return TT_OK;
    return tt__fail_errno(TT_ERR_SYSTEM, errnum, "%s can't accept the calls of other %s",
                          tt__rank_name(messages, messages->config.rank, who),
                          messages->config.peer_name ? "workers" : "ranks");
}

/* Tell a caller that there is no descriptor for it. Read what it has sent first: closing a socket with unread bytes may
 * discard the answer. */
static bool turn_away(tt__attempts *attempts) {
    uint8_t message[TT__HANDSHAKE_MESSAGE_MAX], heard[TT__HANDSHAKE_MESSAGE_MAX];
    if (attempts->spare < 0)
        return false;
    close(attempts->spare);
    int fd = tt__fd(accept4(attempts->messages->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd >= 0) {
        size_t size = tt__handshake_refusal(TT__REFUSED_FULL, message);
        ssize_t ignored = recv(fd, heard, sizeof heard, 0);
        if (!attempts->messages->tls)
            ignored = send(fd, message, size, MSG_NOSIGNAL);
        (void)ignored; /* a caller that does not read it finds the connection closed */
        close(fd);
    }
    attempts->spare = tt__fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
    return fd >= 0;
}

tt_status tt__attempts_accept(tt__attempts *attempts) {
    int listener = attempts->messages->listener;
    for (int i = 0; i < ACCEPTS_AT_ONCE; i++) {
        bool crowded = attempts->accepted >= attempts->expected + attempts->strangers;
        attempts->full = crowded && attempts->patience_ms && !oldest_stranger(attempts);
        if (attempts->full)
            return TT_OK;
        struct sockaddr_storage from = {0};
        socklen_t size = sizeof from;
        int fd = tt__fd(accept4(listener, (struct sockaddr *)&from, &size, SOCK_CLOEXEC | SOCK_NONBLOCK));
        int errnum = errno;
        bool starved = fd < 0 && (errnum == EMFILE || errnum == ENFILE);
        if (starved && (drop_oldest_stranger(attempts) || turn_away(attempts))) {
            attempts->starved = true;
            continue;
        }
        if (fd < 0)
            return fail_accept(attempts, errnum);
        tt__net_unmap(&from);
        if (crowded)
            drop_oldest_stranger(attempts);
        tt__attempt *attempt = tt__attempt_accept(attempts->messages, &attempts->secret, fd, &from);
        if (!attempt)
            return tt_last_status();
        attempt->source = source_of(&from);
        add_attempt(attempts, attempt);
        attempts->accepted++;
    }
    return TT_OK;
}

void tt__attempt_expire(tt__attempt *attempt, int64_t now) {
    if (now < attempt->deadline_ms || attempt->step >= TT__ATTEMPT_DONE)
        return;
    snprintf(attempt->why, sizeof attempt->why, "no answer in time");
    attempt->status = attempt->step == TT__ATTEMPT_CONNECTING ? TT_ERR_NET : TT_ERR_PEER;
    attempt->step = TT__ATTEMPT_FAILED;
}
