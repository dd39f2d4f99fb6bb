/* What a process publishes for observers of the job: the progress of training that the program reports, how its
 * gradients are averaged, and, of a worker, its calls to other workers. */
#include "base/args.h"
#include "base/machine/clock.h"
#include "base/text/plain_text.h"
#include "comm/record/recorder.h"
#include "comm/record/seqlock.h"

#include <tutti/job.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { WINDOW_NS = 1000000000 };

static struct {
    tt__progress said;
    int64_t next_samples, next_ns; /* the base of the next window */
    tt__recorder *recorder;        /* where it is shown; NULL: nowhere yet */
} own;

/* Detach a forked child from its parent's recorder, which it must not write. */
static void forget_recorder(void) { own.recorder = NULL; }

static void recorder_watch_forks(void) { pthread_atfork(NULL, NULL, forget_recorder); }

static void publish_progress(void) {
    tt__progress *shown = &own.recorder->progress;
    const tt__progress *said = &own.said;
    uint32_t version = tt__seqlock_begin(&shown->version);
    shown->epoch = said->epoch;
    shown->epochs = said->epochs;
    shown->step = said->step;
    shown->steps = said->steps;
    shown->loss = said->loss;
    shown->samples = said->samples;
    shown->at_ns = said->at_ns;
    shown->base_samples = said->base_samples;
    shown->base_ns = said->base_ns;
    tt__seqlock_end(&shown->version, version);
}

void tt__progress_attach(tt__recorder *recorder) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, recorder_watch_forks);
    own.recorder = recorder;
    if (own.said.at_ns)
        publish_progress();
}

bool tt__progress_attach_first(tt__recorder *recorder) {
    if (!own.recorder)
        tt__progress_attach(recorder);
    return own.recorder == recorder;
}

void tt__progress_detach(const tt__recorder *recorder) {
    if (own.recorder == recorder)
        own.recorder = NULL;
}

/* Count samples. Rates are taken over one to two windows, or over the last step where steps are slow. */
static void count_samples(int64_t samples) {
    int64_t now = tt__now_ns();
    tt__progress *said = &own.said;
    said->samples += samples;
    if (!said->at_ns) {
        said->base_ns = own.next_ns = now;
        said->base_samples = own.next_samples = said->samples;
    } else if (now - own.next_ns >= WINDOW_NS) {
        said->base_ns = own.next_ns;
        said->base_samples = own.next_samples;
        own.next_ns = now;
        own.next_samples = said->samples;
    }
    said->at_ns = now;
}

static int64_t at_least_zero(int64_t number) { return number > 0 ? number : 0; }

void tt_publish_progress_with(const tt_publish_progress_args *args, size_t size) {
    tt_publish_progress_args full;
    TT__ARGS_COPY(full, args, size);
    own.said.epoch = at_least_zero(full.epoch);
    own.said.epochs = at_least_zero(full.epochs);
    own.said.step = at_least_zero(full.step);
    own.said.steps = at_least_zero(full.steps);
    own.said.loss = full.loss;
    count_samples(at_least_zero(full.samples));
    if (own.recorder)
        publish_progress();
}

void tt__publish_averaging(const tt__averaging *a) {
    if (!own.recorder)
        return;
    tt__averaging *shown = &own.recorder->averaging;
    uint32_t version = tt__seqlock_begin(&shown->version);
    shown->steps = a->steps;
    shown->bytes = a->bytes;
    shown->buckets = a->buckets;
    shown->forward_ns = a->forward_ns;
    shown->backward_ns = a->backward_ns;
    shown->averaging_ns = a->averaging_ns;
    shown->overlap_ns = a->overlap_ns;
    tt__seqlock_end(&shown->version, version);
}

/* ---- reading */

bool tt__recorder_averaging(const tt__recorder *recorder, tt__averaging *copy) {
    return tt__seqlock_read(&recorder->averaging.version, (void *)copy, (const void *)&recorder->averaging,
                            sizeof *copy) &&
           atomic_load_explicit(&copy->version, memory_order_relaxed) != 0;
}

bool tt__recorder_progress(const tt__recorder *recorder, tt__progress *copy) {
    bool read =
        tt__seqlock_read(&recorder->progress.version, (void *)copy, (const void *)&recorder->progress, sizeof *copy) &&
        atomic_load_explicit(&copy->version, memory_order_relaxed) != 0;
    copy->at_ns = tt__ns_checked(copy->at_ns);
    copy->base_ns = tt__ns_checked(copy->base_ns);
    return read;
}

