/* PMI-1 as MPICH speaks it: lines of "cmd=NAME key=value ...", over the descriptor that PMI_FD names. A thread
 * answers. */
#include "pmi.h"

#include "plugin.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LINE = PMI_VALUE_MAX + PMI_KEY_MAX + PMI_NAME_MAX + 256 };

/* Copy the value of `name` in `line`, up to the next blank; a value of "put" is the rest of the line. Returns "" if it
 * is not there. */
static const char *field(const char *line, const char *name, char *value, size_t size) {
    size_t n = strlen(name);
    value[0] = '\0';
    for (const char *at = line; (at = strstr(at, name)); at += n) {
        if ((at == line || at[-1] == ' ') && at[n] == '=') {
            size_t length = strcspn(at + n + 1, strcmp(name, "value") != 0 ? " \n" : "\n");
            snprintf(value, size, "%.*s", (int)length, at + n + 1);
            break;
        }
    }
    return value;
}

/* Write which node each rank is on, in MPICH's notation: runs of ranks as (node, 1, how many). */
static tt_status mapping(char *text, size_t size) {
    size_t n = (size_t)snprintf(text, size, "(vector");
    for (int r = 0, run; r < pmi_size() && n < size; r += run) {
        for (run = 1; r + run < pmi_size() && pmi_host_of(r + run) == pmi_host_of(r);)
            run++;
        n += (size_t)snprintf(text + n, size - n, ",(%d,1,%d)", pmi_host_of(r), run);
    }
    if (n < size)
        n += (size_t)snprintf(text + n, size - n, ")");
    return n < size ? TT_OK : TT_ERR_NOT_FOUND; /* then MPICH takes each rank to be alone on its node */
}

static void answer_get(const char *line, char *answer) {
    char key[PMI_KEY_MAX], value[PMI_VALUE_MAX];
    field(line, "key", key, sizeof key);
    tt_status status =
        strcmp(key, "PMI_process_mapping") != 0 ? pmi_get(key, value, sizeof value) : mapping(value, sizeof value);
    if (status)
        snprintf(answer, LINE, "cmd=get_result rc=-1 msg=key_%s_not_found value=unknown\n", key);
    else
        snprintf(answer, LINE, "cmd=get_result rc=0 msg=success value=%s\n", value);
}

static void answer_put(const char *line, char *answer) {
    char key[PMI_KEY_MAX], value[PMI_VALUE_MAX];
    field(line, "key", key, sizeof key);
    field(line, "value", value, sizeof value);
    bool ok = pmi_put(key, value) == TT_OK;
    snprintf(answer, LINE, "cmd=put_result rc=%d msg=%s\n", ok ? 0 : -1, ok ? "success" : "store_failed");
}

/* Write the answer to one line; returns whether there is one. A barrier that fails has none, so the connection ends. */
static bool answer_line(const char *line, char *answer) {
    char command[64];
    field(line, "cmd", command, sizeof command);
    answer[0] = '\0';
    if (!strcmp(command, "init"))
        snprintf(answer, LINE, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n");
    else if (!strcmp(command, "get_maxes"))
        snprintf(answer, LINE, "cmd=maxes kvsname_max=%d keylen_max=%d vallen_max=%d\n", PMI_NAME_MAX, PMI_KEY_MAX,
                 PMI_VALUE_MAX);
    else if (!strcmp(command, "get_appnum"))
        snprintf(answer, LINE, "cmd=appnum appnum=0\n");
    else if (!strcmp(command, "get_my_kvsname"))
        snprintf(answer, LINE, "cmd=my_kvsname kvsname=tutti\n");
    else if (!strcmp(command, "get_universe_size"))
        snprintf(answer, LINE, "cmd=universe_size size=%d\n", pmi_size());
    else if (!strcmp(command, "get"))
        answer_get(line, answer);
    else if (!strcmp(command, "put"))
        answer_put(line, answer);
    else if (!strcmp(command, "barrier_in") && pmi_barrier() == TT_OK)
        snprintf(answer, LINE, "cmd=barrier_out\n");
    else if (!strcmp(command, "finalize"))
        snprintf(answer, LINE, "cmd=finalize_ack\n");
    else
        mpi_host->log(TT_LOG_WARNING, "mpi: MPICH asks \"%s\" of its process manager, which is not served here",
                      command);
    return answer[0] != '\0';
}

static bool write_all(int fd, const char *text) {
    size_t left = strlen(text);
    while (left) {
        ssize_t n = send(fd, text, left, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        text += n;
        left -= (size_t)n;
    }
    return true;
}

typedef struct connection {
    int fd;
    size_t length;
    char line[LINE], answer[LINE];
} connection;

/* Read the next line, with a NUL for its end. Not by a FILE: one that waits for a line would lock out fflush(NULL). */
static bool read_line(connection *c) {
    for (c->length = 0; c->length < LINE - 1; c->length++) {
        ssize_t n = recv(c->fd, c->line + c->length, 1, 0);
        if (n < 0 && errno == EINTR) {
            c->length--;
            continue;
        }
        if (n <= 0)
            return false;
        if (c->line[c->length] == '\n')
            break;
    }
    c->line[c->length] = '\0';
    return true;
}

static void *serve(void *argument) {
    connection *c = argument;
    while (read_line(c) && answer_line(c->line, c->answer) && write_all(c->fd, c->answer))
        ;
    close(c->fd);
    free(c);
    return NULL;
}

static tt_status start_thread(int fd) {
    pthread_t thread;
    connection *c = malloc(sizeof *c);
    int error = c ? 0 : ENOMEM;
    if (c) {
        c->fd = fd;
        error = pthread_create(&thread, NULL, serve, c);
    }
    if (error) {
        free(c);
        close(fd);
        return mpi_host->fail(TT_ERR_SYSTEM, "mpi: can't start a thread: %s", strerror(error));
    }
    pthread_detach(thread); /* it ends when MPICH finalizes, or with the process */
    return TT_OK;
}

tt_status pmi_announce(void) {
    int ends[2];
    char number[16];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends))
        return mpi_host->fail(TT_ERR_SYSTEM, "mpi: can't make a socket pair: %s", strerror(errno));
    tt_status status = start_thread(ends[0]);
    if (status) {
        close(ends[1]);
        return status;
    }
    snprintf(number, sizeof number, "%d", ends[1]);
    setenv("PMI_FD", number, 1);
    snprintf(number, sizeof number, "%d", pmi_rank());
    setenv("PMI_RANK", number, 1);
    snprintf(number, sizeof number, "%d", pmi_size());
    setenv("PMI_SIZE", number, 1);
    return TT_OK;
}

void pmi_unannounce(void) {
    unsetenv("PMI_FD");
    unsetenv("PMI_RANK");
    unsetenv("PMI_SIZE");
}
