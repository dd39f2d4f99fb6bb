/* A connection that becomes a link: TCP, TLS if it is used, the handshake. Then the connecting side, which may have
 * opened several connections to one rank, says whether it takes this one. */
#include "base/error.h"
#include "base/files/fd.h"
#include "base/machine/clock.h"
#include "comm/message/joining/joining.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* Time limits: for connecting to one address; for a peer that has connected to prove who it is. */
enum { CONNECT_MS = 10000, ACCEPT_MS = 5000 };

static const char CHOSEN = 'T', ASKS = 'W';

static void fail_attempt(tt__attempt *attempt, tt_status status, const char *why) {
    attempt->step = TT__ATTEMPT_FAILED;
    attempt->status = status;
    snprintf(attempt->why, sizeof attempt->why, "%s", why);
}

static void begin_handshake(tt__attempt *attempt) {
    tt__handshake_role role = attempt->handshake.role;
    attempt->step = TT__ATTEMPT_HANDSHAKE;
    if (tt__stream_channel(&attempt->stream, role.channel) || tt__handshake_begin(&attempt->handshake, &role))
        fail_attempt(attempt, tt_last_status(), tt_last_error());
}

static void open_stream(tt__attempt *attempt, int fd, tt__tls *tls, bool server) {
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (tt__stream_open(&attempt->stream, fd, tls, server))
        fail_attempt(attempt, tt_last_status(), tt_last_error());
}

static tt__attempt *attempt_new(const tt__messages *messages, const tt__secret *secret, tt__target *target,
                                int64_t ms) {
    tt__attempt *attempt = calloc(1, sizeof *attempt);
    if (!attempt)
        return tt__fail_null(TT_ERR_MEMORY, "no memory for a connection");
    attempt->stream.fd = -1;
    attempt->epoll = -1;
    attempt->target = target;
    attempt->began_ms = tt__now_ms();
    attempt->deadline_ms = tt__deadline_ms(ms);
    attempt->handshake.role = (tt__handshake_role){.server = !target,
                                                   .purpose = TT__PURPOSE_TRANSPORT,
                                                   .sealing = messages->seals ? TT__SEALING_RECORDS : TT__SEALING_NONE,
                                                   .secret = secret,
                                                   .rank = messages->config.rank,
                                                   .peer = target ? target->rank : TT__ANY_RANK};
    memcpy(attempt->handshake.role.job, target ? target->job : messages->nonce, TT__JOB_SIZE);
    return attempt;
}

