/* A display of lines, and on a terminal of a progress bar. */
#include "base/text/format.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <tutti/trainer.h>
#include <unistd.h>

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

/* Accuracies are shown in percent, as people say them. */
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

/* Is an epoch under way? Its last batch ends it. */
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
    if (!r || r->size < sizeof *r || !out) /* of a library that knew less */
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
