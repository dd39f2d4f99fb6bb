/* tutti bench: the table of benchmarks. */
#include "cli/bench/bench.h"

/* Return the subcommands: one for each operation, made at the first call. */
static const tt__command *const *bench_parts(void) {
    static const tt__command *parts[TT__PARTS_MAX + 1];
    static tt__command made[TT__PARTS_MAX];
    static char names[TT__PARTS_MAX][TT__BENCH_NAME_SIZE];
    static const tt__command *const others[] = {&tt__bench_store, &tt__bench_rpc, &tt__bench_startup, &tt__bench_step,
                                                NULL};
    int n = 0;
    if (*parts)
        return parts;
    for (const tt__bench_call *call; n < TT__PARTS_MAX - 4 && (call = tt__bench_call_at(n)); n++) {
        made[n] = tt__bench_collective(call, names[n]);
        parts[n] = &made[n];
    }
    for (int i = 0; others[i]; i++)
        parts[n++] = others[i];
    return parts;
}

static int bench_main(int argc, char **argv) {
    tt__cli_normalise_flags(argc, argv);
    if (argc < 2)
        return tt__cli_usage_error("bench", "expected the name of a benchmark");
    return tt__cli_dispatch(&tt__cmd_bench, "benchmark", argc, argv);
}

const tt__command tt__cmd_bench = {
    .name = "bench",
    .what = "measure collectives, RPC, training steps, the store, start-up",
    .usage = "NAME [FLAGS]",
    .text =
        "Measure one thing and print JSON, one object a line. On a shared machine only ratios between runs mean much.",
    .notes = "'tutti bench NAME --help' lists the flags of each.",
    .parts = bench_parts,
    .run = bench_main,
};
