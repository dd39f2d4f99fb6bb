/* Agreement of all ranks on their options, before the first step, and on the end of the run.
 *
 * A rank that stopped alone, because of a wish or of a loss that is not finite, would leave the others waiting. So
 * ranks agree on both after each backward pass and each evaluation. */
#include "trainer/run_state.h"

#include "base/error.h"
#include "base/text/format.h"
#include "comm/group.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char who[] = "tt_trainer_run", options_site[] = "the trainer's comparison of options";

/* ---- options ---- */

/* A value that all ranks have in common, as 64 bits whose order is that of the values. */
typedef struct common_option {
    const char *name;
    enum { COUNT, SEED, REAL, TEXT } kind;
    int64_t bits;
    const char *text; /* of a TEXT, whose `bits` are its hash */
} common_option;

enum { OPTIONS_MAX = 32 };

static common_option count_option(const char *name, int64_t value) { return (common_option){name, COUNT, value, NULL}; }

/* Seeds are unsigned: with the highest bit flipped, their order is that of int64_t. */
static common_option seed_option(const char *name, uint64_t value) {
    return (common_option){name, SEED, (int64_t)(value ^ UINT64_C(1) << 63), NULL};
}

/* Numbers of at least 0 have the order of their bits. Adding 0 turns -0 into 0. */
static common_option real_option(const char *name, double value) {
    common_option o = {.name = name, .kind = REAL};
    value += 0.0;
    memcpy(&o.bits, &value, sizeof value);
    return o;
}

static common_option text_option(const char *name, const char *text) {
    return (common_option){name, TEXT, tt__means_hash(text, strlen(text)), text};
}

/* List all options that decide which calls a rank makes and how its model is trained. `options` has room for
 * OPTIONS_MAX. */
static int list_options(const tt_trainer *t, common_option *options) {
    const tt_trainer_run_args *a = &t->a;
    const common_option all[] = {
        count_option(".virtual_ranks", a->virtual_ranks),
        count_option("batches of the loader", a->virtual_ranks ? t->steps : t->batches),
        count_option("epochs of .resume", t->progress.epoch),
        count_option("steps of .resume", t->progress.step),
        count_option("evaluations of .resume since the best", t->progress.stale),
        count_option(".epochs", a->epochs),
        count_option(".max_steps", a->max_steps),
        count_option(".accumulate", a->accumulate),
        real_option(".clip_norm", a->clip_norm),
        real_option(".clip_value", a->clip_value),
        seed_option(".step_seed", a->step_seed),
        count_option(".autocast", a->autocast),
        count_option(".scaler given (1) or not (0)", a->scaler != NULL),
        count_option(".allow_nonfinite", a->allow_nonfinite),
        count_option(".scheduler given (1) or not (0)", a->scheduler != NULL),
        count_option(".scheduler_when", a->scheduler ? (int64_t)a->scheduler_when : 0),
        count_option(".ema given (1) or not (0)", a->ema != NULL),
        count_option(".averager given (1) or not (0)", a->averager != NULL),
        count_option(".comm_hook given (1) or not (0)", a->comm_hook != NULL),
        count_option(".resume given (1) or not (0), with .comm_hook", a->comm_hook && a->resume),
        count_option(".checkpoint given (1) or not (0), with .comm_hook", a->comm_hook && a->checkpoint),
        count_option(".best_checkpoint given (1) or not (0), with .comm_hook", a->comm_hook && a->best_checkpoint),
        count_option(".eval_every", a->eval_every),
        count_option(".eval_every_steps", a->eval_every_steps),
        text_option(".monitor", t->monitor),
        count_option(".monitor_max", a->monitor_max),
        count_option(".patience", a->patience),
        count_option(".save_every", a->save_every),
        count_option(".save_every_steps", a->save_every_steps),
        count_option(".log_every", a->log_every),
    };
    _Static_assert(sizeof all <= OPTIONS_MAX * sizeof *all, "raise OPTIONS_MAX");
    memcpy(options, all, sizeof all);
    return (int)(sizeof all / sizeof *all);
}

/* Write an option's value for an error. */
static const char *option_text(const common_option *o, int64_t bits, char *text, size_t size) {
    double real;
    memcpy(&real, &bits, sizeof real);
    if (o->kind == COUNT)
        snprintf(text, size, "%" PRId64, bits);
    else if (o->kind == SEED)
        snprintf(text, size, "%" PRIu64, (uint64_t)bits ^ UINT64_C(1) << 63);
    else
        tt__format(text, size, "%.17g", real);
    return text;
}

static tt_status refuse_option(const tt_trainer *t, const common_option *o, int64_t least, int64_t most) {
    char from[32], to[32], own[32];
    if (o->kind == TEXT)
        return tt__fail(TT_ERR_MISMATCH,
                        "%s: expected the same on all ranks, but %s is \"%s\" on rank %d, and differs on "
                        "another",
                        who, o->name, o->text, t->rank);
    return tt__fail(TT_ERR_MISMATCH, "%s: expected the same on all ranks, but %s: %s to %s, and %s on rank %d", who,
                    o->name, option_text(o, least, from, sizeof from), option_text(o, most, to, sizeof to),
                    option_text(o, o->bits, own, sizeof own), t->rank);
}

