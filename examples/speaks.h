/* Which of a job's processes tells what is wrong with the command line. */
#ifndef EXAMPLES_SPEAKS_H
#define EXAMPLES_SPEAKS_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* With several ranks only the first one does. The job is not joined yet, so whoever started it says who that is. */
static bool speaks(void) {
    static const char *const ranks[] = {"RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"};
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        const char *rank = getenv(ranks[i]);
        if (rank)
            return !strcmp(rank, "0");
    }
    return true;
}

#endif
