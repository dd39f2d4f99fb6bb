/* The control group behind a plug-in's group: a native group of the same ranks. It moves no data; it finds the errors
 * that other engines don't.
 *
 * Before an engine's collective the ranks agree on the call there, as native calls do. So errors name the rank that
 * calls something else, stays away, leaves, or is part of a deadlock. (Engines don't check: gloo ends the process of a
 * rank that gets more than it expects, MPICH may return wrong sums.) While the engine works, processes and links are
 * watched, so that errors name a rank that died or is stopped. A failure or abort is announced to all ranks.
 *
 * TT_BACKEND_CHECK=0, on all ranks, leaves it out. */
#include "base/error.h"
#include "base/machine/clock.h"
#include "base/process/waits.h"
#include "base/setting.h"
#include "comm/backend/plugin.h"
#include "comm/native/native.h"
#include "comm/watch/verdicts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LOOK_MS = 20,       /* between looks at the peers, while calls are under way */
    IN_FLIGHT_MS = 250, /* what a rank sent before it ended may still arrive */
    EXPLAIN_MS = 2000   /* an engine may see the end of a rank before the kernel or the launcher reports it */
};

/* ---- beginning */

bool tt__control_wanted(int ranks) {
    return ranks > 1 && ranks <= TT__MAX_RANKS && tt__setting_is_on(TT__BACKEND_CHECK);
}

static void control_begin(tt_group *group, tt_group *control) {
    control->native->only_agrees = true;
    tt__plugin_of(group)->control = control;
}

tt_status tt__control_open(tt_group *group, const tt__member *member) {
    tt__member own = *member;
    tt_group *control;
    int64_t before = tt_store_timeout_ms(member->store);
    snprintf(own.prefix, sizeof own.prefix, "%.80s/control", member->prefix);
    own.algorithms = NULL;
    tt_store_set_timeout_ms(member->store, member->timeout_ms);
    tt_status status = tt__native_join(&control, &own);
    tt_store_set_timeout_ms(member->store, before);
    if (!status)
        control_begin(group, control);
    return status;
}

/* Where rank 0 serves a store, as broadcast by the engine; the text is empty if it can't. */
typedef struct place {
    char host_id[128], hostname[72];
    int32_t port;
} place;

static tt_status combine_verdicts(tt_group *group, void *buf, size_t count, tt_reduce_op op, int64_t timeout_ms) {
    const tt_call call = {.op = TT_OP_ALL_REDUCE,
                          .dtype = TT_U8,
                          .reduce_op = op,
                          .count = count,
                          .send = buf,
                          .recv = buf,
                          .timeout_ms = timeout_ms,
                          .file = "tt_init_process_group"};
    return group->engine->submit(group, &call, NULL);
}

static tt_status control_serve(tt_store **store, place *at, const tt__card *card, int64_t timeout_ms) {
    TT__TRY(tt_tcp_store(store, "localhost", 0, .is_server = true, .timeout_ms = timeout_ms));
    snprintf(at->host_id, sizeof at->host_id, "%s", card->host_id);
    snprintf(at->hostname, sizeof at->hostname, "%s", card->hostname);
    at->port = tt_store_port(*store);
    return TT_OK;
}

static tt_status control_meet(tt_group *group, const tt__member *member, const place *at, const tt__card *card,
                              tt_store *served) {
    tt__member own = *member;
    tt_store *reached = NULL;
    tt__notes notes = {.store = member->store, .is_tried = true};
    const char *host = strcmp(at->host_id, card->host_id) != 0 ? at->hostname : "localhost";
    if (!at->port)
        return tt__fail(TT_ERR_NET, "rank 0 can't serve a store");
    if (!served)
        TT__TRY(tt_tcp_store(&reached, host, at->port, .timeout_ms = member->timeout_ms));
    if (!own.notes && member->store)
        own.notes = &notes;
    own.store = served ? served : reached;
    snprintf(own.prefix, sizeof own.prefix, "tutti/engine");
    tt_status status = tt__control_open(group, &own);
    tt_store_free(reached);
    return status;
}

tt_status tt__control_meet(tt_group *group, const tt__member *member) {
    enum { PATIENCE_MS = 60000 };
    tt__plugin *plugin = tt__plugin_of(group);
    tt__member own = *member;
    tt_store *served = NULL;
    tt__card card;
    place at = {.port = 0};
    uint8_t all_are_in = 0;
    if (own.timeout_ms > PATIENCE_MS)
        own.timeout_ms = PATIENCE_MS;
    if (!tt__plugin_takes_host(plugin)) {
        tt__log(
            TT_LOG_WARNING,
            "back end %s: the ranks' calls are not compared, nor is who ends named: it moves nothing on the host, by "
            "which they could meet",
            plugin->table->name);
        return TT_OK;
    }
    TT__TRY(tt__card_make(&card, member->world, member->transport, NULL));
    if (member->rank == 0 && control_serve(&served, &at, &card, own.timeout_ms))
        tt__log(TT_LOG_WARNING, "back end %s: %s", plugin->table->name, tt_last_error());
    tt_status status = combine_verdicts(group, &at, sizeof at, TT_MAX, member->timeout_ms);
    if (!status && control_meet(group, &own, &at, &card, served))
        tt__log(TT_LOG_WARNING, "back end %s: the ranks' calls are not compared, nor is who ends named: %s",
                plugin->table->name, tt_last_error());
    tt_group *control = plugin->control;
    plugin->control = NULL; /* until all ranks are known to have one */
    all_are_in = control != NULL;
    if (!status)
        status = combine_verdicts(group, &all_are_in, 1, TT_MIN, member->timeout_ms);
    if (!status && all_are_in)
        plugin->control = control;
    else
        tt_destroy_process_group(control);
    tt_store_free(served);
    return status;
}

