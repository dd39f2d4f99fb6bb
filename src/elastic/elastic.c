/* An elastic job from its beginning to its end, and the rounds in between.
 *
 * A rank whose call failed keeps its old world until its launcher tells it of the next round: its recorder shows what
 * it waits for. Then it lets go of all that stands on the group, leaves, and joins as another rank. Ranks of a round
 * meet under keys of that round (comm/rendezvous/launcher_notes.h). While a rank joins, a word of its launcher
 * interrupts its waits (net/net.h), because the rank that it waits for may be lost, too. restore.c then brings the
 * ranks of the round to one state. */
#include "elastic/elastic.h"

#include "base/args.h"
#include "base/build.h"
#include "base/error.h"
#include "base/machine/clock.h"
#include "base/text/plain_text.h"
#include "comm/group.h"
#include "comm/record/recovery.h"
#include "comm/rendezvous/rendezvous.h"
#include "net/net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the next round, as this process's launcher tells it ---- */

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

static const char who[] = "tt_elastic_new";

/* ---- rounds ---- */

uint32_t tt__elastic_blamed_rank(void) {
    int rank;
    const char *at = tt_last_status() == TT_ERR_PEER ? strstr(tt_last_error(), "rank ") : NULL;
    return at && sscanf(at, "rank %d", &rank) == 1 && rank >= 0 ? (uint32_t)rank + 1 : 0;
}

/* Let go of the group. The group may be well, if the launcher wanted another round: then the other ranks are
 * at the same place. */
static void leave_round(tt_elastic *e) {
    if (!e->group)
        return;
    tt_group_abort(e->group, "the job goes on in another round");
    tt__parts_unbind(&e->parts);
    tt_destroy_process_group(e->group);
    e->group = NULL;
}

/* Wait for the next round, and become this process's rank in it. */
static tt_status move_on(tt_elastic *e) {
    tt__round_news news = {0};
    if (e->standing.socket < 0)
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "nobody can replace a lost rank here: this process was not started by `tutti run`, or can't "
                        "reach it; start the job again from its last checkpoint; before this: %.1500s",
                        tt_last_error());
    tt__recovery_say(
        (tt__recovery){.recovers = 1, .wants_round = (uint32_t)e->round + 1, .lost = tt__elastic_blamed_rank()});
    TT__TRY(tt__round_await(e->standing.socket, &news, e->round, e->round_wait_ms, &e->stop));
    e->round = news.seat.round;
    snprintf(e->reason, sizeof e->reason, "%s", news.reason);
    if (news.seat.rank < 0)
        return tt__fail(TT_ERR_PEER, "the job goes on without this process, which was rank %d of %d: %s", e->rank,
                        e->world, *news.reason ? news.reason : "the launcher gives no reason");
    tt__standing_record_show(&e->standing, news.seat.rank, news.seat.world);
    leave_round(e);
    e->rank = news.seat.rank;
    e->world = news.seat.world;
    tt__round_move(&news.seat);
    tt__log(TT_LOG_INFO, "now rank %d of %d: %s", e->rank, e->world, e->reason);
    return TT_OK;
}

/* Join the group of this process's round; if a rank of it is lost meanwhile, that of the next one. */
static tt_status join_round(tt_elastic *e) {
    for (;;) {
        tt__net_interrupt_by(TT__MUTANT(joining_heeds_no_launcher) ? -1 : e->standing.socket,
                             "the launcher has another round for this job, or has ended");
        tt_status status =
            tt_init_process_group(&e->group, .timeout_ms = e->timeout_ms, .heartbeat_ms = e->heartbeat_ms,
                                  .transport = e->transport, .algorithms = e->algorithms, .or_alone = e->or_alone);
        tt__net_interrupt_by(-1, NULL);
        if (!status)
            break;
        if (!tt__elastic_mends(status) || e->standing.socket < 0)
            return status;
        tt__standing_record_show(&e->standing, e->rank, e->world);
        TT__TRY(move_on(e));
    }
    e->rank = tt_get_rank(e->group);
    e->world = tt_get_world_size(e->group);
    e->synced = e->due = false;
    if (!e->disabled)
        tt__recovery_say((tt__recovery){.recovers = 1});
    return TT_OK;
}

tt_status tt__elastic_next_round(tt_elastic *e) {
    TT__TRY(move_on(e));
    return join_round(e);
}

/* ---- the beginning and the end ---- */

