/* tutti-bench agreement: what the always-on check costs each call, in time of the processor. A rank publishes its call,
 * keeps a record of it, and compares words; once as Tutti does, and once with a bare sequence number, as a library
 * without the check would. */
#include "base/machine/clock.h"
#include "base/text/format.h"
#include "base/text/parse.h"
#include "cli/bench/bench.h"
#include "comm/record/call_record.h"
#include "comm/record/recorder.h"
#include "compare/compare.h"

#include <stdio.h>
#include <stdlib.h>

enum { REPETITIONS = 9 };

static const tt__flag agreement_flags[] = {
    TT__VALUE("iterations", 'i', "N", "calls in each repetition, of which the median is taken (default 1000000)"), {0}};

static int agreement_main(int argc, char **argv);

const tt__command tt__compare_agreement = {
    .name = "agreement",
    .what = "what the check that all ranks make the same call costs",
    .usage = "[--iterations N]",
    .text = "What the check that all ranks make the same call costs a call: its signature, its record, the comparison.",
    .flags = agreement_flags,
    .run = agreement_main,
};

/* What a rank writes of its calls and what another reads, here of the same process. */
typedef struct words {
    _Alignas(128) _Atomic uint64_t mine;
    _Alignas(128) _Atomic uint64_t theirs;
} words;

static bool words_agree(const words *w, uint64_t mine) {
    return atomic_load_explicit(&w->theirs, memory_order_acquire) == mine;
}

static void publish_word(words *w, uint64_t word) {
    atomic_store_explicit(&w->mine, word, memory_order_release);
    atomic_store_explicit(&w->theirs, word, memory_order_relaxed);
}

static double without_check(words *w, int64_t calls, int64_t *agreed) {
    int64_t start = tt__now_ns();
    for (int64_t i = 0; i < calls; i++) {
        publish_word(w, (uint64_t)i);
        *agreed += words_agree(w, (uint64_t)i);
    }
    return (double)(tt__now_ns() - start) / (double)calls;
}

static double with_check(words *w, tt__recorder *recorder, int64_t calls, int64_t *agreed) {
    volatile uint64_t count = 1024;
    int64_t start = tt__now_ns();
    for (int64_t i = 0; i < calls; i++) {
        uint64_t kind = tt__signature_kind(TT_OP_ALL_REDUCE, TT_F32, TT_SUM, 0);
        uint64_t word = tt__signature_bits(kind, count) | (uint32_t)i;
        publish_word(w, word);
        tt__record_slot *record =
            tt__record_begin(recorder, __FILE__, __LINE__,
                             (tt__call_record){.seq = (uint32_t)i, .group = 1, .op = TT_OP_ALL_REDUCE, .count = count});
        tt__record_ready(record, TT__CALL_BEGUN);
        *agreed += words_agree(w, word);
        tt__record_done(record, atomic_load_explicit(&record->number, memory_order_relaxed), TT__CALL_DONE, false);
    }
    return (double)(tt__now_ns() - start) / (double)calls;
}

static int agreement_measure(tt__recorder *recorder, int64_t calls) {
    double with[REPETITIONS], without[REPETITIONS];
    int64_t agreed = 0;
    words w = {0};
    tt__recorder_init(recorder, 0, 1);
    for (int i = 0; i < REPETITIONS; i++) {
        without[i] = without_check(&w, calls, &agreed);
        with[i] = with_check(&w, recorder, calls, &agreed);
    }
    if (agreed != 2 * REPETITIONS * calls) {
        fprintf(stderr, "tutti-bench agreement: words differ that should not\n");
        return TT__EXIT_FAILED;
    }
    tt__bench_sort(with, REPETITIONS);
    tt__bench_sort(without, REPETITIONS);
    double middle = with[REPETITIONS / 2] - without[REPETITIONS / 2];
    tt__print(stdout,
              "{\"bench\":\"agreement\",\"ns_with\":%.2f,\"ns_without\":%.2f,\"ns_cost\":%.2f,\"ns_cost_min\":%.2f}\n",
              with[REPETITIONS / 2], without[REPETITIONS / 2], middle, with[0] - without[0]);
    return TT__EXIT_OK;
}

static int agreement_main(int argc, char **argv) {
    int64_t calls = 1000000;
    const char *flag;
    for (int c; (c = tt__cli_next_flag(&tt__compare_agreement, argc, argv, &flag)) != -1;) {
        if (c == 'h' || c == '?')
            return c == 'h' ? TT__EXIT_OK : TT__EXIT_USAGE;
        if (tt__parse_i64("--iterations", optarg, 1, 1000000000, &calls))
            return tt__cli_usage_error("agreement", "%s: not understood: \"%s\"", flag, optarg);
    }
    tt__recorder *recorder = NULL;
    if (posix_memalign((void **)&recorder, 128, sizeof *recorder)) {
        fprintf(stderr, "tutti-bench agreement: no memory\n");
        return TT__EXIT_FAILED;
    }
    *recorder = (tt__recorder){0};
    int code = agreement_measure(recorder, calls);
    free(recorder);
    return code;
}
