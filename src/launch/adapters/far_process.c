#include "launch/adapters/far_process.h"

#include "base/error.h"
#include "base/files/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

tt_status tt__ssh_words_make(tt__ssh_words *ssh) {
    static const char batch[] = "ssh -T -o BatchMode=yes -o ConnectTimeout=15 -o ServerAliveInterval=15";
    const char *given = secure_getenv("TUTTI_SSH");
    char *rest, *word;
    *ssh = (tt__ssh_words){0};
    int length = snprintf(ssh->text, sizeof ssh->text, "%s", given && *given ? given : batch);
    for (word = strtok_r(ssh->text, " \t", &rest); word && ssh->n < TT__SSH_WORDS - 1;
         word = strtok_r(NULL, " \t", &rest))
        ssh->words[ssh->n++] = word;
    if (word || length >= TT__SSH_TEXT)
        return tt__fail(TT_ERR_SYSTEM, "TUTTI_SSH: expected at most %d words in %d bytes", TT__SSH_WORDS - 1,
                        TT__SSH_TEXT - 1);
    return ssh->n ? TT_OK : tt__fail(TT_ERR_SYSTEM, "TUTTI_SSH: expected a command, got blanks");
}

static int set_attributes(posix_spawnattr_t *attributes, const tt__far_start *how) {
    sigset_t pipes;
    int flags =
        (how->mask ? POSIX_SPAWN_SETSIGMASK : 0) | (how->apart ? POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF : 0);
    sigemptyset(&pipes);
    sigaddset(&pipes, SIGPIPE);
    if (how->mask)
        posix_spawnattr_setsigmask(attributes, how->mask);
    posix_spawnattr_setsigdefault(attributes, &pipes);
    return posix_spawnattr_setflags(attributes, (short)flags);
}

int tt__far_process_start(pid_t *pid, char **words, const tt__far_start *how) {
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    int errnum = posix_spawn_file_actions_init(&files);
    if (errnum)
        return errnum;
    errnum = posix_spawnattr_init(&attributes);
    if (!errnum) {
        errnum = set_attributes(&attributes, how);
        if (!errnum)
            errnum = how->input < 0 ? posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0)
                                    : posix_spawn_file_actions_adddup2(&files, how->input, STDIN_FILENO);
        if (!errnum && how->output >= 0)
            errnum = posix_spawn_file_actions_adddup2(&files, how->output, STDOUT_FILENO);
        if (!errnum)
            errnum =
                posix_spawnp(pid, words[0], &files, &attributes, words, how->environment ? how->environment : environ);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&files);
    return errnum;
}

int tt__far_process_watch_or_kill(pid_t pid) {
    int process = tt__fd((int)syscall(SYS_pidfd_open, pid, 0)), errnum = errno;
    if (process < 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    errno = errnum;
    return process;
}

int tt__far_process_wait(pid_t pid, int *status) {
    *status = 0;
    while (waitpid(pid, status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(*status) ? WEXITSTATUS(*status) : 128 + WTERMSIG(*status);
}
