/* Writes a run for test_metrics_events.py: metrics_write FOLDER. */
#include <math.h>
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
    /* values of all sizes, on limits, beyond the outermost, and 0 */
    double wide[400];
    float narrow[] = {0.25f};
    for (int i = 0; i < 400; i++)
        wide[i] = (i % 3 - 1) * pow(1.07, i % 200) * 1e-3 + (i == 7 ? 1e25 : 0);
    if (!status)
        status = tt_summary_writer_add_histogram(writer, "wide", wide, 400, TT_F64, 3);
    if (!status)
        status = tt_summary_writer_add_histogram(writer, "narrow", narrow, 1, TT_F32, 4);
    if (!status)
        status = tt_summary_writer_add_histogram(writer, "zero", (&(double){0}), 1, TT_F64, 5);
    if (status)
        tt_report();
    tt_summary_writer_free(writer);
    return status != TT_OK;
}
