#include "launch/adapters/ssh_job.h"

#include "base/bytes.h"
#include "base/error.h"
#include "base/files/fd.h"
#include "base/machine/clock.h"
#include "base/random_bytes.h"
#include "base/text/format.h"
#include "launch/adapters/far_process.h"
#include "launch/adapters/remote_node.h"
#include "launch/machine/failures.h"
#include "launch/polling.h"
#include "net/net.h"
#include "net/secure/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TOGETHER_MS = 30000, END_MS = 10000, LOOK_MS = 1000, MIN_PORT = 20000, PORTS = 12000 };

typedef struct ssh_node {
    pid_t pid;
    int process, orders; /* pidfd; the pipe to its stdin, -1 when closed */
    tt__bytes order;     /* what it is told; `sent` bytes of it are in the pipe */
    size_t sent, needed; /* needed: without signals */
    bool refused;        /* it closed its end of the pipe before it had all that is needed */
    int exit_code;
} ssh_node;

typedef struct ssh_starter {
    const tt__ssh_job *job;
    char self[PATH_MAX], directory[PATH_MAX], own[256], address[NI_MAXHOST];
    char remote[2 * PATH_MAX]; /* the command for a shell of another host */
    tt__ssh_words ssh;
    int port, left;      /* nodes that have not ended */
    bool broken;         /* a launcher could not be started, or was lost */
    int last_end;        /* the node that ended last */
    int64_t last_end_ms; /* when that ended; 0: none has */
    int64_t end_ms;      /* when what is left is killed; INT64_MAX: nobody was told to end */
    int signals, taken;
    sigset_t mask;
    ssh_node *nodes;
    struct pollfd *fds;
} ssh_starter;

static void say_of_host(const ssh_starter *s, const char *format, ...) TT_PRINTF(2, 3);
static void say_of_host(const ssh_starter *s, const char *format, ...) {
    char line[1024];
    va_list args;
    va_start(args, format);
    tt__vformat(line, sizeof line, format, args);
    va_end(args);
    s->job->say(s->job->user, line);
}

/* ---- what each node is told */

static void put_order_word(tt__bytes *to, const char *text) { tt__bytes_put(to, text, strlen(text) + 1); }

static void put_count(tt__bytes *to, const char *format, int64_t number) {
    char text[64];
    snprintf(text, sizeof text, format, (long long)number);
    put_order_word(to, text);
}

/* Does the variable describe this host or login alone, or hold a secret? Secrets are put by themselves. */
static bool stays_here(const char *variable) {
    static const char *const names[] = {
        "HOSTNAME=",  "DISPLAY=", "SSH_",          "XDG_",        "DBUS_",          "TMPDIR=",         "TT_SECRET",
        "TUTTI_SSH=", "PET_SSH=", "PET_HOSTFILE=", "PET_NNODES=", "PET_NODE_RANK=", "PET_SECRET_FILE="};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strncmp(variable, names[i], strlen(names[i])))
            return true;
    return false;
}

static int count_words(char **words) {
    int n = 0;
    while (words[n])
        n++;
    return n;
}

/* The launcher's command line. Of flags given twice the last one holds. */
static void put_command(const ssh_starter *s, tt__bytes *to, int node) {
    enum { OWN_FLAGS = 5 };
    const tt__host *host = &s->job->hosts->of[node];
    int words = 2 + count_words(s->job->flags) + OWN_FLAGS + (host->slots > 0) + count_words(s->job->program);
    put_count(to, "%lld", words);
    put_order_word(to, s->self);
    put_order_word(to, s->job->command);
    for (char **flag = s->job->flags; *flag; flag++)
        put_order_word(to, *flag);
    put_count(to, "--nnodes=%lld", s->job->hosts->n);
    put_count(to, "--node-rank=%lld", node);
    put_count(to, "--master-port=%lld", s->port);
    tt__bytes_put(to, "--master-addr=", strlen("--master-addr="));
    put_order_word(to, s->address);
    if (host->slots > 0)
        put_count(to, "--nproc-per-node=%lld", host->slots);
    put_order_word(to, "--");
    for (char **word = s->job->program; *word; word++)
        put_order_word(to, *word);
}

static void put_order(const ssh_starter *s, tt__bytes *to, int node) {
    put_order_word(to, s->directory);
    put_command(s, to, node);
    for (char **variable = environ; *variable; variable++)
        if (!stays_here(*variable))
            put_order_word(to, *variable);
    put_order_word(to, TT__REMOTE_VARIABLE "=1");
    tt__bytes_put(to, "TT_SECRET=", strlen("TT_SECRET="));
    put_order_word(to, s->job->secret);
}

