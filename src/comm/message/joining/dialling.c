/* TCP links that are made when they are first needed, between workers that come and go.
 *
 * Either worker may connect to the other, which is called a dial. As in joining.c, the addresses are tried one after
 * the other, and both sides prove the job secret. Then
 *
 *   worker that dials                                the other worker
 *   its id, name and host (tt__intro)  ---------->   may_link()?
 *                                      <----------   TAKEN: this connection is the link; or DECLINED, LOST, WAIT
 *
 * If both dial each other at the same time, both must choose the same connection:
 *   - the worker with the lower id answers TAKEN, and drops its own dial;
 *   - the one with the higher id answers WAIT until its own dial has ended: DECLINED if that has made the link, TAKEN
 *     if it has failed.
 *
 * Dialling runs in the thread that serves the engine's links; that watches an epoll with a timer for it. Functions
 * are called with the engine's lock held, unless they say otherwise. */
#include "comm/message/joining/joining.h"

#include "base/error.h"
#include "base/files/fd.h"
#include "base/machine/clock.h"
#include "base/process/fork.h"
#include "comm/message/message_parts.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum {
    EVENTS_AT_ONCE = 64,
    SOON_MS = 2,  /* until the worker, which has joined, takes packets */
    PAUSE_MS = 50 /* pause before accepting again, if there was no room or no descriptor */
};

/* A worker that this one wants to reach. */
typedef struct dial {
    struct dial *next;
    tt__target target;
    bool declined; /* the other side took another connection, which has not become a link here yet */
    int64_t start_ms, declined_ms;
} dial;

struct tt__dialling {
    tt__dialling_config config;
    tt__attempts attempts;
    dial *dials;
    int timer;
    bool stopped;
    bool listens;     /* the listener is watched; false: it will be from accept_ms on */
    bool logged_full; /* it was logged that there is no descriptor for callers */
    int64_t accept_ms;
    int64_t wait_ms;  /* when to tell callers that wait for an answer to wait longer */
    int64_t armed_ms; /* what the timer is set to; -1: nothing */
};

/* ---- dials */

static dial *find_dial(const tt__dialling *d, int peer) {
    dial *found = d->dials;
    while (found && found->target.rank != peer)
        found = found->next;
    return found;
}

/* Hang up on the attempts of a target. */
static void drop_attempts_of(tt__dialling *d, const tt__target *target) {
    for (tt__attempt **at = &d->attempts.first; *at;) {
        if ((*at)->target == target)
            tt__attempts_drop(&d->attempts, at);
        else
            at = &(*at)->next;
    }
}

static void drop_dial(tt__dialling *d, dial *over) {
    dial **at = &d->dials;
    while (*at != over)
        at = &(*at)->next;
    drop_attempts_of(d, &over->target);
    *at = over->next;
    free(over);
}

tt_status tt__dial(tt__dialling *d, int peer, const char *addresses) {
    if (find_dial(d, peer))
        return TT_OK;
    dial *new = calloc(1, sizeof *new);
    if (!new)
        return tt__fail(TT_ERR_MEMORY, "no memory to connect to another worker");
    new->target.rank = peer;
    tt_status status = tt__addresses_read(addresses, &new->target);
    if (status) {
        free(new);
        return status;
    }
    new->start_ms = tt__now_ms();
    new->next = d->dials;
    d->dials = new;
    d->armed_ms = 0;
    const struct itimerspec now = {.it_value.tv_nsec = 1};
    timerfd_settime(d->timer, 0, &now, NULL);
    return TT_OK;
}

/* Does no process listen any more at any of its addresses? */
static bool is_gone(const tt__target *target) {
    for (int i = 0; i < target->count; i++)
        if (!target->candidates[i].gone)
            return false;
    return target->count;
}

static void record_failure(const tt__messages *messages, const dial *failed) {
    const tt__target *target = &failed->target;
    char own[TT__RANK_TEXT_SIZE], other[TT__RANK_TEXT_SIZE], tried[TT__TRIED_SIZE];
    tt__rank_text(messages, target->rank, NULL, other);
    tt__rank_name(messages, messages->config.rank, own);
    tt__target_tried(target, tried);
    if (is_gone(target))
        tt__fail(TT_ERR_PEER, "%s is gone: it listens no more at its addresses; tried %s", other, tried);
    else if (target->worst == TT_ERR_PEER)
        tt__fail(TT_ERR_PEER, "%s did not answer %s for %lld ms: it is frozen, or the network between is cut; tried %s",
                 other, own, (long long)(tt__now_ms() - failed->start_ms), tried);
    else
        tt__fail(target->worst ? target->worst : TT_ERR_NET,
                 "%s can't reach %s: tried %s. TT_SOCKET_IFNAME names the interfaces whose addresses are used", own,
                 other, tried);
}

