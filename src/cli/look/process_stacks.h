/* The stacks of one process: where in the program, and in the libraries below it, each of its threads is. To be called
 * in a child: reading tables of another process's files may take long or go wrong. A process whose tracer ends goes
 * on. */
#ifndef TT_CLI_PROCESS_STACKS_H
#define TT_CLI_PROCESS_STACKS_H

#include <tutti/base.h>

#include <stdio.h>
#include <sys/types.h>

/* libdw of elfutils, which reads the stacks of other processes, loaded for the first stack. */
typedef struct tt__dwfl tt__dwfl;

/* Return its functions; NULL and TT_ERR_UNSUPPORTED where there is no libdw. Called by one thread. */
const tt__dwfl *tt__dwfl_get(void);

typedef struct tt__stacks_wanted {
    int frames;   /* at most, of each thread */
    pid_t first;  /* this thread first, if it is there, with repeated calls folded; 0: in any order */
    uint64_t pc;  /* in `first`, leave out the frames before this instruction: a signal's handler; 0: none */
    int others;   /* if `first` is there: at most so many other threads */
    int o_frames; /* at most, of each of these */
} tt__stacks_wanted;

/* Write the stacks of process `pid` on `out`, innermost calls first. The process is stopped meanwhile, and goes on.
 * Files that debuginfod would have to fetch are not read. Returns false if nothing could be seen; `out` has the
 * reason. */
bool tt__process_stacks(const tt__dwfl *lib, pid_t pid, const tt__stacks_wanted *wanted, FILE *out);

#endif
