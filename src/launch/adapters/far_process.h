/* Processes that reach other hosts: by ssh, or by what TUTTI_SSH names in its place, with flags. */
#ifndef TT_LAUNCH_ADAPTERS_FAR_PROCESS_H
#define TT_LAUNCH_ADAPTERS_FAR_PROCESS_H

#include <tutti/base.h>

#include <signal.h>
#include <sys/types.h>

enum { TT__SSH_WORDS = 128, TT__SSH_TEXT = 4096 };

/* The command that reaches another host. */
typedef struct tt__ssh_words {
    char text[TT__SSH_TEXT]; /* the command, cut into `words` */
    char *words[TT__SSH_WORDS];
    int n;
} tt__ssh_words;

/* Make the command's words, to which the caller adds the host and what to run there. TT_ERR_SYSTEM: TUTTI_SSH is
 * blank, or too long. */
tt_status tt__ssh_words_make(tt__ssh_words *ssh);

/* How a process is started. */
typedef struct tt__far_start {
    char **environment;   /* NULL: this process's */
    int input, output;    /* descriptors that become its stdin, -1: /dev/null, and its stdout, -1: ours */
    const sigset_t *mask; /* its signal mask; NULL: this thread's */
    bool apart;           /* it leads a process group, and SIGPIPE ends it */
} tt__far_start;

/* Start words[0], looked up in PATH unless it has a slash. Returns 0, or the errno that says why it can't be. */
int tt__far_process_start(pid_t *pid, char **words, const tt__far_start *how);

/* Open a pidfd of a child; if there is none, kill the child. -1: errno says why. */
int tt__far_process_watch_or_kill(pid_t pid);

/* Wait until a child has ended; *status as of waitpid(2). Returns its exit code, 128 + N for signal N. */
int tt__far_process_wait(pid_t pid, int *status);

#endif
