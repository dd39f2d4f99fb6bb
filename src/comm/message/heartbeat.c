/* Beats show that a rank lives, what it waits for, and the difference of two hosts' clocks. With t1 when a beat is
 * sent, t2 when it is read, and t3, t4 the same of a beat in the other direction, the clocks differ by ((t2 - t1) + (t3
 * - t4)) / 2, exact to half the round trip's asymmetry. The fastest exchange counts. */
#include "base/machine/clock.h"
#include "comm/message/message_parts.h"
#include "comm/record/seqlock.h"

/* This rank's waiting is announced when it has lasted MOMENT_MS, and again every WAITS_MS. */
enum { MOMENT_MS = 80, WAITS_MS = 200 };

static void fill_waiting(const tt__waiting *waiting, tt__beat *beat) {
    if (!waiting)
        return;
    tt__waiting copy;
    bool whole = tt__seqlock_try_read(&waiting->version, (void *)&copy, (const void *)waiting, sizeof copy);
    beat->group = copy.group;
    beat->seq = copy.seq;
    beat->whom = copy.whom;
    beat->record = copy.record;
    beat->word = copy.word;
    beat->waits = whole && copy.since != 0;
}

static void send_beat(tt__link *link) {
    tt__beat beat = {.sent_ns = tt__realtime_ns(), .echo_ns = link->beat.sent_ns, .echo_at_ns = link->beat_at_ns};
    fill_waiting(link->messages->config.waiting, &beat);
    tt__frame frame = {.type = TT__FRAME_BEAT, .bytes = sizeof beat};
    tt__send_frame(link, &frame, &beat, sizeof beat);
}

void tt__beats_check_clock(tt__messages *messages, int64_t now) {
    if (messages->checked_ms && now - messages->checked_ms > messages->config.heartbeat_ms / 2)
        for (tt__link *link = messages->active; link; link = link->next)
            link->received_ms = now;
    messages->checked_ms = now;
}

static void send_beats(tt__messages *messages, int64_t now_ms) {
    for (tt__link *link = messages->active; link; link = link->next)
        if (link->tcp && !link->ended)
            send_beat(link);
    messages->beat_due_ms = now_ms + (messages->config.heartbeat_ms + 3) / 4;
}

int64_t tt__beats_send(tt__messages *messages, int64_t now_ms) {
    tt__beats_check_clock(messages, now_ms);
    if (now_ms < messages->beat_due_ms)
        return messages->beat_due_ms;
    send_beats(messages, now_ms);
    return messages->beat_due_ms;
}

void tt__announce_waiting(tt__messages *messages) {
    const tt__waiting *waiting = messages->config.waiting;
    int64_t now = tt__now_ms();
    bool waits = waiting && waiting->since;
    if (!waits || !messages->waits_ms)
        messages->waits_ms = waits ? now : 0;
    if (waits ? now - messages->waits_ms < MOMENT_MS || now - messages->announced_ms < WAITS_MS
              : !messages->announced_ms)
        return;
    messages->announced_ms = waits ? now : 0;
    send_beats(messages, now);
}

/* Accept times until the year 2043, so that differences do not overflow. */
static bool is_time(int64_t ns) { return ns >= 0 && ns < INT64_C(1) << 61; }

void tt__on_beat(tt__link *link, const tt__beat *beat) {
    int64_t now = tt__realtime_ns();
    bool first = !link->beat.sent_ns;
    if (!is_time(beat->sent_ns) || !is_time(beat->echo_ns) || !is_time(beat->echo_at_ns))
        return;
    link->beat = *beat;
    link->beat_at_ns = now;
    if (beat->waits && beat->seq && link->messages->config.on_word)
        link->messages->config.on_word(link->messages->config.world, beat->group, beat->seq, beat->word);
    if (first)
        send_beat(link); /* answer the first at once, so that both know the difference of their clocks soon */
    if (!beat->echo_ns)
        return;
    int64_t round_trip = (now - beat->echo_ns) - (beat->sent_ns - beat->echo_at_ns);
    if (round_trip < 0 || (link->round_trip_ns && round_trip >= link->round_trip_ns))
        return;
    link->round_trip_ns = round_trip ? round_trip : 1;
    if (link->peer == 0 && link->tcp && link->messages->config.offset_ns)
        atomic_store(link->messages->config.offset_ns,
                     ((beat->echo_ns - beat->echo_at_ns) + (now - beat->sent_ns)) / 2);
}

bool tt__remote_waiting(tt__messages *messages, int rank, uint32_t *group, uint32_t *seq, int *whom, uint32_t *record) {
    const tt__link *link = messages->links[rank];
    if (!link || !link->tcp || link->ended || !link->beat.waits)
        return false;
    *group = link->beat.group;
    *seq = link->beat.seq;
    *whom = link->beat.whom;
    *record = link->beat.record;
    return true;
}
