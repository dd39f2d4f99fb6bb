/* Joining ranks by TCP.
 *
 * Higher ranks connect to lower ones, so each pair is joined once. A rank has several addresses, not all of which can
 * be reached from everywhere: they are tried one after the other, the next a quarter of a second after the last or as
 * soon as that has failed, and the first connection on which both sides have proved who they are is taken (RFC 8305).
 * One loop serves all attempts; connections of strangers and silent ones are closed, and disturb nobody.
 *
 * The same loop sends and receives heartbeats on the links that exist: a rank that still joins must not take one that
 * has finished for frozen, and must notice one that freezes meanwhile. */
#include "comm/message/joining/joining.h"
#include "base/error.h"
#include "base/machine/clock.h"
#include "comm/message/message_parts.h"
#include "net/net.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    EXPECTED_MS = 15000, /* for all higher ranks to connect; longer than they need to find out that they can't */
    LOOK_MS = 200        /* between looks at what may end joining, but has no descriptor to poll */
};

/* The state of joining. */
typedef struct joining {
    tt__messages *messages;
    tt__attempts attempts;
    int missing; /* links */
    tt__target *targets;
    int target_count;
    struct pollfd *fds;
    size_t room;
    int64_t start_ms, deadline_ms, expected_ms, look_ms;
} joining;

/* ---- errors */

static tt_status fail_unreached(const tt__messages *messages, const tt__target *target) {
    char own[TT__RANK_TEXT_SIZE], other[TT__RANK_TEXT_SIZE], tried[TT__TRIED_SIZE];
    return tt__fail(target->worst ? target->worst : TT_ERR_NET,
                    "%s can't reach %s: tried %s. TT_SOCKET_IFNAME names the interfaces whose addresses are used",
                    tt__rank_text(messages, messages->config.rank, NULL, own),
                    tt__rank_text(messages, target->rank, NULL, other), tt__target_tried(target, tried));
}

static tt_status fail_no_answer(const joining *j, const tt__target *target, int64_t now) {
    char own[TT__RANK_TEXT_SIZE], other[TT__RANK_TEXT_SIZE], tried[TT__TRIED_SIZE];
    return tt__fail(TT_ERR_TIMEOUT,
                    "%s did not answer %s in the %lld ms that were left: it failed or is frozen, or the network "
                    "between is cut; tried %s",
                    tt__rank_text(j->messages, target->rank, NULL, other),
                    tt__rank_text(j->messages, j->messages->config.rank, NULL, own), (long long)(now - j->start_ms),
                    tt__target_tried(target, tried));
}

static tt_status fail_not_connected(const joining *j, int rank, int64_t now) {
    const tt__messages *messages = j->messages;
    char own[TT__RANK_TEXT_SIZE], other[TT__RANK_TEXT_SIZE];
    const char *at = strrchr(messages->addresses, '/') + 1;
    return tt__fail(TT_ERR_NET,
                    "%s did not call %s in the %lld ms that were left: it failed, is frozen, or can't reach this host "
                    "at %.300s, port %d",
                    tt__rank_text(messages, rank, NULL, other),
                    tt__rank_text(messages, messages->config.rank, NULL, own), (long long)(now - j->start_ms), at,
                    atoi(messages->addresses));
}

/* ---- connecting */

static tt_status start_attempts(joining *j, int64_t now) {
    for (int i = 0; i < j->target_count; i++) {
        tt__target *target = &j->targets[i];
        bool given_up;
        if (j->messages->links[target->rank])
            continue;
        TT__TRY(tt__target_try(&j->attempts, target, j->start_ms, now, &given_up));
        if (given_up)
            return fail_unreached(j->messages, target);
    }
    return TT_OK;
}

/* Return the rank that an attempt has reached; -1: none that is expected. */
static int attempt_rank(const joining *j, const tt__attempt *attempt) {
    int rank = attempt->handshake.peer, own = j->messages->config.rank;
    if (attempt->target)
        return attempt->target->rank;
    bool expected = rank > own && rank < j->messages->config.size && !j->messages->links[rank];
    return expected ? rank : -1;
}

/* ---- all attempts */

static tt_status add_link(joining *j, tt__attempt *attempt) {
    char own[TT__RANK_TEXT_SIZE], other[TT__RANK_TEXT_SIZE], interface[32];
    tt__messages *messages = j->messages;
    int rank = attempt_rank(j, attempt);
    if (rank < 0)
        return TT_OK;
    tt__stream stream = attempt->stream;
    attempt->stream = (tt__stream){.fd = -1};
    tt__log(TT_LOG_INFO, attempt->target ? "%s reaches %s at %s over %s%s" : "%s was called by %s from %s over %s%s",
            tt__rank_text(messages, messages->config.rank, NULL, own), tt__rank_text(messages, rank, NULL, other),
            attempt->where, tt__interface_of(stream.fd, interface, sizeof interface),
            stream.seal  ? ", sealed"
            : stream.ssl ? ", encrypted"
                         : "");
    j->missing--;
    if (!attempt->target)
        j->attempts.expected--;
    TT__TRY(tt__link_add_tcp(messages, rank, stream, attempt->where));
    tt__link_flush(messages->links[rank]); /* what TLS has yet to send, or has received already */
    tt__link_read(messages->links[rank]);
    return TT_OK;
}