/* Make what a node is told. */
static tt_status make_order(const ssh_starter *s, int node) {
    tt__bytes order = {0}, *all = &s->nodes[node].order;
    char head[TT__REMOTE_HEAD_SIZE];
    put_order(s, &order, node);
    snprintf(head, sizeof head, "tutti %s %zu\n", tt_version(), order.size);
    tt__bytes_put(all, head, strlen(head));
    tt__bytes_put(all, order.data, order.size);
    bool failed = order.failed || all->failed;
    s->nodes[node].needed = all->size;
    size_t size = order.size;
    if (order.data)
        explicit_bzero(order.data, order.size);
    tt__bytes_free(&order);
    if (failed)
        return tt__fail(TT_ERR_MEMORY, "no memory for the job's environment");
    return size <= TT__REMOTE_MAX_BYTES
               ? TT_OK
               : tt__fail(TT_ERR_SYSTEM, "the environment and the arguments have more than %d bytes",
                          TT__REMOTE_MAX_BYTES);
}

static void close_orders(ssh_node *node) {
    tt__close_fd(&node->orders);
    if (node->order.data)
        explicit_bzero(node->order.data, node->order.size);
    tt__bytes_free(&node->order);
    node->order = (tt__bytes){0};
    node->sent = 0;
}

/* Is there something that the pipe has had no room for? */
static bool has_unsent(const ssh_node *node) { return node->orders >= 0 && node->sent < node->order.size; }

/* Write as much of the order as the pipe takes now. If ssh has ended, it says itself why. */
static void send_orders(ssh_node *node) {
    while (has_unsent(node)) {
        ssize_t n = write(node->orders, node->order.data + node->sent, node->order.size - node->sent);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0 && errno != EINTR) {
            node->refused = node->sent < node->needed;
            close_orders(node);
        }
        node->sent += n > 0 ? (size_t)n : 0;
    }
}

/* ---- starting */

static bool is_this_host(const ssh_starter *s, int node) {
    const char *name = s->job->hosts->of[node].name;
    return !strcmp(name, "localhost") || !strcmp(name, s->own);
}

/* The command that reaches a node: ssh, or on this host the far end itself. */
static void make_ssh_words(const ssh_starter *s, int node, char *words[TT__SSH_WORDS + 8]) {
    static char far_end[] = "remote-node";
    int n = 0;
    if (is_this_host(s, node)) {
        words[n++] = (char *)(uintptr_t)s->self;
        words[n++] = far_end;
    } else {
        for (; n < s->ssh.n; n++)
            words[n] = s->ssh.words[n];
        words[n++] = s->job->hosts->of[node].name;
        words[n++] = (char *)(uintptr_t)s->remote;
    }
    words[n] = NULL;
}

static tt_status start_ssh(ssh_starter *s, int node) {
    int ends[2];
    char *words[TT__SSH_WORDS + 8];
    ssh_node *own = &s->nodes[node];
    if (pipe2(ends, O_CLOEXEC))
        return tt__fail_errno(TT_ERR_SYSTEM, errno, "no pipe to host %s", s->job->hosts->of[node].name);
    own->orders = tt__fd(ends[1]);
    int from = tt__fd(ends[0]);
    make_ssh_words(s, node, words);
    /* apart: the terminal's Ctrl-C is for the starter alone */
    const tt__far_start how = {.input = from, .output = -1, .mask = &s->mask, .apart = true};
    int errnum = own->orders < 0 || from < 0 ? EMFILE : tt__far_process_start(&own->pid, words, &how);
    tt__close_fd(&from);
    if (errnum)
        return tt__fail_errno(TT_ERR_SYSTEM, errnum, "host %s: can't run %s", s->job->hosts->of[node].name, words[0]);
    own->process = tt__far_process_watch_or_kill(own->pid);
    if (own->process < 0)
        return tt__fail_errno(TT_ERR_SYSTEM, errno, "can't watch ssh");
    s->left++;
    TT__TRY(make_order(s, node));
    fcntl(own->orders, F_SETFL, O_NONBLOCK);
    send_orders(own);
    return TT_OK;
}

/* Make the words of ssh, and what another host's shell runs. */
static tt_status make_ssh_command(ssh_starter *s) {
    TT__TRY(tt__ssh_words_make(&s->ssh));
    if (strchr(s->self, '\''))
        return tt__fail(TT_ERR_SYSTEM, "the path of this command has a quote in it: %s", s->self);
    snprintf(s->remote, sizeof s->remote, "exec '%s' remote-node", s->self);
    return TT_OK;
}