tt_status tt__control_split(tt_group *group, const tt_call *call, const int *ranks, int color, int key,
                            tt_group **control) {
    tt_group *whole = tt__plugin_of(group)->control;
    *control = NULL;
    if (!whole)
        return TT_OK;
    tt_status status = call->op == TT_OP_NEW_GROUP ? tt__native_new_group(whole, call, ranks, call->count, control)
                                                   : tt__native_split(whole, call, color, key, control);
    if (*control)
        (*control)->native->only_agrees = true;
    return status;
}

/* ---- the end */

void tt__control_fail(const tt_group *group) {
    tt_group *control = tt__plugin_of(group)->control;
    if (!control)
        return;
    tt__world_lock(control->native->world);
    if (!control->failed) {
        tt__fail(group->failed, "%s", group->failure_text);
        tt__group_fail(control);
    }
    tt__world_unlock(control->native->world);
}

void tt__control_leave(tt_group *group) {
    tt__plugin *plugin = tt__plugin_of(group);
    tt_destroy_process_group(plugin->control);
    plugin->control = NULL;
}

void tt__control_note_step(tt_group *group) {
    tt_group *control = tt__plugin_of(group)->control;
    if (control)
        tt__native_note_step(control);
}

/* ---- agreeing */

tt_status tt__control_ask(const tt_group *group, tt__call_part *part) {
    tt_group *control = tt__plugin_of(group)->control;
    if (control->failed)
        return tt__fail(control->failed, "%s", control->failure_text);
    return tt__native_submit(control, &part->call, &part->agreement);
}

tt_status tt__control_test(const tt_group *group, tt__call_part *part, bool *done) {
    const tt__plugin *plugin = tt__plugin_of(group);
    tt_work *agreement = part->agreement;
    tt_status status = TT_OK;
    tt__world_lock(plugin->control->native->world);
    tt__world_progress(plugin->control->native->world);
    tt__world_unlock(plugin->control->native->world);
    *done = atomic_load_explicit(&agreement->done, memory_order_acquire);
    if (!*done) {
        if (plugin->table->progress)
            plugin->table->progress(plugin->engine);
        return TT_OK;
    }
    if (agreement->looked_ms)
        tt__look_after(agreement);
    if (agreement->status) {
        part->refused = agreement->refused;
        status = tt__work_error(agreement);
    }
    part->record = agreement->record;
    part->record_number = agreement->record_number;
    tt__control_forget(part);
    return status;
}

void tt__control_forget(tt__call_part *part) {
    tt_work_free(part->agreement);
    part->agreement = NULL;
}

/* When did the device begin the first part, and end the last one? False: it is not known of every part. */
static bool times_of(const tt__task *task, int64_t *begin, int64_t *end) {
    *begin = *end = 0;
    for (size_t i = 0; i < task->count; i++) {
        const tt_call_times *times = task->parts[i].call.times;
        if (!times)
            continue;
        if (times->begin_ns <= 0 || times->begin_ns > TT__NS_MAX || times->duration_ns < 0 ||
            times->duration_ns > TT__NS_MAX)
            return false;
        int64_t ended = times->begin_ns + times->duration_ns;
        *begin = *begin && *begin < times->begin_ns ? *begin : times->begin_ns;
        *end = *end > ended ? *end : ended;
    }
    return *begin > 0;
}

void tt__control_note_times(const tt_group *group, const tt__task *task) {
    const tt_group *control = tt__plugin_of(group)->control;
    const tt__call_part *first = task->parts;
    int64_t begin, end;
    if (!control || !times_of(task, &begin, &end))
        return;
    const tt_call *call = &first->call;
    const tt__record_device ran = {.number = first->record_number,
                                   .type = (uint16_t)call->device,
                                   .index = (uint16_t)call->device_index,
                                   .begin_ns = begin,
                                   .duration_ns = end - begin};
    tt__record_note_device(&tt__world_control(control->native->world)->recorder, first->record, &ran);
}

/* ---- watching */

void tt__control_wait_elsewhere(const tt_group *group, int change) {
    const tt_group *control = tt__plugin_of(group)->control;
    if (!control)
        return;
    tt__world_lock(control->native->world);
    control->native->world->elsewhere += (uint32_t)change;
    tt__world_unlock(control->native->world);
}

