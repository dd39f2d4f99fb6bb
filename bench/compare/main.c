/* tutti-bench: comparisons that only Tutti's development needs, with the flags, models and timers of `tutti bench`. It
 * starts its ranks by itself: it has `tutti run`, too. */
#include "compare/compare.h"

#include "launch/local/children.h"

static const tt__command *const *compare_parts(void) {
    static const tt__command *const parts[] = {&tt__compare_agreement, &tt__compare_link, &tt__compare_pipeline,
                                               &tt__compare_zero,      &tt__cmd_run,      NULL};
    return parts;
}

static const tt__command compare_command = {
    .name = "",
    .usage = "NAME [FLAGS]",
    .text = "Compare one thing with another and print JSON, one object a line.",
    .notes = "'tutti-bench NAME --help' lists the flags of each.",
    .parts = compare_parts,
};

int main(int argc, char **argv) {
    tt__cli_program = "tutti-bench";
    tt__children_keep_ends();
    int code = tt__cli_dispatch(&compare_command, "comparison", argc, argv);
    if (!fflush(stdout) && !ferror(stdout))
        return code;
    fprintf(stderr, "tutti-bench: writing the output failed\n");
    return code ? code : TT__EXIT_FAILED;
}
