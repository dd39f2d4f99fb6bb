/* Writes a run for test_metrics_events.py: metrics_write FOLDER. */
#include <stdio.h>
#include <tutti/metrics.h>

int main(int argc, char **argv) {
    tt_summary_writer *writer = argc == 2 ? tt_summary_writer_new(argv[1]) : NULL;
    tt_status status = writer ? TT_OK : TT_ERR_INVALID;
    for (int step = 0; step < 300 && !status; step++) {
        status = tt_summary_writer_add_scalar(writer, "loss/train", 1.0 / (1 + step), step);
        if (!status)
            status = tt_summary_writer_add_scalar(writer, "rate, \"new\" é", 0.1 * step, (int64_t)step << 33);
    }
    if (!status)
        status = tt_summary_writer_add_text(writer, "notes", "**bold**, on\ntwo lines", 7);
    if (status)
        tt_report();
    tt_summary_writer_free(writer);
    return status != TT_OK;
}
