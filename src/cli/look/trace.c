/* tutti trace: the last calls of every rank of a job, as a file for Perfetto. */
#include "base/error.h"
#include "base/text/parse.h"
#include "cli/cli.h"
#include "cli/look/trace_pipeline.h"
#include "cli/look/trace_write.h"

#include <stdio.h>

static const tt__flag trace_flags[] = {
    {.name = "output",
     .id = 'o',
     .letter = 'o',
     .value = "FILE",
     .what = "where to (default trace.json; of --pipeline a picture as SVG, default: a drawing in letters on "
             "stdout)",
     .offer = TT__OFFER_FILES},
    {.name = "pid",
     .id = 'p',
     .value = "PID",
     .what = "a process that \"tutti run\" did not start, and all ranks that it shares memory with"},
    {.name = "pipeline",
     .id = 'l',
     .value = "FILE",
     .what = "draw the pipeline's step in a file that tt_pipeline_write_trace() wrote, with its idle share",
     .offer = TT__OFFER_FILES},
    {0}};

static int trace_main(int argc, char **argv);

const tt__command tt__cmd_trace = {
    .name = "trace",
    .what = "write what they called lately as a trace for Perfetto",
    .usage = "[FLAGS] [JOB] [-o FILE]",
    .text = "Write the last 1024 calls of every rank of a running job as a trace that https://ui.perfetto.dev and "
            "chrome://tracing show: one process per rank, one thread per group, arrows from who came last to those who "
            "waited, all on one clock. What ran on a GPU has a thread of its own. Ranks that hang or are dead are in "
            "it, too. \"tutti run --trace FILE\" writes it when a job ends.\n"
            "\n"
            "JOB is the pid of the job's \"tutti run\", or its run id (--rdzv-id). Without it, the only job there is.",
    .flags = trace_flags,
    .run = trace_main,
};

static tt_status trace_write_view(const tt__view_source *source, const char *path) {
    tt__view view;
    TT__TRY(tt__view_take(&view, source));
    long calls = 0;
    for (int i = 0; i < view.n; i++)
        calls += view.ranks[i].n;
    tt_status status = tt__trace_write(&view, path);
    if (!status)
        tt__cli_print(stdout, "%s: %ld calls of %d rank%s\n", path, calls, view.n, view.n == 1 ? "" : "s");
    tt__view_free(&view);
    return status;
}

static int trace_main(int argc, char **argv) {
    tt__view_source source;
    const char *path = NULL, *pipeline = NULL;
    int64_t pid = 0;
    int letter;
    tt__cli_normalise_flags(argc, argv);
    const char *job = tt__cli_take_word(&tt__cmd_trace, &argc, argv);
    while ((letter = tt__cli_next_flag(&tt__cmd_trace, argc, argv, NULL)) != -1) {
        if (letter == 'h')
            return TT__EXIT_OK;
        if (letter == '?')
            return TT__EXIT_USAGE;
        if (letter == 'o')
            path = optarg;
        else if (letter == 'l')
            pipeline = optarg;
        else if (tt__parse_i64("--pid", optarg, 1, INT32_MAX, &pid))
            return tt__cli_usage_error("trace", "%s", tt_last_error());
    }
    if ((job != NULL) + (pid != 0) + (pipeline != NULL) > 1)
        return tt__cli_usage_error("trace", "%s were given: expected one of them",
                                   pipeline ? "--pipeline and a job" : "a job and --pid");
    if (tt__cli_check_ending(pipeline ? "-o of --pipeline" : "-o", path, pipeline ? ".svg" : ".json"))
        return tt__cli_usage_error("trace", "%s", tt_last_error());
    tt_status status = pipeline ? tt__trace_draw_pipeline(pipeline, path) : tt__view_find(&source, job, (pid_t)pid);
    if (!status && !pipeline)
        status = trace_write_view(&source, path ? path : "trace.json");
    if (status)
        tt__cli_error("trace", "%s", tt_last_error());
    return status ? TT__EXIT_FAILED : TT__EXIT_OK;
}
