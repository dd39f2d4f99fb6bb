/* For tests that start the `tutti` command: a child process with its output captured, temporary folders, all waits with
 * a deadline.
 *
 * A pipe is the proof that nobody is left: the child's descendants inherit its stdout, so end of file there means that
 * all are gone. */
#ifndef TT_TESTS_PROCESS_H
#define TT_TESTS_PROCESS_H

#include "support/patience.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { PROCESS_TEXT = 256 * 1024 };

typedef struct process {
    pid_t pid;
    int fds[2];                 /* read ends of stdout and stderr; -1 = end of file */
    char text[2][PROCESS_TEXT]; /* what the streams have brought, as strings */
    size_t length[2];
    int code; /* exit code, or 128 + signal, as a shell says it */
} process;

static inline int64_t process_now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* The command under test. */
static inline const char *tutti(void) {
    const char *path = getenv("TUTTI");
    if (!path) {
        fprintf(stderr, "set TUTTI to the tutti command\n");
        exit(77);
    }
    return path;
}

/* Start argv[0] (a path, or a name in PATH) in a process group of its own, with `environment` ("NAME=VALUE", ..., NULL;
 * may be NULL itself) added. `input` is its stdin, -1 for none. */
static inline process *process_start(const char *const *argv, const char *const *environment, int input) {
    process *p = calloc(1, sizeof *p);
    int out[2], err[2];
    assert_non_null(p);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(pipe2(err, O_CLOEXEC), 0);
    p->pid = fork();
    assert_true(p->pid >= 0);
    if (p->pid == 0) {
        setpgid(0, 0);
        int null = open("/dev/null", O_RDONLY);
        dup2(input >= 0 ? input : null, 0);
        dup2(out[1], 1);
        dup2(err[1], 2);
        unsetenv("OMP_NUM_THREADS");
        for (; environment && *environment; environment++)
            putenv((char *)(uintptr_t)*environment);
        execvp(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    setpgid(p->pid, p->pid);
    close(out[1]);
    close(err[1]);
    p->fds[0] = out[0];
    p->fds[1] = err[0];
    return p;
}

/* Read once what is there; waits for it at most timeout_ms. */
static inline void process_read(process *p, int timeout_ms) {
    struct pollfd fds[2] = {{.fd = p->fds[0], .events = POLLIN}, {.fd = p->fds[1], .events = POLLIN}};
    poll(fds, 2, timeout_ms);
    for (int i = 0; i < 2; i++) {
        if (!fds[i].revents)
            continue;
        ssize_t n = read(p->fds[i], p->text[i] + p->length[i], PROCESS_TEXT - 1 - p->length[i]);
        if (n > 0) {
            p->length[i] += (size_t)n;
            assert_true(p->length[i] < PROCESS_TEXT - 1);
        } else if (n == 0 || errno != EINTR) {
            close(p->fds[i]);
            p->fds[i] = -1;
        }
    }
}

static inline int count_of(const char *text, const char *what) {
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)); at += strlen(what))
        n++;
    return n;
}

/* Wait until stdout (stream 0) or stderr (1) holds `what` `times` times. */
static inline void process_expect(process *p, int stream, const char *what, int times) {
    int64_t deadline = process_now_ms() + PATIENCE_MS;
    while (count_of(p->text[stream], what) < times) {
        if (p->fds[stream] < 0 || process_now_ms() > deadline) {
            kill(-p->pid, SIGKILL);
            fail_msg("waited for %d times \"%s\", got stdout \"%s\" and stderr \"%s\"", times, what, p->text[0],
                     p->text[1]);
        }
        process_read(p, 100);
    }
}

/* Wait until every process that holds stdout or stderr is gone, and reap. */
static inline void process_finish(process *p) {
    int64_t deadline = process_now_ms() + PATIENCE_MS;
    while (p->fds[0] >= 0 || p->fds[1] >= 0) {
        if (process_now_ms() > deadline) {
            kill(-p->pid, SIGKILL);
            fail_msg("did not end; stdout \"%s\", stderr \"%s\"", p->text[0], p->text[1]);
        }
        process_read(p, 100);
    }
    int status;
    assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
    p->code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static inline void process_free(process *p) {
    for (int i = 0; i < 2; i++)
        if (p->fds[i] >= 0)
            close(p->fds[i]);
    free(p);
}

/* `tutti` with these arguments, to its end. */
#define run_tutti(...) process_run((const char *const[]){tutti(), __VA_ARGS__, NULL}, NULL)
#define run_tutti_env(environment, ...) process_run((const char *const[]){tutti(), __VA_ARGS__, NULL}, environment)
#define start_tutti(...) process_start((const char *const[]){tutti(), __VA_ARGS__, NULL}, NULL, -1)

static inline process *process_run(const char *const *argv, const char *const *environment) {
    process *p = process_start(argv, environment, -1);
    process_finish(p);
    return p;
}

#define assert_contains(text, what)                            \
    do {                                                       \
        if (!strstr(text, what))                               \
            fail_msg("expected \"%s\" in \"%s\"", what, text); \
    } while (0)
#define assert_lacks(text, what)                                     \
    do {                                                             \
        if (strstr(text, what))                                      \
            fail_msg("did not expect \"%s\" in \"%s\"", what, text); \
    } while (0)

/* A fresh temporary folder in `path` (at least 64 bytes). */
static inline char *temporary_folder(char *path) {
    strcpy(path, "/tmp/tutti-test-XXXXXX");
    assert_non_null(mkdtemp(path));
    return path;
}

/* Remove a folder of files; returns how many files it held. */
static inline int remove_folder(const char *path) {
    int n = 0;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir));)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            n += unlinkat(dirfd(dir), entry->d_name, 0) == 0 || unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR) == 0;
    closedir(dir);
    assert_int_equal(rmdir(path), 0);
    return n;
}

/* Write or read a whole small file. */
static inline void write_file(const char *path, const char *text, mode_t mode) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
}

static inline char *read_file(const char *path, char *text, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    ssize_t n = read(fd, text, size - 1);
    assert_true(n >= 0);
    text[n] = '\0';
    close(fd);
    return text;
}

#endif
