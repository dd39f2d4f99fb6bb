/* What to execute for the program that the user named. */
#ifndef TT_LAUNCH_LOCAL_PROGRAM_H
#define TT_LAUNCH_LOCAL_PROGRAM_H

#include <tutti/base.h>

typedef struct tt__program {
    char *file;  /* path with a slash in it */
    char **argv; /* NULL-terminated; the array and argv[0] belong to this struct */
} tt__program;

/* How the program is run. */
typedef enum tt__program_how {
    TT__PROGRAM_ANY,       /* a script or an executable, as its name and its first bytes say */
    TT__PROGRAM_MODULE,    /* a Python module */
    TT__PROGRAM_NO_PYTHON, /* an executable */
    TT__PROGRAM_RUN_PATH   /* a Python script, by runpy.run_path(); an exception is recorded in the error file */
} tt__program_how;

/* Find what to execute. args[0] is the program as typed, args[1..] are its arguments (`count` in all, at least one);
 * both stay the caller's and must outlive `out`.
 *
 *   a Python module       python3 -u -m NAME ...
 *   NAME.py without its run bit, or without "#!", or where $PYTHON_EXEC is set   python3 -u NAME.py ...
 *   otherwise             an executable: a path if it has a slash, else looked up in PATH
 *
 * Python is $PYTHON_EXEC, or python3 from PATH. The program is checked now, so that a wrong name is one error and not
 * one per rank. local_rank_at (may be NULL): leave room for an argument before args[1], *local_rank_at := its place in
 * out->argv. Errors: TT_ERR_NOT_FOUND there is no such file; TT_ERR_INVALID it can't be executed; TT_ERR_MEMORY. */
tt_status tt__program_find(tt__program *out, char **args, int count, tt__program_how how, int *local_rank_at);
void tt__program_free(tt__program *program);

#endif
