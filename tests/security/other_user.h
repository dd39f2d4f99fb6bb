/* Processes of another user of this machine, for tests that root runs. */
#ifndef TESTS_SECURITY_OTHER_USER_H
#define TESTS_SECURITY_OTHER_USER_H

#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STRANGER = 61234, OTHER_STRANGER = 61235 };

/* Become that user for good. */
static inline void become_user(uid_t user) {
    if (setgroups(0, NULL) || setresgid(user, user, user) || setresuid(user, user, user))
        _exit(99);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/* Start a process of `user`, which ends with the result of fn(arg). */
static inline pid_t start_as_user(uid_t user, int (*fn)(void *arg), void *arg) {
    fflush(NULL);
    pid_t pid = fork();
    if (pid)
        return pid;
    become_user(user);
    alarm(60);
    _exit(fn(arg));
}

/* The exit code of such a process; 128 + signal. */
static inline int end_of_process(pid_t pid) {
    int status = 0;
    if (waitpid(pid, &status, 0) != pid)
        return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static inline int run_as_user(uid_t user, int (*fn)(void *arg), void *arg) {
    return end_of_process(start_as_user(user, fn, arg));
}

/* Say that only root can make other users' processes, and return the exit code of a skipped test; 0: go on. */
static inline int skipped_without_root(void) {
    if (geteuid() == 0)
        return 0;
    printf("skipped: only root can make processes of other users\n");
    return 77;
}

#endif
