/* Joining ranks by TCP.
 *
 * Higher ranks call lower ones, so each pair is joined once. A rank has several addresses, not all of which can be reached from everywhere: they
 * are tried one after the other, the next a quarter of a second after the last or as soon as that has failed, and the first connection on
 * which both have proved who they are is taken (RFC 8305). One loop serves all calls and callers; a stranger, or one that says nothing, is hung up
 * on and disturbs nobody.
 *
 * The same loop sends and hears heartbeats on the links that are there: who is through already must not take one that still waits for another
 * for frozen, and a rank that freezes is noticed while others join. */
#include "base/clock.h"
#include "base/error.h"
#include "comm/message/connect.h"
#include "net/refusals.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
    STAGGER_MS = 250,
    ROUNDS = 3,        /* over all addresses of a rank, before it counts as out of reach, */
    PAUSE_MS = 200,    /* with a pause between them, */
    TRY_MS = 5000,     /* and no new one after so long */
    CALLED_MS = 15000, /* within which all higher ranks have called: more than they need to find that they can't */
    CALLS_AT_ONCE = 64,
    STRANGERS = 256 /* callers at a time beside those that are expected, if there are four times as many descriptors */
};

/* All that is going on while joining. */
typedef struct joining {
    tt__messages *messages;
    tt__secret secret;
    int expected, missing; /* callers; links in all */
    tt__target *targets;
    int target_count;
    tt__attempt *attempts;
    int answering, strangers; /* attempts that others began; beside those expected there may be so many */
    tt__refusals refusals;
    struct pollfd *fds;
    size_t room;
    int64_t start_ms, deadline_ms, called_ms;
} joining;

/* ---- listening */

static int listen_at(int family, bool only_local, int *port) {
    struct sockaddr_storage address = {.ss_family = (sa_family_t)family};
    struct sockaddr_in *in4 = (struct sockaddr_in *)(void *)&address;
    struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)(void *)&address;
    socklen_t size = family == AF_INET ? sizeof *in4 : sizeof *in6;
    if (family == AF_INET)
        in4->sin_addr.s_addr = htonl(only_local ? INADDR_LOOPBACK : INADDR_ANY);
    else
        in6->sin6_addr = only_local ? in6addr_loopback : in6addr_any;
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &(int){only_local}, sizeof(int));
    if (bind(fd, (struct sockaddr *)&address, size) || listen(fd, SOMAXCONN) ||
        getsockname(fd, (struct sockaddr *)&address, &size)) {
        int errnum = errno;
        close(fd);
        errno = errnum;
        return -1;
    }
    *port = ntohs(family == AF_INET ? in4->sin_port : in6->sin6_port);
    return fd;
}

tt_status tt__messages_listen(tt__messages *messages, bool only_local, char addresses[TT__ADDRESSES_SIZE]) {
    /* Both families by one socket where the system has IPv6; loopback is IPv4's where there is that. */
    int families[2] = {only_local ? AF_INET : AF_INET6, only_local ? AF_INET6 : AF_INET}, port = 0, family = 0;
    TT__TRY(tt__random_bytes(messages->nonce, sizeof messages->nonce));
    for (int i = 0; i < 2 && messages->listener < 0; i++) {
        family = families[i];
        messages->listener = listen_at(family, only_local, &port);
    }
    if (messages->listener < 0)
        return tt__fail_errno(TT_ERR_NET, errno, "can't listen for the other ranks");
    TT__TRY(tt__addresses_describe(port, messages->nonce, family, only_local, messages->addresses));
    memcpy(addresses, messages->addresses, TT__ADDRESSES_SIZE);
    return TT_OK;
}

/* ---- texts */

/* "rank 3 (host b)" */
static const char *name_of(const tt__messages *messages, int rank, char text[160]) {
    const char *host = messages->config.hostnames ? messages->config.hostnames[rank] : NULL;
    snprintf(text, 160, host ? "rank %d (host %s)" : "rank %d", rank, host);
    return text;
}

/* "10.0.0.2:4711 (Connection refused), 10.1.0.2:4711 (no answer)" */
static const char *tried_of(const tt__target *target, char *text, size_t size) {
    size_t n = 0;
    snprintf(text, size, "no address");
    for (int i = 0; i < target->count && n < size; i++) {
        const tt__candidate *candidate = &target->candidates[i];
        const char *why = *candidate->why ? candidate->why : i < target->next ? "no answer" : "not yet";
        n += (size_t)snprintf(text + n, size - n, "%s%s (%s)", i ? ", " : "", candidate->text, why);
    }
    return text;
}

