/* Logs one scalar to the run's folder: DIR. */
#include <stdlib.h>
#include <tutti/metrics.h>

int main(int argc, char **argv) {
    tt_summary_writer *writer = argc == 2 ? tt_summary_writer_new(argv[1]) : NULL;
    bool ok = writer && !tt_summary_writer_add_scalar(writer, "loss", 1, 1) && !tt_summary_writer_flush(writer);
    tt_report();
    tt_summary_writer_free(writer);
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