static tt_status copy_option(char **to, const char *from) {
    if (from && !(*to = strdup(from)))
        return tt__fail(TT_ERR_MEMORY, "%s: out of memory", who);
    return TT_OK;
}

/* Find out which rank of which round this process is. */
static tt_status find_seat(tt_elastic *e) {
    const tt_init_process_group_args args = {.or_alone = e->or_alone};
    tt__meeting meeting;
    TT__TRY(tt__meeting_from_env(&tt__own_environment, &meeting, &args));
    e->round = tt__round_number();
    e->rank = meeting.rank;
    e->world = meeting.world;
    return TT_OK;
}

static tt_status elastic_begin(tt_elastic *e, const tt_elastic_new_args *a) {
    e->timeout_ms = a->timeout_ms > 0 ? a->timeout_ms : TT_DEFAULT_TIMEOUT_MS;
    e->heartbeat_ms = a->heartbeat_ms;
    e->round_wait_ms = a->round_wait_ms > 0 ? a->round_wait_ms : e->timeout_ms;
    e->or_alone = a->or_alone;
    e->disabled = a->disabled;
    TT__TRY(copy_option(&e->transport, a->transport));
    TT__TRY(copy_option(&e->algorithms, a->algorithms));
    if (e->disabled)
        return join_round(e);
    TT__TRY(find_seat(e));
    tt__recovery_say((tt__recovery){.recovers = 1});
    TT__TRY(tt__standing_record_open(&e->standing, e->rank, e->world));
    TT__TRY(join_round(e));
    if (a->stop_on_signals) /* until here a signal ends the process, which may wait long and has nothing to save */
        tt__stop_wish_begin(&e->stop);
    return TT_OK;
}

tt_status tt_elastic_new_with(const tt_elastic_new_args *args, size_t size) {
    tt_elastic_new_args a;
    TT__ARGS_COPY(a, args, size);
    if (!a.out)
        return tt__fail(TT_ERR_INVALID, "%s: `out` is NULL", who);
    *a.out = NULL;
    if (!tt__standing_record_claim())
        return tt__fail(TT_ERR_STATE, "%s: this process has one already: end that first (tt_elastic_free())", who);
    tt_elastic *e = calloc(1, sizeof *e);
    if (!e) {
        tt__standing_record_release();
        return tt__fail(TT_ERR_MEMORY, "%s: out of memory", who);
    }
    e->commits = e->line.round = -1;
    e->standing = (tt__standing_record){.memory = -1, .socket = -1};
    tt_status status = elastic_begin(e, &a);
    if (status)
        tt_elastic_free(e);
    else
        *a.out = e;
    return status;
}

void tt_elastic_free(tt_elastic *e) {
    tt__saved_error saved;
    if (!e)
        return;
    tt__error_save(&saved);
    tt__error_restore(&saved);
    /* peers are told this thread's last error; parts that stand on the group wait for nobody */
    tt_destroy_process_group(e->group);
    tt__parts_unbind(&e->parts);
    tt__parts_free(&e->parts);
    tt__recovery stopped = {.stopped_by = tt__recovery_said().stopped_by};
    tt__recovery_say(stopped);
    tt__standing_record_close(&e->standing);
    tt__stop_wish_end(&e->stop);
    tt__bytes_free(&e->kept[0]);
    tt__bytes_free(&e->kept[1]);
    free(e->transport);
    free(e->algorithms);
    free(e);
    tt__standing_record_release();
    tt__error_restore(&saved);
}

/* ---- what a program asks ---- */

tt_group *tt_elastic_group(const tt_elastic *e) { return e ? e->group : NULL; }

int64_t tt_elastic_commits(const tt_elastic *e) { return e ? e->commits : -1; }

const tt_elastic_change *tt_elastic_changed(const tt_elastic *e) { return e && e->changed ? &e->change : NULL; }

