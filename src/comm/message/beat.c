/* What ranks that a TCP link joins tell each other beside data: heartbeats, news of groups, questions about calls, goodbye.
 *
 * A beat carries what its sender waits for, and times: with the sender's of this beat (t1), the receiver's of hearing it (t2), and the same of the
 * other direction (t3, t4), the difference of the clocks is ((t2 - t1) + (t3 - t4)) / 2, exact to half the round trip's asymmetry; the fastest
 * exchange counts. */
#include "base/clock.h"
#include "base/error.h"
#include "comm/message/engine.h"

#include <linux/sockios.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

/* Groups of which one peer's news are kept, and how long the last bytes may take when we leave. */
enum { NEWS_MAX = 4096, LEAVE_MS = 500, MOMENT_MS = 80, WAITS_MS = 200 };

/* ---- beats */

static void fill_waiting(const tt__waiting *waiting, tt__beat *beat) {
    if (!waiting)
        return;
    uint32_t version = atomic_load_explicit(&waiting->version, memory_order_acquire);
    beat->group = waiting->group;
    beat->seq = waiting->seq;
    beat->whom = waiting->whom;
    beat->record = waiting->record;
    beat->word = waiting->word;
    beat->waits = waiting->since != 0;
    atomic_thread_fence(memory_order_acquire);
    if (version & 1 || atomic_load_explicit(&waiting->version, memory_order_relaxed) != version)
        beat->waits = 0;
}

static void send_beat(tt__link *link) {
    tt__beat beat = {.sent_ns = tt__realtime_ns(), .echo_ns = link->beat.sent_ns, .echo_at_ns = link->beat_at_ns};
    fill_waiting(link->messages->config.waiting, &beat);
    tt__frame frame = {.type = TT__FRAME_BEAT, .bytes = sizeof beat};
    tt__send_frame(link, &frame, &beat, sizeof beat);
}

/* Who was stopped itself has heard nothing meanwhile, and accuses nobody of it. */
static void forgive_after_a_stop(tt__messages *messages, int64_t now) {
    if (messages->looked_ms && now - messages->looked_ms > messages->config.heartbeat_ms / 2)
        for (tt__link *link = messages->active; link; link = link->next)
            link->heard_ms = now;
    messages->looked_ms = now;
}

static void send_beats(tt__messages *messages, int64_t now_ms) {
    for (tt__link *link = messages->active; link; link = link->next)
        if (link->tcp && !link->ended)
            send_beat(link);
    messages->beat_due_ms = now_ms + (messages->config.heartbeat_ms + 3) / 4;
}

int64_t tt__beats(tt__messages *messages, int64_t now_ms) {
    forgive_after_a_stop(messages, now_ms);
    if (now_ms < messages->beat_due_ms)
        return messages->beat_due_ms;
    send_beats(messages, now_ms);
    return messages->beat_due_ms;
}

void tt__tell_waiting(tt__messages *messages) {
    const tt__waiting *waiting = messages->config.waiting;
    int64_t now = tt__now_ms();
    bool waits = waiting && waiting->since;
    if (!waits || !messages->waits_ms)
        messages->waits_ms = waits ? now : 0;
    if (waits ? now - messages->waits_ms < MOMENT_MS || now - messages->told_ms < WAITS_MS : !messages->told_ms)
        return;
    messages->told_ms = waits ? now : 0;
    send_beats(messages, now);
}

/* Until the year 2043, so that differences don't overflow. */
static bool is_time(int64_t ns) { return ns >= 0 && ns < INT64_C(1) << 61; }

void tt__hear_beat(tt__link *link, const tt__beat *beat) {
    int64_t now = tt__realtime_ns();
    bool first = !link->beat.sent_ns;
    if (!is_time(beat->sent_ns) || !is_time(beat->echo_ns) || !is_time(beat->echo_at_ns))
        return;
    link->beat = *beat;
    link->beat_at_ns = now;
    if (beat->waits && beat->seq && link->messages->config.hear_word)
        link->messages->config.hear_word(link->messages->config.world, beat->group, beat->seq, beat->word);
    if (first)
        send_beat(link); /* so that both soon know the difference of their clocks */
    if (!beat->echo_ns)
        return;
    int64_t round_trip = (now - beat->echo_ns) - (beat->sent_ns - beat->echo_at_ns);
    if (round_trip < 0 || (link->round_trip_ns && round_trip >= link->round_trip_ns))
        return;
    link->round_trip_ns = round_trip ? round_trip : 1;
    link->offset_ns = ((beat->echo_ns - beat->echo_at_ns) + (now - beat->sent_ns)) / 2;
}