/* End a dial whose error is recorded. */
static void fail_dial(tt__dialling *d, dial *failed) {
    int peer = failed->target.rank;
    drop_dial(d, failed);
    d->config.failed(d->config.user, peer);
}

/* ---- attempts */

static tt__attempt *find_asked(const tt__dialling *d, int peer) {
    tt__attempt *a = d->attempts.first;
    while (a && (a->step != TT__ATTEMPT_ASKED || a->handshake.peer != peer))
        a = a->next;
    return a;
}

/* Make a link of an attempt that is done. On failure the connection is closed, which the other side will notice. */
static tt_status take_attempt(tt__dialling *d, tt__attempt *attempt) {
    tt__messages *messages = d->config.messages;
    int peer = attempt->target ? attempt->target->rank : attempt->handshake.peer;
    char own[TT__RANK_TEXT_SIZE], other[TT__RANK_TEXT_SIZE], interface[32];
    tt__attempt_unwatch(attempt);
    tt__stream stream = attempt->stream;
    attempt->stream = (tt__stream){.fd = -1};
    tt__log(TT_LOG_DEBUG, attempt->target ? "%s reaches %s at %s over %s" : "%s was called by %s from %s over %s",
            tt__rank_name(messages, messages->config.rank, own), tt__rank_text(messages, peer, NULL, other),
            attempt->where, tt__interface_of(stream.fd, interface, sizeof interface));
    TT__TRY(tt__link_add_tcp(messages, peer, stream, attempt->where));
    messages->now_ms = tt__now_ms();
    tt__link_flush(messages->links[peer]); /* what TLS has yet to send, or has received already */
    tt__link_read(messages->links[peer]);
    d->config.linked(d->config.user, peer);
    return TT_OK;
}

/* Return the answer to a worker that has asked; TT__ANSWER_WAIT: not yet. */
static char answer_to(tt__dialling *d, const tt__attempt *attempt) {
    const tt__messages *messages = d->config.messages;
    int peer = attempt->handshake.peer, own = messages->config.rank;
    if (peer < 0 || peer >= messages->config.size || peer == own)
        return TT__ANSWER_LOST;
    const tt__link *link = messages->links[peer];
    if (link)
        return link->ended ? TT__ANSWER_LOST : TT__ANSWER_DECLINED;
    const tt__attempt *first = find_asked(d, peer);
    if (first != attempt)
        return TT__ANSWER_DECLINED;
    if (!d->config.may_link(d->config.user, peer, &attempt->intro))
        return TT__ANSWER_LOST;
    if (!messages->packet_taker) /* its packets would be lost */
        return TT__ANSWER_WAIT;
    const dial *own_dial = find_dial(d, peer);
    return own_dial && !own_dial->declined && own > peer ? TT__ANSWER_WAIT : TT__ANSWER_TAKEN;
}

static void answer_asked(tt__dialling *d, tt__attempt *attempt, bool says_wait) {
    char answer = answer_to(d, attempt);
    if (answer != TT__ANSWER_WAIT || says_wait)
        tt__attempt_answer(attempt, answer);
    if (answer == TT__ANSWER_WAIT)
        attempt->deadline_ms = tt__deadline_ms(d->attempts.patience_ms);
}

/* Deal with the failure of an attempt at a dial's target. Returns whether the dial must fail now, with the recorded
 * error. */
static bool note_dial_failure(tt__dialling *d, dial *tried, const tt__attempt *attempt) {
    const tt__messages *messages = d->config.messages;
    char own[TT__RANK_TEXT_SIZE], other[TT__RANK_TEXT_SIZE];
    bool was_chosen = tried->target.chosen == attempt;
    if (attempt->answer == TT__ANSWER_DECLINED) {
        tried->declined = true;
        tried->declined_ms = tt__deadline_ms(d->attempts.patience_ms);
        return false;
    }
    tt__target_note_failed(attempt);
    if (attempt->answer == TT__ANSWER_LOST) {
        tt__rank_text(messages, tried->target.rank, attempt->where, other);
        tt__fail(TT_ERR_PEER, "%s has given up %s: their connection has ended before", other,
                 tt__rank_name(messages, messages->config.rank, own));
        return true;
    }
    /* Without an answer to its question this side can't know whether the other has taken the connection. */
    if (was_chosen && attempt->status == TT_ERR_PEER) {
        record_failure(messages, tried);
        return true;
    }
    return false;
}

static dial *dial_of(const tt__dialling *d, const tt__attempt *attempt) {
    return attempt->target ? find_dial(d, attempt->target->rank) : NULL;
}

