#include "launch/local/program.h"

#include "base/error.h"
#include "base/files/fd.h"
#include "base/text/parse.h"
#include "launch/polling.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum kind { MISSING, NOT_A_FILE, NOT_EXECUTABLE, EXECUTABLE };

static enum kind program_kind(const char *path) {
    struct stat info;
    if (stat(path, &info))
        return MISSING;
    if (!S_ISREG(info.st_mode))
        return NOT_A_FILE;
    return access(path, X_OK) ? NOT_EXECUTABLE : EXECUTABLE;
}

static bool starts_with_hash_bang(const char *path) {
    char start[2] = "";
    int fd = tt__fd(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    bool yes = fd >= 0 && read(fd, start, 2) == 2 && start[0] == '#' && start[1] == '!';
    tt__close_fd(&fd);
    return yes;
}

/* Find the executable `name` in $PATH, allocated; NULL if there is none. */
static char *search_path(const char *name) {
    const char *dirs = secure_getenv("PATH");
    char path[PATH_MAX];
    for (const char *dir = dirs && *dirs ? dirs : "/usr/local/bin:/usr/bin:/bin"; dir;) {
        size_t n = strcspn(dir, ":");
        int length = snprintf(path, sizeof path, "%.*s/%s", n ? (int)n : 1, n ? dir : ".", name);
        if (length > 0 && (size_t)length < sizeof path && program_kind(path) == EXECUTABLE)
            return strdup(path);
        dir = dir[n] ? dir + n + 1 : NULL;
    }
    return NULL;
}

static tt_status find_python(char **python, const char *what_for) {
    const char *chosen = secure_getenv("PYTHON_EXEC");
    if (!chosen || !*chosen)
        chosen = "python3";
    *python = strchr(chosen, '/') ? (program_kind(chosen) == EXECUTABLE ? strdup(chosen) : NULL) : search_path(chosen);
    if (*python)
        return TT_OK;
    return tt__fail(TT_ERR_NOT_FOUND,
                    "%s: needs Python, but there is no executable \"%s\"; install python3 or set PYTHON_EXEC", what_for,
                    chosen);
}

static tt_status refuse_program(const char *path, enum kind kind, bool no_python) {
    switch (kind) {
    case MISSING:
        return tt__fail(TT_ERR_NOT_FOUND, "%s: there is no such file", path);
    case NOT_A_FILE:
        return tt__fail(TT_ERR_INVALID, "%s: is not a file that can be run", path);
    default:
        return tt__fail(TT_ERR_INVALID, "%s: is not executable (chmod +x %s)%s", path, path,
                        tt__ends_with(path, ".py") && no_python ? ", and --no-python forbids running it with python3"
                                                                : "");
    }
}

/* Refuse a name without a slash that is not in PATH; the user may have forgotten the "./". */
static tt_status refuse_name(const char *name) {
    static const char *const here[] = {[MISSING] = "",
                                       [NOT_A_FILE] = ", and the one here is not a file that can be run",
                                       [NOT_EXECUTABLE] = ", and the one here is not executable",
                                       [EXECUTABLE] = "; for the one in this directory write ./"};
    enum kind kind = program_kind(name);
    if (!*name)
        return tt__fail(TT_ERR_INVALID, "expected a program to run, got an empty name");
    return tt__fail(TT_ERR_NOT_FOUND, "%s: there is no such program in PATH%s%s", name, here[kind],
                    kind == EXECUTABLE ? name : "");
}

/* Find a path with a slash for a script or executable; *python := whether to run it with Python. */
static tt_status find_program(char **file, bool *python, const char *name, bool no_python) {
    bool script = tt__ends_with(name, ".py");
    enum kind kind = program_kind(name);
    *python = false;
    if (!strchr(name, '/') && !(script && kind != MISSING)) {
        *file = search_path(name);
        return *file ? TT_OK : refuse_name(name);
    }
    const char *chosen = secure_getenv("PYTHON_EXEC");
    if (script && !no_python && (kind == NOT_EXECUTABLE || kind == EXECUTABLE) &&
        (kind == NOT_EXECUTABLE || (chosen && *chosen) || !starts_with_hash_bang(name)))
        *python = true;
    else if (kind != EXECUTABLE)
        return refuse_program(name, kind, no_python);
    if (asprintf(file, "%s%s", strchr(name, '/') ? "" : "./", name) < 0)
        *file = NULL;
    return *file ? TT_OK : tt__fail(TT_ERR_MEMORY, "no memory for the name of %s", name);
}

/* What Python runs for --run-path: like PyTorch's launcher, it records an exception in the error file. */
static char run_path_text[] =
    "import contextlib, json, os, runpy, sys, time, traceback\n"
    "sys.argv = sys.argv[1:]\n"
    "try:\n"
    "    runpy.run_path(sys.argv[0], run_name='__main__')\n"
    "except Exception as error:\n"
    "    path = os.environ.get('TORCHELASTIC_ERROR_FILE')\n"
    "    if path:\n"
    "        more = {'py_callstack': traceback.format_exc(), 'timestamp': str(int(time.time()))}\n"
    "        with contextlib.suppress(OSError), open(path, 'x') as file:\n" /* "x": no link of another user */
    "            json.dump({'message': {'message': f'{type(error).__name__}: {error}', 'extraInfo': more}}, file)\n"
    "    raise\n";

static tt_status check_script(const char *path) {
    enum kind kind = program_kind(path);
    return kind == MISSING || kind == NOT_A_FILE ? refuse_program(path, kind, false) : TT_OK;
}

tt_status tt__program_find(tt__program *out, char **args, int count, tt__program_how how, int *local_rank_at) {
    static char unbuffered[] = "-u", run_module[] = "-m", run_text[] = "-c", local_rank[] = "--local-rank";
    bool python = how == TT__PROGRAM_MODULE || how == TT__PROGRAM_RUN_PATH;
    *out = (tt__program){0};
    if (how == TT__PROGRAM_RUN_PATH)
        TT__TRY(check_script(args[0]));
    if (!python)
        TT__TRY(find_program(&out->file, &python, args[0], how == TT__PROGRAM_NO_PYTHON));
    if (python) {
        free(out->file);
        out->file = NULL;
        TT__TRY(find_python(&out->file, args[0]));
    }
    char **argv = out->argv = calloc((size_t)count + 6, sizeof *argv);
    char *name = argv ? strdup(python ? out->file : args[0]) : NULL;
    if (!name) {
        tt__program_free(out);
        return tt__fail(TT_ERR_MEMORY, "no memory for the arguments of %s", args[0]);
    }
    *argv++ = name;
    if (python)
        *argv++ = unbuffered;
    if (how == TT__PROGRAM_MODULE)
        *argv++ = run_module;
    if (how == TT__PROGRAM_RUN_PATH) {
        *argv++ = run_text;
        *argv++ = run_path_text;
    }
    if (python)
        *argv++ = args[0];
    if (local_rank_at) {
        *local_rank_at = (int)(argv - out->argv);
        *argv++ = local_rank;
    }
    memcpy(argv, args + 1, (size_t)(count - 1) * sizeof *argv);
    return TT_OK;
}

void tt__program_free(tt__program *program) {
    if (program->argv)
        free(program->argv[0]);
    free(program->argv);
    free(program->file);
    *program = (tt__program){0};
}