/* Make links of finished attempts; free attempts that are finished, failed, late, or no longer needed. */
static tt_status settle_attempts(joining *j, int64_t now) {
    tt_status status = TT_OK;
    for (tt__attempt **at = &j->attempts.first; *at;) {
        tt__attempt *attempt = *at;
        bool needed = !attempt->target || !j->messages->links[attempt->target->rank];
        if (needed)
            tt__attempt_expire(attempt, now);
        if (needed && attempt->step < TT__ATTEMPT_DONE) {
            at = &attempt->next;
            continue;
        }
        if (needed && attempt->step == TT__ATTEMPT_DONE && !status)
            status = add_link(j, attempt);
        if (needed && attempt->step == TT__ATTEMPT_FAILED) {
            if (attempt->target)
                tt__target_note_failed(attempt);
            else
                tt__attempts_refuse(&j->attempts, attempt, attempt->why);
        }
        tt__attempts_drop(&j->attempts, at);
    }
    return status;
}

/* ---- the loop */

static bool reserve_pollfds(joining *j, size_t n) {
    if (n <= j->room)
        return true;
    struct pollfd *more = realloc(j->fds, 2 * n * sizeof *more);
    if (!more)
        return false;
    j->fds = more;
    j->room = 2 * n;
    return true;
}

/* Links that have ended count: they stay in the list, without a descriptor. */
static size_t count_pollfds(const joining *j) {
    size_t n = 1;
    for (const tt__attempt *a = j->attempts.first; a; a = a->next)
        n++;
    for (const tt__link *link = j->messages->active; link; link = link->next)
        n += link->tcp;
    return n;
}

/* Fill in the listener, all attempts, then all links. */
static size_t fill_pollfds(joining *j) {
    size_t n = 0;
    if (!reserve_pollfds(j, count_pollfds(j)))
        return 0;
    j->fds[n++] = (struct pollfd){.fd = j->messages->listener, .events = POLLIN};
    for (const tt__attempt *a = j->attempts.first; a; a = a->next)
        j->fds[n++] = (struct pollfd){.fd = a->stream.fd, .events = a->events};
    for (const tt__link *link = j->messages->active; link; link = link->next)
        if (link->tcp)
            j->fds[n++] = (struct pollfd){.fd = link->transport.stream.fd,
                                          .events = POLLIN | POLLRDHUP | (tt__link_wants_write(link) ? POLLOUT : 0)};
    return n;
}

static tt_status serve_ready(joining *j) {
    size_t i = 1;
    for (tt__attempt *a = j->attempts.first; a; a = a->next)
        if (j->fds[i++].revents)
            tt__attempt_continue(a);
    for (tt__link *link = j->messages->active; link; link = link->next)
        if (link->tcp && j->fds[i++].revents) {
            tt__link_read(link);
            if (tt__link_wants_write(link))
                tt__link_flush(link);
        }
    return j->fds[0].revents ? tt__attempts_accept(&j->attempts) : TT_OK;
}

/* Fail if a peer had finished joining and its group has failed since. Its error names the culprit; other ranks leave
 * only because of it. */
static tt_status joining_check_news(const tt__messages *messages) {
    for (const tt__link *link = messages->active; link; link = link->next)
        if (link->news && link->news->body.news != TT__NEWS_LEFT)
            return tt__fail((tt_status)link->news->body.status, "%s", link->news->text);
    return TT_OK;
}

/* Fail if joining has failed for a reason that no link shows. */
static tt_status check_elsewhere(joining *j, const char *const *addresses, int64_t now) {
    const tt__messages_config *config = &j->messages->config;
    tt__rankset absent = {0};
    if (!config->joining_look || now < j->look_ms)
        return TT_OK;
    j->look_ms = now + LOOK_MS;
    for (int r = 0; r < config->size; r++)
        if (r != config->rank && addresses[r] && !j->messages->links[r])
            tt__rankset_add(&absent, r);
    return config->joining_look(config->world, &absent);
}

/* Send heartbeats, and check that the others' arrive. The end of a link ends joining. */
static tt_status check_links(const joining *j, int64_t now) {
    tt__messages *messages = j->messages;
    char who[TT__RANK_TEXT_SIZE];
    tt__beats_send(messages, now);
    TT__TRY(joining_check_news(messages));
    TT__TRY(tt__net_interrupted());
    for (const tt__link *link = messages->active; link; link = link->next) {
        if (link->broken || (link->ended && link->status == TT_ERR_PEER))
            return tt__fail(TT_ERR_PEER, "%s hung up while joining", tt__rank_text(messages, link->peer, NULL, who));
        TT__TRY(tt__link_check(messages, link->peer));
    }
    return TT_OK;
}

