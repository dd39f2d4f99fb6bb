/* Reports of a run: events for its display, the display on a console, and metrics. */
#include "trainer/run_state.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "base/text/format.h"

#include <tutti/trainer.h>

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

enum { SHOWN_EVERY_NS = 100000000 };

static const char *reason_text(const tt_trainer *t) {
    switch (t->reason) {
    case TT_TRAINER_STOPPED:
        return "stopped by the program";
    case TT_TRAINER_SIGNAL:
        return "stopped by a signal";
    case TT_TRAINER_PATIENCE:
        return "stopped early: no better evaluation for a while";
    default:
        return "finished";
    }
}

/* Return the epoch to show, counted from 1: the one under way, or the one that has just ended. */
static int64_t shown_epoch(const tt_trainer *t, tt_trainer_event event) {
    bool under_way = event == TT_TRAINER_STEP || t->progress.epoch_step > 0;
    return t->progress.epoch + (under_way && event != TT_TRAINER_BEGIN);
}

static tt_status fill_means(tt_trainer *t, tt_trainer_report *r) {
    bool epoch = r->event == TT_TRAINER_EPOCH, evaluated = t->evaluated_step == t->progress.step;
    if (epoch)
        r->train = tt__means_view(&t->epoch_means, &r->train_count);
    if (r->event == TT_TRAINER_EVALUATED || (epoch && evaluated))
        r->eval = tt__means_view(&t->eval_means, &r->eval_count);
    return (epoch && !r->train) || (r->eval_count && !r->eval) ? tt_last_status() : TT_OK;
}

tt_status tt__trainer_tell(tt_trainer *t, tt_trainer_event event, const char *text) {
    if (t->rank != 0 || !t->a.display)
        return TT_OK;
    tt_trainer_report r = {.size = sizeof r,
                           .event = event,
                           .epoch = shown_epoch(t, event),
                           .epochs = t->a.epochs,
                           .step = t->progress.step,
                           .max_steps = t->a.max_steps,
                           .batch = t->batch,
                           .batches = t->batches,
                           .examples = t->epoch_examples,
                           .seconds = (double)(tt__now_ns() - t->epoch_began_ns - t->other_ns) * 1e-9,
                           .loss = t->last_loss,
                           .text = event == TT_TRAINER_END && !text && t->ended ? reason_text(t) : text};
    TT__TRY(fill_means(t, &r));
    if (event == TT_TRAINER_EPOCH) {
        r.examples = (int64_t)tt__means_examples(&t->epoch_means, "loss");
        r.waited = t->waited;
    }
    t->a.display(&r, t->a.display_user);
    return TT_OK;
}

tt_status tt__trainer_tell_step(tt_trainer *t) {
    int64_t now = tt__now_ns();
    if (t->rank != 0 || now - t->shown_ns < SHOWN_EVERY_NS)
        return TT_OK;
    t->shown_ns = now;
    return tt__trainer_tell(t, TT_TRAINER_STEP, NULL);
}

tt_status tt__trainer_tell_other_metric(tt_trainer *t) {
    char text[400];
    if (!*t->monitored_before)
        return TT_OK;
    snprintf(
        text, sizeof text,
        "the best evaluation of %.100s is of the %s, now it is of the %s %.100s: the best, and patience, begin anew",
        t->a.resume, t->monitored_before, t->a.monitor_max ? "most" : "least", t->monitor);
    return tt__trainer_tell(t, TT_TRAINER_WARNING, text);
}

/* ---- metrics */

/* Turn an error of the metrics into a warning. */
static tt_status warn_of(tt_trainer *t, tt_status status) {
    if (!status)
        return TT_OK;
    char text[TT__ERROR_TEXT_SIZE];
    snprintf(text, sizeof text, "%s", tt_last_error());
    tt_clear_error();
    return tt__trainer_tell(t, TT_TRAINER_WARNING, text);
}

static tt_status write_scalar(tt_trainer *t, const char *kind, const char *name, double value) {
    char tag[512];
    snprintf(tag, sizeof tag, "%s%s%s", kind, *kind ? "/" : "", name);
    return warn_of(t, tt_summary_writer_add_scalar(t->a.metrics, tag, value, t->progress.step));
}

tt_status tt__trainer_purge_metrics(tt_trainer *t) {
    if (t->rank != 0 || !t->a.metrics)
        return TT_OK;
    return warn_of(t, tt_summary_writer_purge(t->a.metrics, t->progress.step + 1));
}

/* Write the epoch that the step belongs to, for `tutti plot --x epoch`. */
static tt_status write_epoch_of_step(tt_trainer *t) {
    double part = t->steps ? (double)t->progress.epoch_step / (double)t->steps : 0;
    return write_scalar(t, "", "epoch", (double)t->progress.epoch + part);
}