bool tt__clock_offset(tt__messages *messages, int rank, int64_t *offset_ns) {
    const tt__link *link = messages->links[rank];
    if (!link || !link->tcp || !link->round_trip_ns)
        return false;
    *offset_ns = link->offset_ns;
    return true;
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

/* ---- life of links */

/* "rank 3 (host b, 10.0.0.2:4711)" */
static const char *name_of(const tt__link *link, char *text, size_t size) {
    const tt__messages_config *config = &link->messages->config;
    const char *host = config->hostnames ? config->hostnames[link->peer] : NULL;
    snprintf(text, size, "rank %d (%s%s%s%s)", link->peer, host ? "host " : "", host ? host : "", host ? ", " : "",
             link->where);
    return text;
}

/* Others read this, too, so it says whose connection it was. */
static tt_status fail_ended(const tt__link *link) {
    char who[200];
    int own = link->messages->config.rank;
    name_of(link, who, sizeof who);
    if (link->left)
        return tt__fail(link->status, "%s has left the job: %s", who, link->why);
    if (link->status == TT_ERR_PEER)
        return tt__fail(link->status, "%s is gone; its connection to rank %d ended: %s", who, own, link->why);
    return tt__fail(link->status, "rank %d ended its connection to %s: %s", own, who, link->why);
}

bool tt__link_silent(tt__messages *messages, int rank) {
    const tt__link *link = messages->links[rank];
    if (!link || !link->tcp || link->ended)
        return false;
    int64_t patience = messages->config.heartbeat_ms - messages->config.heartbeat_ms / 4, now = tt__now_ms();
    forgive_after_a_stop(messages, now);
    if (now - link->heard_ms < patience)
        return false;
    tt__messages_progress(messages); /* what has come and was not read yet is life, too */
    return !link->ended && now - link->heard_ms >= patience;
}

tt_status tt__link_check(tt__messages *messages, int rank) {
    const tt__link *link = messages->links[rank];
    char who[200];
    if (!link || !link->ops || (!link->tcp && !link->ended))
        return TT_OK;
    if (!link->tcp)
        return tt__fail(link->status, "the connection to rank %d in shared memory ended: %s", rank, link->why);
    bool silent = tt__link_silent(messages, rank);
    if (link->ended)
        return fail_ended(link);
    if (!silent)
        return TT_OK;
    return tt__fail(TT_ERR_PEER, "%s has been silent for %lld ms: it is frozen, or the network between is cut",
                    name_of(link, who, sizeof who), (long long)(tt__now_ms() - link->heard_ms));
}

bool tt__link_is_gone(const tt__messages *messages, int rank) {
    const tt__link *link = messages->links[rank];
    return link && link->tcp && link->ended && !link->left && link->status == TT_ERR_PEER;
}

static int unsent(const tt__link *link) {
    int bytes = 0;
    if (link->ended)
        return 0;
    return tt__link_wants_write(link) || ioctl(link->stream.fd, SIOCOUTQ, &bytes) ? 1 : bytes;
}

/* Closing a socket on which something unread waits would throw away what the peer has not received yet. */
static void wait_until_sent(tt__link *link, int64_t deadline_ms) {
    while (unsent(link) && tt__left_ms(deadline_ms)) {
        tt__link_flush(link);
        tt__link_pump(link);
        poll(NULL, 0, 1);
    }
}

void tt__say_goodbye(tt__messages *messages) {
    int64_t deadline_ms = tt__deadline_ms(LEAVE_MS);
    for (tt__link *link = messages->active; link; link = link->next) {
        tt__frame frame = {.type = TT__FRAME_GOODBYE};
        if (link->tcp && !link->ended) {
            tt__send_frame(link, &frame, NULL, 0);
            tt__link_flush(link);
        }
    }
    for (tt__link *link = messages->active; link; link = link->next)
        if (link->tcp)
            wait_until_sent(link, deadline_ms);
}

/* ---- news */

void tt__news_send(tt__messages *messages, uint32_t group, const int *ranks, int count, tt__news news, tt_status status,
                   uint32_t seq, const char *text) {
    unsigned char body[TT__CONTROL_MAX];
    const tt__news_body head = {group, seq, news, status};
    size_t length = strnlen(text, sizeof body - sizeof head);
    memcpy(body, &head, sizeof head);
    memcpy(body + sizeof head, text, length);
    for (int i = 0; i < count; i++) {
        tt__link *link = messages->links[ranks[i]];
        tt__frame frame = {.type = TT__FRAME_NEWS, .bytes = sizeof head + length};
        if (link && link->tcp && !link->ended)
            tt__send_frame(link, &frame, body, sizeof head + length);
    }
}

static void free_news(tt__heard_news *news) {
    while (news) {
        tt__heard_news *next = news->next;
        free(news);
        news = next;
    }
}

static tt__heard_news *news_of(tt__link *link, uint32_t group) {
    tt__heard_news *n = link->news;
    while (n && n->body.group != group)
        n = n->next;
    return n;
}

/* The newest come first; the oldest give way, since groups come and go. */
static void forget_oldest_news(tt__link *link) {
    tt__heard_news **at = &link->news;
    for (int kept = 1; *at && kept < NEWS_MAX; kept++)
        at = &(*at)->next;
    free_news(*at);
    *at = NULL;
}

/* The first counts: who failed and then leaves has failed. */
void tt__hear_news(tt__link *link, const void *body, size_t bytes) {
    tt__news_body head;
    memcpy(&head, body, sizeof head);
    if (news_of(link, head.group))
        return;
    forget_oldest_news(link);
    size_t length = bytes - sizeof head;
    tt__heard_news *heard = malloc(sizeof *heard + length + 1);
    if (!heard)
        return;
    heard->next = link->news;
    heard->body = head;
    memcpy(heard->text, (const char *)body + sizeof head, length);
    heard->text[length] = '\0';
    link->news = heard;
}

bool tt__news_of(tt__messages *messages, int rank, uint32_t group, tt__news *news, tt_status *status, uint32_t *seq,
                 char *text, size_t size) {
    tt__link *link = messages->links[rank];
    const tt__heard_news *heard = link && link->tcp ? news_of(link, group) : NULL;
    if (!heard)
        return false;
    *news = (tt__news)heard->body.news;
    *status = (tt_status)heard->body.status;
    *seq = heard->body.seq;
    snprintf(text, size, "%s", heard->text);
    return true;
}

void tt__news_free(tt__link *link) {
    free_news(link->news);
    link->news = NULL;
}

/* ---- questions */

void tt__hear_question(tt__link *link) {
    const tt__messages_config *config = &link->messages->config;
    char text[TT__CONTROL_MAX] = "";
    tt__frame answer = {.type = TT__FRAME_ANSWER, .id = link->frame.id};
    const tt__key *key = &link->frame.key;
    bool known = key->seq ? config->call_text && config->call_text(config->world, key->group, key->seq, text,
                                                                   sizeof text, &answer.key.word)
                          : config->record_text &&
                                config->record_text(config->world, key->group, key->record, text, sizeof text);
    answer.flags = known;
    answer.bytes = strlen(text);
    tt__send_frame(link, &answer, text, (size_t)answer.bytes);
}

void tt__hear_answer(tt__link *link, size_t bytes) {
    for (tt__question *q = link->messages->questions; q; q = q->next) {
        if (q->id != link->frame.id)
            continue;
        q->answered = true;
        q->known = link->frame.flags & 1;
        q->word = link->frame.key.word;
        memcpy(q->text, link->control, bytes);
        q->text[bytes] = '\0';
    }
}

static bool ask(tt__messages *messages, int rank, const tt__key *key, char *text, size_t size, uint32_t *word,
                int64_t ms) {
    tt__link *link = messages->links[rank];
    int64_t deadline_ms = tt__deadline_ms(ms);
    if (!link || !link->tcp || link->ended)
        return false;
    tt__question question = {.next = messages->questions, .id = ++messages->last_id};
    tt__frame frame = {.type = TT__FRAME_ASK, .key = *key, .id = question.id};
    messages->questions = &question;
    tt__send_frame(link, &frame, NULL, 0);
    while (!question.answered && !link->ended && tt__left_ms(deadline_ms))
        tt__messages_wait(messages, tt__left_ms(deadline_ms));
    tt__question **at = &messages->questions;
    while (*at != &question)
        at = &(*at)->next;
    *at = question.next;
    if (!question.known)
        return false;
    snprintf(text, size, "%s", question.text);
    *word = question.word;
    return true;
}

bool tt__ask_call(tt__messages *messages, int rank, uint32_t group, uint32_t seq, char *text, size_t size,
                  uint32_t *word, int64_t ms) {
    return ask(messages, rank, &(tt__key){.group = group, .seq = seq}, text, size, word, ms);
}

bool tt__ask_record(tt__messages *messages, int rank, uint32_t group, uint32_t record, char *text, size_t size,
                    int64_t ms) {
    uint32_t word;
    return ask(messages, rank, &(tt__key){.group = group, .record = record}, text, size, &word, ms);
}