static tt_status fail_unreached(const tt__messages *messages, const tt__target *target) {
    char own[160], other[160], tried[1400];
    return tt__fail(target->worst ? target->worst : TT_ERR_NET,
                    "%s can't reach %s: tried %s. TT_SOCKET_IFNAME names the interfaces whose addresses are used",
                    name_of(messages, messages->config.rank, own), name_of(messages, target->rank, other),
                    tried_of(target, tried, sizeof tried));
}

static tt_status fail_unanswered(const joining *j, const tt__target *target, int64_t now) {
    char own[160], other[160], tried[1400];
    return tt__fail(TT_ERR_TIMEOUT,
                    "%s did not answer %s in the %lld ms that were left: it failed or is frozen, or the network "
                    "between is cut; tried %s",
                    name_of(j->messages, target->rank, other), name_of(j->messages, j->messages->config.rank, own),
                    (long long)(now - j->start_ms), tried_of(target, tried, sizeof tried));
}

static tt_status fail_uncalled(const joining *j, int rank, int64_t now) {
    const tt__messages *messages = j->messages;
    char own[160], other[160];
    const char *at = strrchr(messages->addresses, '/') + 1;
    return tt__fail(TT_ERR_NET,
                    "%s did not call %s in the %lld ms that were left: it failed, is frozen, or can't reach this host "
                    "at %.300s, port %d",
                    name_of(messages, rank, other), name_of(messages, messages->config.rank, own),
                    (long long)(now - j->start_ms), at, atoi(messages->addresses));
}

/* ---- calls */

/* An attempt at a target is over without success. */
static void note_failure(tt__attempt *attempt) {
    tt__target *target = attempt->target;
    tt__candidate *candidate = &target->candidates[attempt->candidate];
    snprintf(candidate->why, sizeof candidate->why, "%s", attempt->why);
    if (attempt->status == TT_ERR_AUTH || !target->worst)
        target->worst = attempt->status;
    target->trying--;
    target->next_ms = 0;
}

static tt_status start_next(joining *j, tt__target *target, int64_t now) {
    if (target->next == target->count) {
        if (target->trying)
            return TT_OK;
        if (++target->round == ROUNDS || !target->count || target->worst == TT_ERR_AUTH || now - j->start_ms >= TRY_MS)
            return fail_unreached(j->messages, target);
        target->next = 0;
        target->next_ms = now + PAUSE_MS;
        return TT_OK;
    }
    tt__attempt *attempt = tt__attempt_call(j->messages, &j->secret, target, target->next++);
    if (!attempt)
        return tt_last_status();
    attempt->following = j->attempts;
    j->attempts = attempt;
    target->trying++;
    target->next_ms = now + STAGGER_MS;
    return TT_OK;
}

static tt_status start_calls(joining *j, int64_t now) {
    for (int i = 0; i < j->target_count; i++) {
        tt__target *target = &j->targets[i];
        if (!j->messages->links[target->rank] && now >= target->next_ms)
            TT__TRY(start_next(j, target, now));
    }
    return TT_OK;
}

/* ---- callers */

static void refuse(joining *j, tt__attempt *attempt, const char *why) {
    char who[24];
    snprintf(who, sizeof who, "rank %d", j->messages->config.rank);
    tt__refusals_log(&j->refusals, who, "a connection from %s is refused: %s", attempt->where, why);
}

static void forget(joining *j, tt__attempt **at) {
    tt__attempt *attempt = *at;
    j->answering -= !attempt->target;
    *at = attempt->following;
    tt__attempt_free(attempt);
}

/* Hang up on the caller that has proved nothing for the longest time: the last of them in the list. False: there is none. */
static bool make_room(joining *j) {
    tt__attempt **oldest = NULL;
    for (tt__attempt **at = &j->attempts; *at; at = &(*at)->following)
        if (!(*at)->target && (*at)->step < TT__CHOOSING)
            oldest = at;
    if (!oldest)
        return false;
    refuse(j, *oldest, "too many connections that have not proved anything");
    forget(j, oldest);
    return true;
}

/* Errors of the caller's connection are its own matter; those of this process stay. */
static tt_status fail_accept(const joining *j, int errnum) {
    if (errnum != EMFILE && errnum != ENFILE && errnum != ENOBUFS && errnum != ENOMEM)
        return TT_OK;
    return tt__fail_errno(TT_ERR_NET, errnum, "rank %d can't accept the calls of other ranks",
                          j->messages->config.rank);
}