/* Return how long to poll: until the next attempt, heartbeat or deadline. */
static int poll_timeout(const joining *j, int64_t now) {
    int64_t until = j->deadline_ms;
    if (j->messages->tcp_links && j->messages->beat_due_ms < until)
        until = j->messages->beat_due_ms;
    for (int i = 0; i < j->target_count; i++) {
        const tt__target *target = &j->targets[i];
        int64_t due_ms = j->messages->links[target->rank] ? -1 : tt__target_due_ms(target);
        if (due_ms >= 0 && due_ms < until)
            until = due_ms;
    }
    for (const tt__attempt *a = j->attempts.first; a; a = a->next)
        if (a->deadline_ms < until)
            until = a->deadline_ms;
    if (j->attempts.expected && j->expected_ms < until)
        until = j->expected_ms;
    return until <= now ? 0 : until - now > LOOK_MS ? LOOK_MS : (int)(until - now);
}

static tt_status check_time(const joining *j, const char *const *addresses, int64_t now) {
    const tt__messages *messages = j->messages;
    if (now < j->deadline_ms && (now < j->expected_ms || !j->attempts.expected))
        return TT_OK;
    for (int r = messages->config.rank + 1; r < messages->config.size; r++)
        if (addresses[r] && !messages->links[r])
            return fail_not_connected(j, r, now);
    const tt__target *target = j->targets; /* links are missing, but all expected peers have connected */
    while (messages->links[target->rank])
        target++;
    return fail_no_answer(j, target, now);
}

static tt_status join_all(joining *j, const char *const *addresses) {
    while (j->missing) {
        int64_t now = tt__now_ms();
        TT__TRY(start_attempts(j, now));
        TT__TRY(settle_attempts(j, now)); /* connect() may fail at once */
        size_t n = fill_pollfds(j);
        if (!n)
            return tt__fail(TT_ERR_MEMORY, "no memory to join %d ranks", j->missing);
        if (poll(j->fds, n, poll_timeout(j, now)) < 0 && errno != EINTR)
            return tt__fail_errno(TT_ERR_SYSTEM, errno, "poll");
        now = j->messages->now_ms = tt__now_ms();
        TT__TRY(serve_ready(j));
        TT__TRY(check_links(j, now));
        TT__TRY(check_elsewhere(j, addresses, now));
        TT__TRY(settle_attempts(j, now));
        if (j->missing)
            TT__TRY(check_time(j, addresses, now));
    }
    return TT_OK;
}

static tt_status plan_targets(joining *j, const char *const *addresses) {
    const tt__messages_config *config = &j->messages->config;
    j->targets = calloc((size_t)config->rank + 1, sizeof *j->targets);
    if (!j->targets)
        return tt__fail(TT_ERR_MEMORY, "no memory to join %d ranks", config->size);
    for (int r = 0; r < config->size; r++) {
        if (!addresses[r] || r == config->rank)
            continue;
        j->missing++;
        if (r > config->rank) {
            j->attempts.expected++;
            continue;
        }
        tt__target *target = &j->targets[j->target_count++];
        target->rank = r;
        TT__TRY(tt__addresses_read(addresses[r], target));
    }
    return TT_OK;
}

void tt__messages_stop_joining(tt__messages *messages) {
    while (messages->unfinished) {
        tt__attempt *attempt = messages->unfinished;
        messages->unfinished = attempt->next;
        tt__attempt_free(attempt);
    }
    if (messages->listener >= 0)
        close(messages->listener);
    messages->listener = -1;
}

tt_status tt__messages_open(tt__messages *messages, const char *const *addresses, int64_t deadline_ms) {
    joining j = {.messages = messages,
                 .start_ms = tt__now_ms(),
                 .deadline_ms = deadline_ms,
                 .expected_ms = tt__deadline_ms(EXPECTED_MS),
                 .look_ms = tt__deadline_ms(LOOK_MS)};
    tt_status status = tt__attempts_begin(&j.attempts, messages);
    if (!status)
        status = plan_targets(&j, addresses);
    if (!status)
        status = join_all(&j, addresses);
    if (status && j.attempts.starved) /* it may have been a rank */
        status = tt__fail_errno(TT_ERR_SYSTEM, EMFILE, "rank %d can't accept the calls of other ranks",
                                messages->config.rank);
    messages->unfinished = j.attempts.first;
    tt__attempts_end(&j.attempts);
    free(j.targets);
    free(j.fds);
    if (!status)
        tt__messages_stop_joining(messages);
    return !status && messages->tcp_links ? tt__messages_thread_start(messages) : status;
}