double tt__progress_rate(const tt__progress *progress, int64_t now_ns) {
    int64_t measured = progress->at_ns - progress->base_ns, silent = tt__ns_checked(now_ns) - progress->at_ns;
    double samples = (double)progress->samples - (double)progress->base_samples;
    if (measured <= 0 || samples <= 0)
        return 0;
    return samples * 1e9 / (double)(silent > measured ? silent : measured);
}

/* ---- calls to workers */

void tt__rpc_record_name(tt__recorder *recorder, int function, const char *name) {
    if (function >= 0 && function < TT__RPC_FUNCTIONS)
        snprintf(recorder->rpc_functions[function], TT__RPC_FUNCTION_SIZE, "%s", name);
}

/* Move the time from which rates are counted: to the last publication that is at least one window old, at most two. */
static void move_base(tt__rpc_shown *next, const tt__rpc_shown *before) {
    next->base_made = before->base_made;
    next->base_served = before->base_served;
    next->base_ns = before->base_ns;
    if (before->base_ns && next->at_ns - before->base_ns < 2 * (int64_t)WINDOW_NS)
        return;
    next->base_made = before->at_ns ? before->calls_made : next->calls_made;
    next->base_served = before->at_ns ? before->served : next->served;
    next->base_ns = before->at_ns ? before->at_ns : next->at_ns;
}

void tt__rpc_publish(tt__recorder *recorder, const tt__rpc_shown *now) {
    tt__rpc_shown *shown = &recorder->rpc, next = *now;
    next.at_ns = tt__now_ns();
    move_base(&next, shown);
    uint32_t version = tt__seqlock_begin(&shown->version);
    const size_t from = offsetof(tt__rpc_shown, id);
    memcpy((char *)shown + from, (const char *)&next + from, sizeof next - from);
    tt__seqlock_end(&shown->version, version);
}

bool tt__rpc_record_read(const tt__recorder *recorder, uint32_t number, tt__rpc_record *copy) {
    const tt__rpc_slot *slot = &recorder->rpc_records[(number - 1) % TT__RPC_RECORDS];
    uint16_t state = atomic_load_explicit(&slot->state, memory_order_acquire);
    if (!number || state == TT__CALL_NONE || state > TT__CALL_FAILED || TT__RECORD_GET(slot, number) != number)
        return false;
    *copy = (tt__rpc_record){.number = number,
                             .to = TT__RECORD_GET(slot, to),
                             .bytes = TT__RECORD_GET(slot, bytes),
                             .begin = TT__RECORD_GET(slot, begin),
                             .end = TT__RECORD_GET(slot, end),
                             .function = TT__RECORD_GET(slot, function),
                             .state = state};
    atomic_thread_fence(memory_order_acquire);
    return TT__RECORD_GET(slot, number) == number;
}

void tt__rpc_record_put(tt__recorder *recorder, const tt__rpc_record *record) {
    tt__rpc_slot *slot = &recorder->rpc_records[(record->number - 1) % TT__RPC_RECORDS];
    TT__RECORD_SET(slot, number, record->number);
    TT__RECORD_SET(slot, to, record->to);
    TT__RECORD_SET(slot, bytes, record->bytes);
    TT__RECORD_SET(slot, begin, record->begin);
    TT__RECORD_SET(slot, end, record->end);
    TT__RECORD_SET(slot, function, record->function);
    TT__RECORD_SET(slot, state, record->state);
}

bool tt__rpc_shown_read(const tt__recorder *recorder, tt__rpc_shown *copy) {
    bool read = tt__seqlock_read(&recorder->rpc.version, (void *)copy, (const void *)&recorder->rpc, sizeof *copy) &&
                atomic_load_explicit(&copy->version, memory_order_relaxed) != 0 && copy->id >= 0;
    copy->name[sizeof copy->name - 1] = '\0';
    tt__make_plain_name(copy->name);
    copy->at_ns = tt__ns_checked(copy->at_ns);
    copy->base_ns = tt__ns_checked(copy->base_ns);
    for (int i = 0; i < TT__RPC_MAKERS; i++)
        if (copy->makers[i].function < 0 || copy->makers[i].function >= TT__RPC_FUNCTIONS)
            copy->makers[i].function = 0;
    return read;
}

void tt__rpc_shown_rates(const tt__rpc_shown *shown, double *made, double *served) {
    double s = (double)(shown->at_ns - shown->base_ns) / 1e9;
    *made = *served = 0;
    if (s <= 0)
        return;
    *made = ((double)shown->calls_made - (double)shown->base_made) / s;
    *served = ((double)shown->served - (double)shown->base_served) / s;
}
