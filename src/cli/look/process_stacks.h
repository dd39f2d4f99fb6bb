/* The stacks of one process: where in the program, and in the libraries below it, each of its threads is. To be called
 * in a child: reading tables that another process's files contain may take long or go wrong, and a process whose tracer
 * ends goes on. */
#ifndef TT_CLI_PROCESS_STACKS_H
#define TT_CLI_PROCESS_STACKS_H

#include "cli/look/dwfl_load.h"

#include <stdio.h>
#include <sys/types.h>

typedef struct tt__stacks_wanted {
    int frames;   /* at most, of each thread */
    pid_t first;  /* this thread first, where it is there, with calls that repeat themselves folded; 0: in any order */
    uint64_t pc;  /* of that one only what called this instruction, if it is found; a signal's handler is left out so */
    int others;   /* if `first` is there: at most so many other threads, */
    int o_frames; /* with at most so many frames */
} tt__stacks_wanted;

/* Write the stacks of process `pid` on `out`, innermost calls first. The process is stopped meanwhile, and goes on. A
 * file that debuginfod would have to fetch is not read. False: nothing could be seen, and why stands there. */
bool tt__process_stacks(const tt__dwfl *lib, pid_t pid, const tt__stacks_wanted *wanted, FILE *out);

#endif