tt__attempt *tt__attempt_connect(const tt__messages *messages, const tt__secret *secret, tt__target *target,
                                 int candidate) {
    const tt__candidate *to = &target->candidates[candidate];
    tt__attempt *attempt = attempt_new(messages, secret, target, CONNECT_MS);
    if (!attempt)
        return NULL;
    attempt->candidate = candidate;
    attempt->events = POLLOUT;
    snprintf(attempt->where, sizeof attempt->where, "%s", to->text);
    int fd = tt__fd(socket(to->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd < 0)
        fail_attempt(attempt, TT_ERR_NET, strerror(errno));
    else if (connect(fd, (const struct sockaddr *)&to->address, to->size) && errno != EINPROGRESS && errno != EINTR) {
        attempt->gone = errno == ECONNREFUSED;
        fail_attempt(attempt, TT_ERR_NET, strerror(errno));
    }
    if (fd >= 0 && attempt->step == TT__ATTEMPT_FAILED)
        attempt->stream.fd = fd; /* closed by tt__attempt_free() */
    else if (fd >= 0)
        open_stream(attempt, fd, messages->tls, false);
    return attempt;
}

tt__attempt *tt__attempt_accept(const tt__messages *messages, const tt__secret *secret, int fd,
                                const struct sockaddr_storage *from) {
    tt__attempt *attempt = attempt_new(messages, secret, NULL, ACCEPT_MS);
    if (!attempt) {
        close(fd);
        return NULL;
    }
    attempt->step = TT__ATTEMPT_TLS;
    attempt->events = POLLIN;
    tt__net_address_text((const struct sockaddr *)from, attempt->where);
    open_stream(attempt, fd, messages->tls, true);
    return attempt;
}

/* Must the attempt wait after this result? Sets what to poll for; a failure is recorded in the attempt. */
static bool must_wait(tt__attempt *attempt, tt__io io) {
    if (io == TT__IO_WANT_READ || io == TT__IO_WANT_WRITE)
        attempt->events = io == TT__IO_WANT_READ ? POLLIN : POLLOUT;
    else if (io == TT__IO_END)
        fail_attempt(attempt, TT_ERR_NET, "the other side hung up");
    else if (io == TT__IO_FAILED)
        fail_attempt(attempt, tt_last_status(), tt_last_error());
    return io != TT__IO_DONE;
}

static bool continue_connect(tt__attempt *attempt) {
    int errnum = 0;
    socklen_t size = sizeof errnum;
    if (getsockopt(attempt->stream.fd, SOL_SOCKET, SO_ERROR, &errnum, &size))
        errnum = errno;
    attempt->gone = errnum == ECONNREFUSED;
    if (errnum)
        fail_attempt(attempt, TT_ERR_NET, strerror(errnum));
    else
        attempt->step = TT__ATTEMPT_TLS;
    return !errnum;
}

static bool continue_tls(tt__attempt *attempt) {
    if (must_wait(attempt, tt__stream_begin(&attempt->stream)))
        return false;
    begin_handshake(attempt);
    return attempt->step == TT__ATTEMPT_HANDSHAKE;
}

/* Send the handshake's messages; false: not all could be written. */
static bool send_handshake(tt__attempt *attempt) {
    tt__handshake *handshake = &attempt->handshake;
    while (handshake->out_size) {
        size_t n = 0;
        const struct iovec part = {handshake->out, handshake->out_size};
        if (must_wait(attempt, tt__stream_write(&attempt->stream, &part, 1, &n)))
            return false;
        tt__handshake_sent(handshake, n);
    }
    return !must_wait(attempt, tt__stream_flush(&attempt->stream));
}

static bool begin_choice(tt__attempt *attempt) {
    attempt->step = TT__ATTEMPT_CHOOSING;
    if (attempt->handshake.role.sealing && tt__stream_seal(&attempt->stream, &attempt->handshake))
        fail_attempt(attempt, tt_last_status(), tt_last_error());
    return attempt->step == TT__ATTEMPT_CHOOSING;
}

static bool continue_handshake(tt__attempt *attempt) {
    tt__handshake *handshake = &attempt->handshake;
    uint8_t data[TT__HANDSHAKE_MESSAGE_MAX];
    while (send_handshake(attempt)) {
        size_t n = 0;
        if (handshake->state == TT__HANDSHAKE_DONE)
            return begin_choice(attempt);
        if (handshake->state == TT__HANDSHAKE_FAILED) {
            attempt->gone = handshake->refusal == TT__REFUSED_JOB;
            fail_attempt(attempt, tt__handshake_error(handshake), tt__handshake_reason(handshake));
            return false;
        }
        if (must_wait(attempt, tt__stream_read(&attempt->stream, data, tt__handshake_wants(handshake), &n)))
            return false;
        tt__handshake_feed(handshake, data, n);
    }
    return false;
}

/* ---- workers that come and go: the caller says who it is, and waits for an answer */

static bool put_question(tt__attempt *attempt) {
    char byte = ASKS;
    while (attempt->moved < 1 + sizeof *attempt->says) {
        size_t n = 0, said = attempt->moved ? attempt->moved - 1 : 0;
        struct iovec parts[2] = {{&byte, 1}, {(char *)(uintptr_t)attempt->says + said, sizeof *attempt->says - said}};
        bool begun = attempt->moved;
        if (must_wait(attempt, tt__stream_write(&attempt->stream, parts + begun, 2 - begun, &n)))
            return false;
        attempt->moved += n;
    }
    return !must_wait(attempt, tt__stream_flush(&attempt->stream));
}

static void send_question(tt__attempt *attempt) {
    if (attempt->target->chosen && attempt->target->chosen != attempt) {
        fail_attempt(attempt, TT_ERR_NET, "another connection was faster");
        return;
    }
    attempt->target->chosen = attempt;
    if (!put_question(attempt))
        return;
    attempt->step = TT__ATTEMPT_ANSWER;
    attempt->events = POLLIN;
}

static void take_question(tt__attempt *attempt) {
    while (attempt->moved < 1 + sizeof attempt->intro) {
        size_t n = 0, heard = attempt->moved ? attempt->moved - 1 : 0;
        char byte = ASKS;
        tt__io io = attempt->moved ? tt__stream_read(&attempt->stream, (char *)&attempt->intro + heard,
                                                     sizeof attempt->intro - heard, &n)
                                   : tt__stream_read(&attempt->stream, &byte, 1, &n);
        if (must_wait(attempt, io))
            return;
        if (byte != ASKS) {
            fail_attempt(attempt, TT_ERR_PROTOCOL, "it does not speak Tutti's protocol");
            return;
        }
        attempt->moved += n;
    }
    attempt->intro.name[TT__INTRO_NAME - 1] = attempt->intro.host[TT__INTRO_HOST - 1] = '\0';
    attempt->step = TT__ATTEMPT_ASKED;
    attempt->events = POLLIN;
}

/* Nothing may come before the answer; most likely the other side hangs up. */
static void continue_asked(tt__attempt *attempt) {
    char byte;
    size_t n = 0;
    if (!must_wait(attempt, tt__stream_read(&attempt->stream, &byte, 1, &n)))
        fail_attempt(attempt, TT_ERR_PROTOCOL, "it does not wait for an answer");
}

static void take_attempt_answer(tt__attempt *attempt) {
    char byte = 0;
    size_t n = 0;
    while (!must_wait(attempt, tt__stream_read(&attempt->stream, &byte, 1, &n))) {
        attempt->deadline_ms = tt__deadline_ms(attempt->patience_ms);
        if (byte == TT__ANSWER_WAIT)
            continue;
        attempt->answer = byte;
        attempt->step = TT__ATTEMPT_DONE;
        if (byte == TT__ANSWER_LOST)
            fail_attempt(attempt, TT_ERR_PEER, "it has given this worker up");
        else if (byte == TT__ANSWER_DECLINED)
            fail_attempt(attempt, TT_ERR_NET, "it has another connection");
        else if (byte != TT__ANSWER_TAKEN)
            fail_attempt(attempt, TT_ERR_PROTOCOL, "it does not speak Tutti's protocol");
        return;
    }
}

void tt__attempt_answer(tt__attempt *attempt, char answer) {
    size_t n = 0;
    const struct iovec part = {&answer, 1};
    tt__io io = tt__stream_write(&attempt->stream, &part, 1, &n);
    if (io == TT__IO_DONE)
        io = tt__stream_flush(&attempt->stream);
    if (io != TT__IO_DONE) /* a byte always has room, unless the connection is broken */
        fail_attempt(attempt, TT_ERR_NET, "the other side hung up");
    else if (answer == TT__ANSWER_TAKEN)
        attempt->step = TT__ATTEMPT_DONE;
    else if (answer != TT__ANSWER_WAIT)
        fail_attempt(attempt, TT_ERR_STATE,
                     answer == TT__ANSWER_LOST ? "it was lost before" : "there is a link already");
}

static void continue_choice(tt__attempt *attempt) {
    if (attempt->patience_ms) {
        if (attempt->target)
            send_question(attempt);
        else
            take_question(attempt);
        return;
    }
    char byte = CHOSEN;
    size_t n = 0;
    const struct iovec part = {&byte, 1};
    if (must_wait(attempt, attempt->target ? tt__stream_write(&attempt->stream, &part, 1, &n)
                                           : tt__stream_read(&attempt->stream, &byte, 1, &n)))
        return;
    if (byte == CHOSEN)
        attempt->step = TT__ATTEMPT_DONE;
    else
        fail_attempt(attempt, TT_ERR_PROTOCOL, "it does not speak Tutti's protocol");
}

void tt__attempt_continue(tt__attempt *attempt) {
    if (attempt->step == TT__ATTEMPT_CONNECTING && !continue_connect(attempt))
        return;
    if (attempt->step == TT__ATTEMPT_TLS && !continue_tls(attempt))
        return;
    if (attempt->step == TT__ATTEMPT_HANDSHAKE && !continue_handshake(attempt))
        return;
    if (attempt->step == TT__ATTEMPT_CHOOSING)
        continue_choice(attempt);
    if (attempt->step == TT__ATTEMPT_ASKED)
        continue_asked(attempt);
    if (attempt->step == TT__ATTEMPT_ANSWER)
        take_attempt_answer(attempt);
}

bool tt__attempt_watch(tt__attempt *attempt) {
    if (attempt->epoll < 0 || attempt->watched == attempt->events || attempt->step >= TT__ATTEMPT_DONE)
        return true;
    struct epoll_event event = {.events = attempt->events & POLLIN ? EPOLLIN : EPOLLOUT, .data.ptr = attempt};
    int how = attempt->watched ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    if (epoll_ctl(attempt->epoll, how, attempt->stream.fd, &event)) {
        fail_attempt(attempt, TT_ERR_SYSTEM, strerror(errno));
        return false;
    }
    attempt->watched = attempt->events;
    return true;
}

/* Closing the socket is not enough: if a forked child has it open, epoll keeps watching it. */
void tt__attempt_unwatch(tt__attempt *attempt) {
    if (attempt->watched)
        epoll_ctl(attempt->epoll, EPOLL_CTL_DEL, attempt->stream.fd, NULL);
    attempt->watched = 0;
}

void tt__attempt_free(tt__attempt *attempt) {
    if (!attempt)
        return;
    tt__attempt_unwatch(attempt);
    tt__stream_close(&attempt->stream);
    free(attempt);
}
