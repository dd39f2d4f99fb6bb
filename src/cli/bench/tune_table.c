/* From times to rules. */
#include "cli/bench/tune.h"

#include <stdio.h>
#include <string.h>

/* Noise: a winner must be faster than the one before by more than this. */
static const double hardly = 0.95;

static int fastest_algorithm(const tt__tune_times *times, int size, int before) {
    int best = before;
    for (int a = 0; a < times->algorithms; a++)
        if (!times->of[a]->own_order &&
            (best < 0 || times->usec[size][a] < times->usec[size][best] * (best == before ? hardly : 1)))
            best = a;
    return best;
}

static void put_rule(tt__bytes *text, const tt__tune_times *times, int algorithm, size_t up_to) {
    char line[256], bytes[32] = "*";
    if (up_to)
        snprintf(bytes, sizeof bytes, "%zu", up_to);
    int n = snprintf(line, sizeof line, "%-20s  %-5d  %-5d  %-9s  %s\n", tt_op_name(times->op), times->ranks,
                     times->hosts, bytes, times->of[algorithm]->name);
    tt__bytes_put(text, line, (size_t)n);
}

void tt__tune_put_rules(tt__bytes *text, const tt__tune_times *times) {
    int before = -1;
    for (int size = 0; size < times->sizes; size++) {
        int now = fastest_algorithm(times, size, before);
        if (before >= 0 && now != before) /* between the two sizes: where sizes grow fourfold, their geometric mean */
            put_rule(text, times, before, times->bytes[size - 1] + (times->bytes[size] - times->bytes[size - 1]) / 3);
        before = now;
    }
    if (before >= 0)
        put_rule(text, times, before, 0);
}

static bool is_replaced(const char *line, const bool ops[TT_OPS], int ranks, int hosts) {
    char op[32], on_ranks[16], on_hosts[16], expected_ranks[16], expected_hosts[16];
    if (sscanf(line, "%31s %15s %15s", op, on_ranks, on_hosts) != 3)
        return true; /* empty */
    snprintf(expected_ranks, sizeof expected_ranks, "%d", ranks);
    snprintf(expected_hosts, sizeof expected_hosts, "%d", hosts);
    for (int i = 0; i < TT_OPS; i++)
        if (ops[i] && !strcmp(op, tt_op_name((tt_op)i)))
            return !strcmp(on_ranks, expected_ranks) && !strcmp(on_hosts, expected_hosts);
    return false;
}

void tt__tune_put_previous(tt__bytes *text, const char *previous, const bool ops[TT_OPS], int ranks, int hosts) {
    while (*previous) {
        char line[256];
        size_t n = strcspn(previous, "\n");
        snprintf(line, sizeof line, "%.*s", (int)n, previous);
        line[strcspn(line, "#")] = '\0';
        if (!is_replaced(line, ops, ranks, hosts)) {
            tt__bytes_put(text, line, strlen(line));
            tt__bytes_put(text, "\n", 1);
        }
        previous += n + (previous[n] == '\n');
    }
}
