/* What to execute for the program that the user named. */
#ifndef TT_ELASTIC_PROGRAM_H
#define TT_ELASTIC_PROGRAM_H

#include <tutti/base.h>

typedef struct tt__program {
    char *file;  /* path with a slash in it */
    char **argv; /* NULL-terminated; the array and argv[0] belong to this struct */
} tt__program;

/* Find what to execute. args[0] is the program as typed, args[1..] are its arguments (`count` in all, at least one);
 * both stay the caller's and must outlive `out`. module      args[0] is a Python module: python3 -u -m NAME ... NAME.py
 * without its run bit, or without "#!": python3 -u NAME.py ... (not with no_python) otherwise   an executable: a path
 * if it has a slash, else looked up in PATH. Python is $PYTHON_EXEC, or python3 from PATH. The program is checked now,
 * so that a wrong name is one error and not one per rank. Errors: TT_ERR_NOT_FOUND there is no such file;
 * TT_ERR_INVALID it can't be executed; TT_ERR_MEMORY. */
tt_status tt__program_find(tt__program *out, char **args, int count, bool module, bool no_python);
void tt__program_free(tt__program *program);

#endif