/* With different options ranks would wait for each other, or train different models. One call finds both extremes: the
 * greatest ~v is ~(the least v). */
tt_status tt__trainer_agree_on_options(const tt_trainer *t) {
    common_option options[OPTIONS_MAX];
    int64_t most[2 * OPTIONS_MAX];
    if (t->world == 1 || t->a.elastic)
        return TT_OK;
    int count = list_options(t, options);
    for (int i = 0; i < count; i++) {
        most[i] = options[i].bits;
        most[count + i] = ~options[i].bits;
    }
    TT__TRY(tt__group_most(t->a.group, most, 2 * (size_t)count, TT_I64, options_site));
    for (int i = 0; i < count; i++)
        if (most[i] != ~most[count + i])
            return refuse_option(t, &options[i], ~most[count + i], most[i]);
    return TT_OK;
}

tt_status tt__trainer_find_evaluation(tt_trainer *t) {
    int64_t any = t->a.eval_loader != NULL;
    if (t->world > 1 && !t->a.elastic)
        TT__TRY(tt__group_most(t->a.group, &any, 1, TT_I64, options_site));
    t->has_eval = any != 0;
    return TT_OK;
}

/* ---- signals, as a wish to stop ---- */

static volatile sig_atomic_t came;

static void note_signal(int sig) {
    (void)sig;
    came = 1;
}

void tt__stop_signals_begin(tt__stop_signals *signals) {
    struct sigaction note = {.sa_handler = note_signal, .sa_flags = SA_RESTART};
    sigemptyset(&note.sa_mask);
    came = 0;
    sigaction(SIGTERM, &note, &signals->term);
    sigaction(SIGUSR1, &note, &signals->usr1);
    signals->watching = true;
}

void tt__stop_signals_end(tt__stop_signals *signals) {
    if (!signals->watching)
        return;
    sigaction(SIGTERM, &signals->term, NULL);
    sigaction(SIGUSR1, &signals->usr1, NULL);
    signals->watching = false;
}

/* ---- the end ---- */

static const char end_site[] = "the trainer's end of a step";

enum { TOLD = 5 }; /* how many numbers a bad loss is told by */

/* Replace `told` on all ranks by that of rank `rank`. */
static tt_status tell_all(const tt_trainer *t, int rank, double told[TOLD]) {
    double *all = malloc((size_t)t->world * TOLD * sizeof *all);
    if (!all)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for what the ranks tell", who);
    tt_status status = tt__group_gather(t->a.group, told, all, TOLD, TT_F64, end_site);
    if (!status)
        memcpy(told, all + (size_t)rank * TOLD, TOLD * sizeof *all);
    free(all);
    return status;
}

/* A rank's bad loss becomes an error on all ranks. */
static tt_status refuse_loss(const tt_trainer *t, int rank) {
    const tt__bad_loss *own = &t->bad_loss;
    double told[TOLD] = {own->value, (double)own->step, (double)own->epoch, (double)own->batch, (double)own->of};
    char batch[64] = "";
    if (t->world > 1)
        TT__TRY(tell_all(t, rank, told));
    if (told[4] > 1)
        snprintf(batch, sizeof batch, ", batch %" PRId64 " of %" PRId64, (int64_t)told[3], (int64_t)told[4]);
    return tt__fail(TT_ERR_NAN,
                    "%s: the loss of step %" PRId64 " (epoch %" PRId64
                    "%s) on rank %d is %g: expected a finite number. "
                    "tt_set_detect_anomaly() names the call that made it; a smaller learning rate or .clip_norm may "
                    "prevent it",
                    who, (int64_t)told[1], (int64_t)told[2], batch, rank, told[0]);
}

/* With .averager ranks step on their own. They agree in steps that average, and in the last one of an epoch or the
 * run. */
static bool agrees_now(const tt_trainer *t) {
    return !t->a.averager || tt_model_averager_is_due(t->a.averager) || t->progress.epoch_step + 1 == t->steps ||
           t->progress.step + 1 == t->a.max_steps;
}

tt_status tt__trainer_agree_on_end(tt_trainer *t) {
    if (!agrees_now(t))
        return TT_OK;
    bool by_signal = t->signals.watching && came;
    int64_t most[] = {t->bad_loss.of ? t->world - t->rank : 0, t->stop, by_signal};
    if (t->world > 1)
        TT__TRY(tt__group_most(t->a.group, most, 3, TT_I64, end_site));
    if (most[0] && !t->a.allow_nonfinite)
        return refuse_loss(t, t->world - (int)most[0]);
    t->bad_loss.of = 0;
    if (!t->ended && (most[1] || most[2])) {
        t->ended = true;
        t->reason = most[2] ? TT_TRAINER_SIGNAL : TT_TRAINER_STOPPED;
    }
    return TT_OK;
}