/* Deal with the first attempt that has ended. Returns whether there was one. */
static bool settle_one(tt__dialling *d) {
    tt__attempt **at = &d->attempts.first;
    while (*at && (*at)->step < TT__ATTEMPT_DONE)
        at = &(*at)->next;
    tt__attempt *ended = *at;
    if (!ended)
        return false;
    dial *own_dial = dial_of(d, ended);
    bool taken = ended->step == TT__ATTEMPT_DONE, over = false;
    int peer = own_dial ? own_dial->target.rank : ended->handshake.peer;
    if (taken)
        over = take_attempt(d, ended) != TT_OK;
    else if (own_dial)
        over = note_dial_failure(d, own_dial, ended);
    else if (ended->handshake.state != TT__HANDSHAKE_DONE)
        tt__attempts_refuse(&d->attempts, ended, ended->why);
    tt__attempts_drop(&d->attempts, at);
    own_dial = taken ? find_dial(d, peer) : own_dial;
    if (own_dial && (taken || over))
        drop_dial(d, own_dial);
    else if (own_dial && own_dial->declined)
        drop_attempts_of(d, &own_dial->target);
    if (over)
        d->config.failed(d->config.user, peer);
    return true;
}

/* Continue a dial, which may end here. */
static void continue_dial(tt__dialling *d, dial *tried, int64_t now) {
    char other[TT__RANK_TEXT_SIZE];
    bool given_up = false;
    tt_status status = TT_OK;
    if (tried->declined && now >= tried->declined_ms) {
        given_up = true;
        tt__fail(TT_ERR_PEER, "%s says that there is another connection to this worker, but there is none",
                 tt__rank_text(d->config.messages, tried->target.rank, NULL, other));
    } else if (!tried->declined) {
        status = tt__target_try(&d->attempts, &tried->target, tried->start_ms, now, &given_up);
        if (given_up)
            record_failure(d->config.messages, tried);
    }
    if (!given_up && !status)
        return;
    tt__attempt *asked = find_asked(d, tried->target.rank);
    if (!asked) {
        fail_dial(d, tried);
        return;
    }
    tried->declined = true; /* the other side's connection becomes the link */
    tried->declined_ms = now + d->attempts.patience_ms;
    drop_attempts_of(d, &tried->target);
}

static void continue_dials(tt__dialling *d, int64_t now) {
    for (dial *tried = d->dials, *next; tried; tried = next) {
        next = tried->next;
        continue_dial(d, tried, now);
    }
}

/* ---- the descriptors */

static void watch_listener(tt__dialling *d, bool on) {
    struct epoll_event event = {.events = on ? EPOLLIN : 0, .data.ptr = d};
    if (on != d->listens && !epoll_ctl(d->attempts.epoll, EPOLL_CTL_MOD, d->config.messages->listener, &event))
        d->listens = on;
}

static void accept_dialling(tt__dialling *d, int64_t now) {
    tt_status status = tt__attempts_accept(&d->attempts);
    if (!status && !d->attempts.full && !d->attempts.starved)
        return;
    if (status || d->attempts.starved) {
        if (!d->logged_full)
            tt__log(TT_LOG_WARNING, "%s (ulimit -n); those that are connected are served, others are turned away",
                    status ? tt_last_error() : "this process has no descriptors left for other workers");
        d->logged_full = true;
        d->attempts.starved = false;
    }
    watch_listener(d, false);
    d->accept_ms = now + PAUSE_MS;
}

static int64_t earlier_of(int64_t a, int64_t b) { return b < 0 ? a : a < 0 || b < a ? b : a; }

/* Return when something is due without an event; -1: nothing is. */
static int64_t next_due_ms(const tt__dialling *d) {
    int64_t due = d->listens ? -1 : d->accept_ms;
    for (const tt__attempt *a = d->attempts.first; a; a = a->next)
        due = earlier_of(due, a->step == TT__ATTEMPT_ASKED ? earlier_of(a->deadline_ms, d->wait_ms) : a->deadline_ms);
    for (const dial *t = d->dials; t; t = t->next)
        due = earlier_of(due, t->declined ? t->declined_ms : tt__target_due_ms(&t->target));
    return due;
}

static void arm_timer(tt__dialling *d) {
    int64_t due = next_due_ms(d);
    if (due == d->armed_ms)
        return;
    struct itimerspec at = {.it_value = {.tv_sec = due / 1000, .tv_nsec = due % 1000 * 1000000}};
    if (due < 0)
        at.it_value = (struct timespec){0};
    else if (!due)
        at.it_value.tv_nsec = 1;
    if (!timerfd_settime(d->timer, TFD_TIMER_ABSTIME, &at, NULL))
        d->armed_ms = due;
}