static bool waits_for(const tt_group *group, const tt__task *task, int r, bool engine_failed) {
    bool any = false;
    for (size_t i = 0; i < task->begun; i++) {
        const tt__call_part *part = &task->parts[i];
        bool message = part->call.op == TT_OP_SEND || part->call.op == TT_OP_RECV;
        if (part->state == TT__PART_BEGUN || engine_failed)
            any = any || !message || part->call.root == TT_ANY_SOURCE || part->call.root == r;
    }
    return any && r != group->rank;
}

/* ", while rank 0 waits for it in all_reduce(f32 x 512, sum) at train.c:88" */
static const char *control_meanwhile(const tt_work *work, char *text, size_t size) {
    char call[256];
    snprintf(text, size, ", while rank %d waits for it in %s", work->group->ranks[work->group->rank],
             tt__plugin_call_text(&work->call, call, sizeof call));
    return text;
}

/* Has one of the ranks that the engine waits for in this call failed, or is it gone? A rank may be gone because it has
 * finished. */
static tt_status control_look(tt_work *work, const tt__task *task, bool engine_failed, bool *said) {
    const tt_group *group = work->group;
    const tt_group *control = tt__plugin_of(group)->control;
    bool collective = !tt__op_is(work->call.op, TT__OP_P2P);
    tt_status status = TT_OK;
    char doing[400];
    control_meanwhile(work, doing, sizeof doing);
    tt__world_lock(control->native->world);
    tt__world_progress(control->native->world);
    for (int r = 0; r < group->size && !status; r++)
        status = r == group->rank ? TT_OK : tt__check_failed(control, r);
    *said = status;
    for (int r = 0; r < group->size && !status; r++)
        if (waits_for(group, task, r, engine_failed))
            status = tt__check_gone(control, r, collective && !engine_failed, doing);
    control->native->world->last_check_ms = tt__now_ms();
    tt__world_unlock(control->native->world);
    return status;
}

tt_status tt__control_watch_joining(void *group) {
    const tt_group *g = group, *control = tt__plugin_of(g)->control;
    tt_status status = TT_OK;
    char doing[96];
    snprintf(doing, sizeof doing, ", while the back end %s joins it with rank %d", tt__plugin_of(g)->table->name,
             g->ranks[g->rank]);
    tt__world_lock(control->native->world);
    tt__world_progress(control->native->world);
    for (int r = 0; r < g->size && !status; r++)
        status = r == g->rank ? TT_OK : tt__check_gone(control, r, true, doing);
    control->native->world->last_check_ms = tt__now_ms();
    tt__world_unlock(control->native->world);
    return status;
}

void tt__control_let_watch(tt_group *group) {
    const tt__plugin *plugin = tt__plugin_of(group);
    if (plugin->control && plugin->engine && plugin->table->set_watch)
        plugin->table->set_watch(plugin->engine, tt__control_watch_joining, group);
}

static tt_status watch_one(tt_work *work, const tt__task *task, int64_t now) {
    tt__plugin *plugin = tt__plugin_of(work->group);
    tt_work *agreement = task->begun ? task->parts[task->begun - 1].agreement : NULL;
    bool said;
    if (agreement) {
        if (agreement->call.timeout_ms > work->call.timeout_ms) { /* a later call has a shorter timeout */
            agreement->deadline_ms = work->deadline_ms;
            agreement->call.timeout_ms = work->call.timeout_ms;
        }
        tt__look_after(agreement);
        return TT_OK;
    }
    tt_status status = control_look(work, task, false, &said);
    if (!status)
        plugin->gone_ms = 0;
    else if (!plugin->gone_ms)
        plugin->gone_ms = now;
    return status && (said || now - plugin->gone_ms >= IN_FLIGHT_MS) ? status : TT_OK;
}

static bool is_slow(const tt_work *work, int64_t now) {
    return work && now - (work->deadline_ms - work->call.timeout_ms) >= LOOK_MS;
}

tt_status tt__control_watch(tt_group *group) {
    tt__plugin *plugin = tt__plugin_of(group);
    int64_t now = tt__now_ms();
    tt_work *first = group->queue ? group->queue : group->unordered;
    if (!plugin->control || now - plugin->looked_ms < LOOK_MS || !is_slow(first, now))
        return TT_OK;
    plugin->looked_ms = now;
    tt_work *lists[] = {group->queue, group->unordered};
    for (int i = 0; i < 2; i++)
        for (tt_work *work = lists[i]; work; work = work->next)
            if (tt__task_of(work) && tt__task_of(work)->begun)
                TT__TRY(watch_one(work, tt__task_of(work), now));
    return TT_OK;
}

void tt__control_explain(tt_work *work) {
    const tt_group *group = work->group;
    const tt_group *control = tt__plugin_of(group)->control;
    tt_status status = tt_last_status();
    int64_t deadline_ms = tt__deadline_ms(EXPLAIN_MS);
    tt__saved_error engines;
    bool said;
    if (!control || control->failed || (status != TT_ERR_PEER && status != TT_ERR_NET))
        return;
    tt__error_save(&engines);
    while (!control_look(work, tt__task_of(work), true, &said)) {
        if (tt__now_ms() >= deadline_ms) {
            tt__error_restore(&engines);
            return;
        }
        tt__sleep_ms(5);
    }
}