static tt_status take_calls(joining *j) {
    for (int i = 0; i < CALLS_AT_ONCE; i++) {
        struct sockaddr_storage from = {0};
        socklen_t size = sizeof from;
        int fd = accept4(j->messages->listener, (struct sockaddr *)&from, &size, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE) && make_room(j))
            continue;
        if (fd < 0)
            return fail_accept(j, errno);
        tt__net_unmap(&from);
        if (j->answering >= j->expected + j->strangers)
            make_room(j);
        tt__attempt *attempt = tt__attempt_answer(j->messages, &j->secret, fd, &from);
        if (!attempt)
            return tt_last_status();
        attempt->following = j->attempts;
        j->attempts = attempt;
        j->answering++;
    }
    return TT_OK;
}

/* Which rank an attempt has come to; -1: none that is expected. */
static int rank_of(const joining *j, const tt__attempt *attempt) {
    int rank = attempt->handshake.peer, own = j->messages->config.rank;
    if (attempt->target)
        return attempt->target->rank;
    bool expected = rank > own && rank < j->messages->config.size && !j->messages->links[rank];
    return expected ? rank : -1;
}

/* ---- all attempts */

static tt_status link_up(joining *j, tt__attempt *attempt) {
    char own[160], other[160], interface[32];
    tt__messages *messages = j->messages;
    int rank = rank_of(j, attempt);
    if (rank < 0)
        return TT_OK;
    tt__stream stream = attempt->stream;
    attempt->stream = (tt__stream){.fd = -1};
    tt__log(TT_LOG_INFO, attempt->target ? "%s reaches %s at %s over %s" : "%s was called by %s from %s over %s",
            name_of(messages, messages->config.rank, own), name_of(messages, rank, other), attempt->where,
            tt__interface_of(stream.fd, interface, sizeof interface));
    j->missing--;
    if (!attempt->target)
        j->expected--;
    TT__TRY(tt__link_add_tcp(messages, rank, stream, attempt->where));
    tt__link_flush(messages->links[rank]); /* what TLS has yet to send, or received already */
    tt__link_pump(messages->links[rank]);
    return TT_OK;
}

/* Link what is through; free what is through, broken, late, or not needed any more. */
static tt_status sort_out(joining *j, int64_t now) {
    tt_status status = TT_OK;
    for (tt__attempt **at = &j->attempts; *at;) {
        tt__attempt *attempt = *at;
        bool needed = !attempt->target || !j->messages->links[attempt->target->rank];
        if (needed && now >= attempt->deadline_ms && attempt->step < TT__LINKED) {
            snprintf(attempt->why, sizeof attempt->why, "no answer in time");
            attempt->status = attempt->step == TT__CONNECTING ? TT_ERR_NET : TT_ERR_PEER;
            attempt->step = TT__BROKEN;
        }
        if (needed && attempt->step < TT__LINKED) {
            at = &attempt->following;
            continue;
        }
        if (needed && attempt->step == TT__LINKED && !status)
            status = link_up(j, attempt);
        if (needed && attempt->step == TT__BROKEN) {
            if (attempt->target)
                note_failure(attempt);
            else
                refuse(j, attempt, attempt->why);
        }
        forget(j, at);
    }
    return status;
}

/* ---- the loop */

static bool room_for(joining *j, size_t n) {
    if (n <= j->room)
        return true;
    struct pollfd *more = realloc(j->fds, 2 * n * sizeof *more);
    if (!more)
        return false;
    j->fds = more;
    j->room = 2 * n;
    return true;
}

/* The listener, all attempts, then all links. */
static size_t gather(joining *j) {
    size_t n = 1;
    for (const tt__attempt *a = j->attempts; a; a = a->following)
        n++;
    if (!room_for(j, n + (size_t)j->messages->tcp_links))
        return 0;
    n = 0;
    j->fds[n++] = (struct pollfd){.fd = j->messages->listener, .events = POLLIN};
    for (const tt__attempt *a = j->attempts; a; a = a->following)
        j->fds[n++] = (struct pollfd){.fd = a->stream.fd, .events = a->events};
    for (const tt__link *link = j->messages->active; link; link = link->next)
        if (link->tcp)
            j->fds[n++] = (struct pollfd){.fd = link->stream.fd,
                                          .events = POLLIN | POLLRDHUP | (tt__link_wants_write(link) ? POLLOUT : 0)};
    return n;
}

static tt_status act(joining *j) {
    size_t i = 1;
    for (tt__attempt *a = j->attempts; a; a = a->following)
        if (j->fds[i++].revents)
            tt__attempt_go_on(a);
    for (tt__link *link = j->messages->active; link; link = link->next)
        if (link->tcp && j->fds[i++].revents) {
            tt__link_pump(link);
            if (tt__link_wants_write(link))
                tt__link_flush(link);
        }
    return j->fds[0].revents ? take_calls(j) : TT_OK;
}