/* Answer workers that ask, up to the first that gets a link: the other answers depend on it. */
static void answer_some(tt__dialling *d, int64_t now) {
    bool says_wait = now >= d->wait_ms;
    if (says_wait)
        d->wait_ms = now + (d->config.messages->packet_taker ? d->attempts.patience_ms / 4 : SOON_MS);
    for (tt__attempt *a = d->attempts.first; a; a = a->next)
        if (a->step == TT__ATTEMPT_ASKED) {
            answer_asked(d, a, says_wait);
            if (a->step == TT__ATTEMPT_DONE)
                return;
        }
}

/* Act on the state of attempts and dials, then set epoll and the timer to what is waited for now. */
static void settle_dialling(tt__dialling *d, int64_t now) {
    for (tt__attempt *a = d->attempts.first; a; a = a->next)
        tt__attempt_expire(a, now);
    do {
        while (settle_one(d))
            ;
        continue_dials(d, now);
        answer_some(d, now);
        for (tt__attempt *a = d->attempts.first; a; a = a->next)
            tt__attempt_watch(a);
    } while (settle_one(d));
    if (!d->listens && now >= d->accept_ms)
        watch_listener(d, true);
    arm_timer(d);
}

static bool serve_dialling(void *user) {
    tt__dialling *d = user;
    struct epoll_event events[EVENTS_AT_ONCE];
    tt__saved_error saved;
    if (d->stopped)
        return false;
    tt__error_save(&saved);
    int n = epoll_wait(d->attempts.epoll, events, EVENTS_AT_ONCE, 0);
    int64_t now = tt__now_ms();
    bool calls = false;
    for (int i = 0; i < n; i++) {
        uint64_t count;
        if (events[i].data.ptr == d)
            calls = true;
        else if (events[i].data.ptr)
            tt__attempt_continue(events[i].data.ptr);
        else if (read(d->timer, &count, sizeof count) > 0)
            d->armed_ms = -1;
    }
    if (calls) /* last, since an answer may end an attempt */
        accept_dialling(d, now);
    settle_dialling(d, now);
    tt__error_restore(&saved);
    return n > 0;
}

/* ---- life */

static tt_status dialling_descriptors(tt__dialling *d) {
    struct epoll_event calls = {.events = EPOLLIN, .data.ptr = d}, times = {.events = EPOLLIN, .data.ptr = NULL};
    d->attempts.epoll = tt__fd(epoll_create1(EPOLL_CLOEXEC));
    d->timer = tt__fd(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    d->attempts.spare = tt__fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (d->attempts.epoll < 0 || d->timer < 0 || d->attempts.spare < 0 ||
        epoll_ctl(d->attempts.epoll, EPOLL_CTL_ADD, d->config.messages->listener, &calls) ||
        epoll_ctl(d->attempts.epoll, EPOLL_CTL_ADD, d->timer, &times))
        return tt__fail_errno(TT_ERR_SYSTEM, errno, "can't watch for the calls of other workers");
    d->listens = true;
    tt__fork_fd_drop(d->config.messages->listener);
    return TT_OK;
}

tt_status tt__dialling_begin(tt__dialling **out, const tt__dialling_config *config) {
    tt__dialling *d = *out = calloc(1, sizeof *d);
    if (!d)
        return tt__fail(TT_ERR_MEMORY, "no memory for the connections of a worker");
    d->config = *config;
    d->timer = d->armed_ms = -1;
    tt_status status = tt__attempts_begin(&d->attempts, config->messages);
    d->attempts.intro = config->intro;
    d->attempts.patience_ms = config->messages->config.heartbeat_ms * 3 / 4;
    if (!status)
        status = dialling_descriptors(d);
    if (!status)
        status = tt__messages_watch(config->messages, d->attempts.epoll, serve_dialling, d);
    return status;
}

void tt__dialling_stop(tt__dialling *d, bool quietly) {
    d->stopped = true;
    for (tt__attempt *a = d->attempts.first; a && quietly; a = a->next)
        a->watched = 0; /* the epoll is the parent's, too */
    tt__fork_fd_forget(d->config.messages->listener);
    while (d->attempts.first)
        tt__attempts_drop(&d->attempts, &d->attempts.first);
    while (d->dials)
        drop_dial(d, d->dials);
    tt__messages_stop_joining(d->config.messages); /* no worker may connect any more */
    tt__attempts_end(&d->attempts);
}

void tt__dialling_free(tt__dialling *d) {
    if (!d)
        return;
    if (d->attempts.epoll >= 0)
        close(d->attempts.epoll);
    if (d->timer >= 0)
        close(d->timer);
    if (d->attempts.spare >= 0)
        close(d->attempts.spare);
    free(d);
}