tt_status tt__trainer_write_means(tt_trainer *t, const char *kind, tt__means *means) {
    int64_t count;
    if (t->rank != 0 || !t->a.metrics)
        return TT_OK;
    const tt_trainer_metric *view = tt__means_view(means, &count);
    if (!view)
        return tt_last_status();
    for (int64_t i = 0; i < count; i++)
        TT__TRY(write_scalar(t, kind, view[i].name, view[i].value));
    return write_epoch_of_step(t);
}

tt_status tt__trainer_write_rate(tt_trainer *t) {
    double lr;
    if (t->rank != 0 || !t->a.metrics)
        return TT_OK;
    TT__TRY(tt_optimizer_get_option(t->a.optimizer, 0, "lr", &lr));
    return write_scalar(t, "train", "lr", lr);
}

/* ---- a display of lines, and on a terminal of a progress bar */

static void write_bar(const tt_trainer_report *r, FILE *out) {
    enum { WIDTH = 40 };
    static const char marks[] = "========================================";
    int64_t done = r->batches > 0 ? r->batch : 0, all = r->batches > 0 ? r->batches : 1;
    int filled = (int)(done < all ? done * WIDTH / all : WIDTH);
    tt__print(out, "\rEpoch %" PRId64 " [%.*s%*s] %3d %%  loss %.4f", r->epoch, filled, marks, WIDTH - filled, "",
              (int)(done < all ? done * 100 / all : 100), r->loss);
    if (r->seconds > 0 && done > 0)
        tt__print(out, "  %.0f s left", r->seconds / (double)done * (double)(all - done));
    fputs("\033[K", out);
}

/* Write metrics, accuracies in percent. */
static void write_metrics(const char *prefix, const tt_trainer_metric *metrics, int64_t count, FILE *out) {
    for (int64_t i = 0; i < count; i++) {
        bool percent = !strcmp(metrics[i].name, "accuracy");
        tt__print(out, percent ? ", %s%s %.2f %%" : ", %s%s %.4f", prefix, metrics[i].name,
                  percent ? 100 * metrics[i].value : metrics[i].value);
    }
}

static void write_epoch(const tt_trainer_report *r, FILE *out) {
    fprintf(out, "Epoch %" PRId64, r->epoch);
    if (r->event == TT_TRAINER_EVALUATED)
        fprintf(out, ", step %" PRId64, r->step);
    write_metrics("", r->train, r->train_count, out);
    write_metrics("held-out ", r->eval, r->eval_count, out);
    if (r->event == TT_TRAINER_EPOCH && r->seconds > 0)
        tt__print(out, ", %.0f samples/s, waited %.1f %% for data", (double)r->examples / r->seconds, 100 * r->waited);
    fputc('\n', out);
}

/* Is an epoch under way? */
static bool inside_epoch(const tt_trainer_report *r) { return r->batch > 0 && r->batch < r->batches; }

static void write_resumed(const tt_trainer_report *r, FILE *out) {
    bool inside = inside_epoch(r), ended = !inside && r->epochs > 0 && r->epoch >= r->epochs;
    fprintf(out, "Resumed after ");
    if (inside)
        fprintf(out, "step %" PRId64 ", in epoch %" PRId64 ",", r->step, r->epoch + 1);
    else
        fprintf(out, "epoch %" PRId64, r->epoch);
    fprintf(out, " from %s%s\n", r->text, ended ? ": nothing left to train" : "");
}

static void write_saved(const tt_trainer_report *r, FILE *out) {
    fprintf(out, "Epoch %" PRId64, r->epoch);
    if (inside_epoch(r))
        fprintf(out, ", step %" PRId64, r->step);
    fprintf(out, ", checkpoint saved at %s\n", r->text);
}

void tt_trainer_console(const tt_trainer_report *r, void *file) {
    FILE *out = file;
    if (!r || r->size < sizeof *r || !out) /* an older library's report is shorter */
        return;
    bool terminal = isatty(fileno(out));
    if (terminal && r->event != TT_TRAINER_STEP)
        fputs(r->event == TT_TRAINER_END && !r->text ? "\n" : "\r\033[K", out); /* an error gets a line of its own */
    switch (r->event) {
    case TT_TRAINER_BEGIN:
        if (r->text)
            write_resumed(r, out);
        break;
    case TT_TRAINER_STEP:
        if (terminal)
            write_bar(r, out);
        break;
    case TT_TRAINER_EPOCH:
    case TT_TRAINER_EVALUATED:
        write_epoch(r, out);
        break;
    case TT_TRAINER_SAVED:
        write_saved(r, out);
        break;
    case TT_TRAINER_WARNING:
        fprintf(out, "Warning: %s\n", r->text);
        break;
    case TT_TRAINER_END:
        if (r->text && strcmp(r->text, "finished"))
            fprintf(out, "Training %s\n", r->text);
        break;
    }
    fflush(out);
}
