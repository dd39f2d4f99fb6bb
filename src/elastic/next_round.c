/* The next round of the job, as this process's launcher tells it. */
#include "elastic/elastic.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "base/text/plain_text.h"

#include <stdio.h>
#include <string.h>

enum { SLICE_MS = 200 }; /* a wait is cut into these: a signal may come just before poll() */

static tt_status fail_round(const tt__job_round *told, const char *what, int got) {
    return tt__fail(TT_ERR_PROTOCOL, "round %d as the launcher tells it: expected %s, got %d", told->number, what, got);
}

tt_status tt__round_read(tt__round_news *news, const tt__job_round *told) {
    *news = (tt__round_news){{.round = told->number, .rank = told->rank, .world = told->world, .port = told->port}, ""};
    if (told->world < 1)
        return fail_round(told, "a number of ranks", told->world);
    if (told->rank < -1 || told->rank >= told->world)
        return fail_round(told, "this rank's number there", told->rank);
    if (told->port < 1 || told->port > 65535)
        return fail_round(told, "the port of its store", told->port);
    size_t host = strnlen(told->host, sizeof told->host);
    if (!host || host == sizeof told->host)
        return fail_round(told, "the address of its store, in 1 to 255 bytes", (int)host);
    memcpy(news->seat.host, told->host, host);
    memcpy(news->reason, told->reason, sizeof news->reason - 1);
    news->reason[strcspn(news->reason, "\n")] = '\0';
    tt__make_plain_name(news->reason);
    return TT_OK;
}

static tt_status await_round(int socket, tt__job_packet *packet, int round, int64_t wait_ms,
                             const tt__stop_wish *stop) {
    int64_t deadline_ms = tt__deadline_ms(wait_ms);
    for (;;) {
        int left = tt__left_ms(deadline_ms);
        int got = tt__standing_record_receive(socket, packet, left < SLICE_MS ? left : SLICE_MS);
        if (got < 0)
            return tt__job_fail_ended(packet, "its launcher");
        bool answers = got && (packet->kind == TT__JOB_ROUND || packet->kind == TT__JOB_NO_ROUND);
        if (answers && packet->round.number > round)
            return TT_OK;
        if (tt__stop_wish_signal(stop))
            return tt__fail(TT_ERR_ABORTED, "signal %d came", tt__stop_wish_signal(stop));
        if (!left && !got)
            return TT_ERR_TIMEOUT;
    }
}

/* Fail when the launcher says that no round follows: with the failure for which this rank wanted one. */
static tt_status fail_without_round(const tt__job_round *told, const tt__saved_error *cause) {
    char why[sizeof told->reason + 1] = "";
    memcpy(why, told->reason, sizeof told->reason);
    tt__make_plain_name(why);
    return tt__fail(cause->status ? cause->status : TT_ERR_PEER, "%.1500s; no round follows: %s",
                    *cause->text ? cause->text : "a call failed", why);
}

tt_status tt__round_await(int socket, tt__round_news *news, int round, int64_t wait_ms, const tt__stop_wish *stop) {
    tt__job_packet packet = {0};
    tt__saved_error cause;
    tt__error_save(&cause);
    tt_status status = await_round(socket, &packet, round, wait_ms, stop);
    if (status == TT_ERR_TIMEOUT)
        return tt__fail(status,
                        "the launcher announced no round within %lld ms in which the lost rank would be replaced: "
                        "start the job by a `tutti run` that does so (docs/elastic.md), or again from its last "
                        "checkpoint; before this: %s",
                        (long long)wait_ms, cause.text);
    if (status)
        return tt__fail_prefix("while this rank waited for the job's next round, after %s",
                               *cause.text ? cause.text : "a call for it");
    if (packet.kind == TT__JOB_NO_ROUND)
        return fail_without_round(&packet.round, &cause);
    TT__TRY(tt__round_read(news, &packet.round));
    tt__error_restore(&cause);
    return TT_OK;
}

bool tt__round_wanted(int socket, int round) {
    tt__job_packet packet = {0};
    bool wanted = false;
    while (socket >= 0 && tt__standing_record_receive(socket, &packet, 0) > 0)
        wanted = wanted || (packet.kind == TT__JOB_WANTED && packet.round.number > round);
    return wanted;
}