/* Give signs of life, and look for those of the others. The end of a link is an end of joining. */
static tt_status check_links(const joining *j, int64_t now) {
    tt__messages *messages = j->messages;
    char who[160];
    tt__beats(messages, now);
    for (const tt__link *link = messages->active; link; link = link->next) {
        if (link->broken || (link->ended && link->status == TT_ERR_PEER))
            return tt__fail(TT_ERR_PEER, "%s hung up while joining", name_of(messages, link->peer, who));
        TT__TRY(tt__link_check(messages, link->peer));
    }
    return TT_OK;
}

/* Until the next call or heartbeat is due, or somebody's time is over. */
static int patience(const joining *j, int64_t now) {
    int64_t until = j->deadline_ms;
    if (j->messages->tcp_links && j->messages->beat_due_ms < until)
        until = j->messages->beat_due_ms;
    for (int i = 0; i < j->target_count; i++) {
        const tt__target *target = &j->targets[i];
        bool due = !j->messages->links[target->rank] && (target->next < target->count || !target->trying);
        if (due && target->next_ms < until)
            until = target->next_ms;
    }
    for (const tt__attempt *a = j->attempts; a; a = a->following)
        if (a->deadline_ms < until)
            until = a->deadline_ms;
    if (j->expected && j->called_ms < until)
        until = j->called_ms;
    return until <= now ? 0 : until - now > 1000 ? 1000 : (int)(until - now);
}

static tt_status check_time(const joining *j, const char *const *addresses, int64_t now) {
    const tt__messages *messages = j->messages;
    if (now < j->deadline_ms && (now < j->called_ms || !j->expected))
        return TT_OK;
    for (int r = messages->config.rank + 1; r < messages->config.size; r++)
        if (addresses[r] && !messages->links[r])
            return fail_uncalled(j, r, now);
    const tt__target *target = j->targets; /* links are missing, and all that are to call have called */
    while (messages->links[target->rank])
        target++;
    return fail_unanswered(j, target, now);
}

static tt_status run(joining *j, const char *const *addresses) {
    while (j->missing) {
        int64_t now = tt__now_ms();
        TT__TRY(start_calls(j, now));
        TT__TRY(sort_out(j, now)); /* a call may fail at once */
        size_t n = gather(j);
        if (!n)
            return tt__fail(TT_ERR_MEMORY, "no memory to join %d ranks", j->missing);
        if (poll(j->fds, n, patience(j, now)) < 0 && errno != EINTR)
            return tt__fail_errno(TT_ERR_SYSTEM, errno, "poll");
        now = j->messages->now_ms = tt__now_ms();
        TT__TRY(act(j));
        TT__TRY(check_links(j, now));
        TT__TRY(sort_out(j, now));
        if (j->missing)
            TT__TRY(check_time(j, addresses, now));
    }
    return TT_OK;
}

static tt_status plan(joining *j, const char *const *addresses) {
    const tt__messages_config *config = &j->messages->config;
    j->targets = calloc((size_t)config->rank + 1, sizeof *j->targets);
    if (!j->targets)
        return tt__fail(TT_ERR_MEMORY, "no memory to join %d ranks", config->size);
    for (int r = 0; r < config->size; r++) {
        if (!addresses[r] || r == config->rank)
            continue;
        j->missing++;
        if (r > config->rank) {
            j->expected++;
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
        messages->unfinished = attempt->following;
        tt__attempt_free(attempt);
    }
    if (messages->listener >= 0)
        close(messages->listener);
    messages->listener = -1;
}

/* As many as leave descriptors for all else. */
static int count_strangers(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur / 4 >= STRANGERS)
        return STRANGERS;
    return limit.rlim_cur > 16 ? (int)limit.rlim_cur / 4 : 4;
}

static void tell_refusals(joining *j) {
    char who[24];
    snprintf(who, sizeof who, "rank %d", j->messages->config.rank);
    tt__refusals_end(&j->refusals, who);
}

tt_status tt__messages_open(tt__messages *messages, const char *const *addresses, int64_t deadline_ms) {
    joining j = {.messages = messages,
                 .strangers = count_strangers(),
                 .start_ms = tt__now_ms(),
                 .deadline_ms = deadline_ms,
                 .called_ms = tt__deadline_ms(CALLED_MS)};
    TT__TRY(tt__secret_load(&j.secret));
    tt_status status = tt__tls_load(&messages->tls, &j.secret);
    if (!status)
        status = plan(&j, addresses);
    if (!status)
        status = run(&j, addresses);
    messages->unfinished = j.attempts;
    tell_refusals(&j);
    free(j.targets);
    free(j.fds);
    tt__secret_wipe(&j.secret);
    if (!status)
        tt__messages_stop_joining(messages);
    return !status && messages->tcp_links ? tt__thread_start(messages) : status;
}