/* splitmix64's finaliser: seeds of neighbouring ranks and commits have nothing in common. */
static uint64_t mixed(uint64_t x) {
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

uint64_t tt_elastic_step_seed(const tt_elastic *e, uint64_t seed) {
    return e ? mixed(mixed(mixed(seed) + (uint64_t)e->commits) + (uint64_t)e->rank) : seed;
}

/* ---- stopping ---- */

enum { WANTED_MS = 20 /* between looks at what the launcher has told */ };

/* Does this process's launcher want another round? Looks at most every WANTED_MS. */
static bool is_round_due(tt_elastic *e) {
    int64_t now = tt__now_ms();
    if (now < e->look_ms)
        return false;
    e->look_ms = now + WANTED_MS;
    return tt__round_wanted(e->standing.socket, e->round);
}

tt_status tt_elastic_should_stop(tt_elastic *e, int *signal) {
    if (!e || !signal)
        return tt__fail_argument("tt_elastic_should_stop: `%s` is NULL", e ? "signal" : "elastic");
    *signal = 0;
    if (!e->group || !e->synced)
        return tt__fail(TT_ERR_STATE, "tt_elastic_should_stop: expected a tt_elastic_restore() that succeeded before");
    if (e->disabled)
        return TT_OK;
    int32_t wishes[2] = {tt__stop_wish_signal(&e->stop), is_round_due(e)};
    if (e->world > 1)
        TT__TRY(tt_all_reduce_with(
            TT_ARGS(tt_all_reduce_args, e->group, wishes, 2, TT_I32, TT_MAX, .file = "tt_elastic_should_stop")));
    *signal = wishes[0];
    if (wishes[0]) {
        tt__recovery_say((tt__recovery){.recovers = 1, .stopped_by = (uint32_t)wishes[0]});
        return TT_OK;
    }
    e->due = wishes[1] != 0;
    return e->due ? tt__fail(TT_ERR_ABORTED, "the launcher has another round for this job, in which other ranks take "
                                             "part: go on with tt_elastic_restore()")
                  : TT_OK;
}

/* ---- parts of the state ---- */

static tt_status check_new_part(const tt_elastic_add_part_args *a) {
    static const char call[] = "tt_elastic_add_part";
    if (!a->elastic || !a->name || !a->cls)
        return tt__fail_argument("%s: `%s` is NULL", call, !a->elastic ? "elastic" : !a->name ? "name" : "cls");
    const tt__parts *parts = &a->elastic->parts;
    if (!*a->name)
        return tt__fail(TT_ERR_INVALID, "%s: expected a name, got an empty text", call);
    if (a->elastic->commits >= 0)
        return tt__fail(TT_ERR_STATE, "%s: \"%s\": expected all parts before the first tt_elastic_restore()", call,
                        a->name);
    for (size_t i = 0; i < parts->count; i++)
        if (!strcmp(parts->list[i].name, a->name))
            return tt__fail(TT_ERR_INVALID, "%s: there is a part \"%s\" already", call, a->name);
    return TT_OK;
}

tt_status tt_elastic_add_part_with(const tt_elastic_add_part_args *args, size_t size) {
    tt_elastic_add_part_args a;
    tt_elastic_part_class cls = {0};
    TT__ARGS_COPY(a, args, size);
    if (a.cls)
        TT__ARGS_COPY(cls, a.cls, a.cls_size);
    tt_status status = check_new_part(&a);
    if (!status && (!cls.save || !cls.load))
        status = tt__fail(TT_ERR_INVALID, "tt_elastic_add_part: \"%s\": the class has no %s function", a.name,
                          cls.save ? "load" : "save");
    if (!status)
        status = tt__parts_append(&a.elastic->parts, a.name, &cls, a.user);
    if (status && cls.destroy)
        cls.destroy(a.user);
    return status;
}

/* Plain memory. */
typedef struct plain {
    void *at;
    size_t size;
} plain;

static tt_status plain_save(void *user, tt_elastic_writer *writer) {
    const plain *p = user;
    tt_elastic_write(writer, p->at, p->size);
    return TT_OK;
}

static tt_status plain_load(void *user, const void *data, size_t size) {
    const plain *p = user;
    if (size != p->size)
        return tt__fail(TT_ERR_MISMATCH, "expected %zu bytes, got %zu of another rank", p->size, size);
    if (size)
        memcpy(p->at, data, size);
    return TT_OK;
}

tt_status tt_elastic_add(tt_elastic *elastic, const char *name, void *ptr, size_t size) {
    static const tt_elastic_part_class cls = {.save = plain_save, .load = plain_load, .destroy = free};
    if (!elastic || !name || !ptr)
        return tt__fail_argument("tt_elastic_add: `%s` is NULL", !elastic ? "elastic" : !name ? "name" : "ptr");
    plain *p = malloc(sizeof *p);
    if (!p)
        return tt__fail(TT_ERR_MEMORY, "tt_elastic_add: no memory for \"%s\"", name);
    *p = (plain){ptr, size};
    return tt_elastic_add_part(elastic, name, &cls, p);
}
