/* libdw of elfutils, which finds its way through the stack of another process, loaded by the first stack. */
#ifndef TT_CLI_DWFL_LOAD_H
#define TT_CLI_DWFL_LOAD_H

#include <tutti/base.h>

#include <elfutils/libdwfl.h>

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

#endif