static tt_status find_own_paths(ssh_starter *s) {
    ssize_t n = readlink("/proc/self/exe", s->self, sizeof s->self - 1);
    if (n < 0 || !getcwd(s->directory, sizeof s->directory) || gethostname(s->own, sizeof s->own - 1))
        return tt__fail_errno(TT_ERR_SYSTEM, errno, "can't find this command's path, directory and host");
    s->self[n] = 0;
    return TT_OK;
}

/* Choose where node 0 serves the store: at its host name, which all other hosts must know, too, and at a random
 * port, as free ports there can't be known here, and jobs must not meet. */
static tt_status choose_place(ssh_starter *s) {
    const tt__ssh_job *job = s->job;
    uint32_t random = 0;
    if (job->master_addr)
        snprintf(s->address, sizeof s->address, "%s", job->master_addr);
    else if (job->hosts->n > 1 && !strcmp(job->hosts->of[0].name, "localhost"))
        snprintf(s->address, sizeof s->address, "%s", s->own);
    else
        tt__host_address(&job->hosts->of[0], s->address, sizeof s->address);
    if (!job->master_port)
        TT__TRY(tt__random_bytes(&random, sizeof random));
    s->port = job->master_port ? job->master_port : MIN_PORT + (int)(random % PORTS);
    return TT_OK;
}

