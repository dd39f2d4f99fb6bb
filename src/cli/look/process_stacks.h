/* The stacks of one process: where in the program, and in the libraries below it, each of its threads is. To be called
 * in a child: reading tables that another process's files contain may take long or go wrong, and a process whose tracer
 * ends goes on. */
#ifndef TT_CLI_PROCESS_STACKS_H
#define TT_CLI_PROCESS_STACKS_H

#include <tutti/base.h>

#include <elfutils/libdwfl.h>

#include <stdio.h>
#include <sys/types.h>

/* ---- libdw of elfutils, which finds its way through the stack of another process, loaded by the first stack ---- */

/* The functions that are used. Types and constants come from its header. */
#define TT__DWFL_FUNCTIONS(X)       \
    X(dwfl_addrmodule)              \
    X(dwfl_begin)                   \
    X(dwfl_end)                     \
    X(dwfl_errmsg)                  \
    X(dwfl_frame_pc)                \
    X(dwfl_getthread_frames)        \
    X(dwfl_getthreads)              \
    X(dwfl_lineinfo)                \
    X(dwfl_linux_proc_attach)       \
    X(dwfl_linux_proc_find_elf)     \
    X(dwfl_linux_proc_report)       \
    X(dwfl_module_addrinfo)         \
    X(dwfl_module_getsrc)           \
    X(dwfl_module_info)             \
    X(dwfl_report_end)              \
    X(dwfl_standard_find_debuginfo) \
    X(dwfl_thread_getframes)        \
    X(dwfl_thread_tid)

#define TT__LIBDW "libdw.so.1" /* its only ABI so far */

typedef struct tt__dwfl {
#define TT__DWFL_FIELD(name) __typeof__(name) *name;
    TT__DWFL_FUNCTIONS(TT__DWFL_FIELD)
#undef TT__DWFL_FIELD
} tt__dwfl;

/* Return its functions; NULL and TT_ERR_UNSUPPORTED where there is no libdw. Called by one thread. */
const tt__dwfl *tt__dwfl_get(void);

/* ---- stacks ---- */

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