static tt_status open_starter_signals(ssh_starter *s) {
    static const int caught[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++) {
        struct sigaction action;
        if (sigaction(caught[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
            sigaddset(&set, caught[i]);
    }
    sigprocmask(SIG_BLOCK, &set, &s->mask);
    signal(SIGPIPE, SIG_IGN);
    s->signals = tt__fd(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
    return s->signals < 0 ? tt__fail_errno(TT_ERR_SYSTEM, errno, "can't receive signals") : TT_OK;
}

/* ---- while they run */

/* The launchers are told to end. */
static void begin_end_of_ssh(ssh_starter *s) {
    if (s->end_ms == INT64_MAX)
        s->end_ms = tt__deadline_ms(s->job->grace_ms + END_MS);
}

static void close_all_orders(ssh_starter *s) {
    for (int i = 0; i < s->job->hosts->n; i++)
        close_orders(&s->nodes[i]);
    begin_end_of_ssh(s);
}

/* A host may hang, and its ssh with it. Kill what has not ended in time; launchers that run there see the end of the
 * connection. */
static void kill_late_ssh(ssh_starter *s) {
    if (tt__left_ms(s->end_ms))
        return;
    s->broken = true;
    s->end_ms = INT64_MAX - 1; /* once */
    for (int i = 0; i < s->job->hosts->n; i++) {
        if (s->nodes[i].process < 0)
            continue;
        say_of_host(s, "host %s has not ended in time: not waiting for it", s->job->hosts->of[i].name);
        kill(-s->nodes[i].pid, SIGKILL);
    }
}

/* The first signal goes to the launchers, which end their ranks; a node that has not even read its order is killed. A
 * second one kills ssh itself: what is left on the hosts sees the end of the connection. */
static void hand_signals_on(ssh_starter *s) {
    struct signalfd_siginfo info;
    while (read(s->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        unsigned char sig = (unsigned char)info.ssi_signo;
        char name[32];
        say_of_host(s,
                    s->taken ? "got %s again: not waiting for the hosts"
                             : "got %s: ending the hosts' launchers (a second signal: not waiting for them)",
                    tt__signal_name(sig, name, sizeof name));
        begin_end_of_ssh(s);
        for (int i = 0; i < s->job->hosts->n; i++) {
            ssh_node *node = &s->nodes[i];
            if (node->process >= 0 && (s->taken || has_unsent(node))) {
                s->broken = true; /* its end, and the others', mean nothing more */
                kill(-node->pid, SIGKILL);
            } else if (node->orders >= 0)
                tt__bytes_put(&node->order, &sig, 1);
            send_orders(node);
        }
        s->taken = s->taken ? s->taken : sig;
    }
}

/* A node's process has ended. If no launcher ran there, or it was lost, end the others: they would wait for it. */
static void take_node_end(ssh_starter *s, int i) {
    int status, unread = 0;
    ssh_node *node = &s->nodes[i];
    node->exit_code = tt__far_process_wait(node->pid, &status);
    bool is_unread = node->orders >= 0 && ioctl(node->orders, FIONREAD, &unread) == 0 && unread;
    bool is_other = node->exit_code == 0;
    bool is_lost = node->exit_code == TT__REMOTE_FAILED || WIFSIGNALED(status) || node->refused || is_unread;
    if (node->exit_code == TT__REMOTE_DONE)
        node->exit_code = 0;
    close(node->process);
    node->process = -1;
    close_orders(node);
    s->left--;
    s->last_end = i;
    s->last_end_ms = tt__now_ms();
    if ((!is_lost && !is_other) || s->broken)
        return;
    s->broken = true;
    say_of_host(s, "host %s: %s: ending the job", s->job->hosts->of[i].name,
                is_this_host(s, i) ? "the launcher can't be started"
                : is_lost          ? "no launcher there, or its connection is lost"
                                   : "another command than tutti ran there, and ended at once (a forced command of "
                                     "authorized_keys or sshd_config?)");
    close_all_orders(s);
}

/* Launchers end together. If one has ended long before the others, it was no launcher, or they don't know of its
 * end. */
static void end_stragglers(ssh_starter *s) {
    if (s->broken || !s->last_end_ms || tt__now_ms() - s->last_end_ms < TOGETHER_MS)
        return;
    s->broken = true;
    say_of_host(s, "host %s ended with exit code %d, %d s ago, and others did not: ending the job",
                s->job->hosts->of[s->last_end].name, s->nodes[s->last_end].exit_code, TOGETHER_MS / 1000);
    close_all_orders(s);
}

static void attend_nodes(ssh_starter *s) {
    int n = s->job->hosts->n;
    while (s->left) {
        for (int i = 0; i < n; i++) {
            s->fds[i] = (struct pollfd){.fd = s->nodes[i].process, .events = POLLIN};
            s->fds[n + 1 + i] =
                (struct pollfd){.fd = has_unsent(&s->nodes[i]) ? s->nodes[i].orders : -1, .events = POLLOUT};
        }
        s->fds[n] = (struct pollfd){.fd = s->signals, .events = POLLIN};
        int ready = poll(s->fds, 2 * (nfds_t)n + 1, s->last_end_ms || s->end_ms != INT64_MAX ? LOOK_MS : -1);
        end_stragglers(s);
        kill_late_ssh(s);
        if (ready <= 0)
            continue;
        for (int i = 0; i < n; i++)
            if (s->fds[n + 1 + i].revents)
                send_orders(&s->nodes[i]);
        if (s->fds[n].revents)
            hand_signals_on(s);
        for (int i = 0; i < n; i++)
            if (s->fds[i].fd >= 0 && s->fds[i].revents)
                take_node_end(s, i);
    }
}

static int conclude_nodes(const ssh_starter *s) {
    if (s->taken)
        return 128 + s->taken;
    if (s->broken)
        return 1;
    for (int i = 0; i < s->job->hosts->n; i++)
        if (s->nodes[i].exit_code)
            return s->nodes[i].exit_code;
    return 0;
}

static tt_status start_all_ssh(ssh_starter *s) {
    int n = s->job->hosts->n;
    s->nodes = calloc((size_t)n, sizeof *s->nodes);
    s->fds = calloc(2 * (size_t)n + 1, sizeof *s->fds);
    if (!s->nodes || !s->fds)
        return tt__fail(TT_ERR_MEMORY, "no memory for %d hosts", n);
    for (int i = 0; i < n; i++)
        s->nodes[i] = (ssh_node){.process = -1, .orders = -1};
    TT__TRY(find_own_paths(s));
    TT__TRY(make_ssh_command(s));
    TT__TRY(choose_place(s));
    TT__TRY(open_starter_signals(s));
    for (int i = 0; i < n; i++)
        TT__TRY(start_ssh(s, i));
    return TT_OK;
}

tt_status tt__ssh_job_run(const tt__ssh_job *job, int *exit_code) {
    ssh_starter s = {.job = job, .signals = -1, .end_ms = INT64_MAX};
    tt_status status = start_all_ssh(&s);
    for (int i = 0; status && s.nodes && i < job->hosts->n; i++) {
        bool unsent = has_unsent(&s.nodes[i]);
        close_orders(&s.nodes[i]); /* those that were started end */
        if (unsent && s.nodes[i].process >= 0)
            kill(-s.nodes[i].pid, SIGKILL);
    }
    if (status)
        begin_end_of_ssh(&s);
    if (s.left)
        attend_nodes(&s);
    if (!status)
        *exit_code = conclude_nodes(&s);
    if (s.signals >= 0) {
        close(s.signals);
        sigprocmask(SIG_SETMASK, &s.mask, NULL);
    }
    free(s.nodes);
    free(s.fds);
    return status;
}
