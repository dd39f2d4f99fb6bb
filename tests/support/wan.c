/* wan: two "hosts" far from each other: run a command on both, as netlab does, with a rank each.
 *
 *   wan --mbit 10 --delay 50 --log FILE -- build/examples/gpt_char --diloco 200
 *
 * Each host is a network name space whose only way out is a tap device. Its frames come to a relay, a process that lets
 * through so many megabits a second in each direction, holds what it has let through for so many milliseconds, and then
 * hands it to the other host. What would wait longer than a second is dropped, as routers do. So nothing of the
 * kernel's is needed but tap devices (/dev/net/tun) and name spaces. FILE gets a line of JSON: the bytes and frames
 * that each host has sent, and how long the ranks ran.
 *
 * Exit code: the larger of the ranks'; 77 if there can be no such hosts here. */
#include "support/netlab.h"

#include <fcntl.h>
#include <getopt.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

enum { HOSTS = 2, FRAME = 2048, QUEUE = 4096 };

typedef struct plan {
    double mbit, delay_ms;
    const char *log;
    char **command;
} plan;

typedef struct frame {
    int64_t due_ns;
    size_t size;
    unsigned char bytes[FRAME];
} frame;

/* What one host sends, on its way. */
typedef struct direction {
    int from, to;    /* tap devices */
    int64_t free_ns; /* when the link has let through all that is on its way */
    size_t head, count;
    frame *queue; /* [QUEUE], a ring */
    int64_t sent_bytes, sent_frames, dropped;
} direction;

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ---- the relay ---- */

static void take_frame(direction *d, const plan *plan) {
    frame *f = &d->queue[(d->head + d->count) % QUEUE];
    unsigned char lost[FRAME];
    int64_t now = now_ns();
    bool full = d->count == QUEUE || d->free_ns > now + 1000000000;
    ssize_t n = read(d->from, full ? lost : f->bytes, FRAME);
    if (n <= 0)
        return;
    d->sent_bytes += n;
    d->sent_frames++;
    d->dropped += full;
    if (full)
        return;
    d->free_ns = (d->free_ns > now ? d->free_ns : now) + (int64_t)((double)n * 8e3 / plan->mbit);
    f->due_ns = d->free_ns + (int64_t)(plan->delay_ms * 1e6);
    f->size = (size_t)n;
    d->count++;
}

/* Hand over what is due; returns when the next one is. */
static int64_t give_frames(direction *d) {
    for (; d->count; d->head = (d->head + 1) % QUEUE, d->count--) {
        const frame *f = &d->queue[d->head];
        if (f->due_ns > now_ns())
            return f->due_ns;
        if (write(d->to, f->bytes, f->size) < 0 && errno == EAGAIN)
            return now_ns() + 1000000;
    }
    return INT64_MAX;
}

/* Until `stop` can be read. */
static void relay_frames(direction ways[HOSTS], const plan *plan, int stop) {
    struct pollfd fds[] = {
        {.fd = ways[0].from, .events = POLLIN}, {.fd = ways[1].from, .events = POLLIN}, {.fd = stop, .events = POLLIN}};
    while (!fds[2].revents) {
        int64_t next[] = {give_frames(&ways[0]), give_frames(&ways[1])};
        int64_t wait = (next[0] < next[1] ? next[0] : next[1]) - now_ns();
        wait = wait < 0 ? 0 : wait > 1000000000 ? 1000000000 : wait;
        if (ppoll(fds, 3, &(struct timespec){wait / 1000000000, wait % 1000000000}, NULL) < 0 && errno != EINTR)
            _exit(126);
        for (int i = 0; i < HOSTS; i++)
            if (fds[i].revents)
                take_frame(&ways[i], plan);
    }
}

static void write_log(const direction ways[HOSTS], const plan *plan, double seconds) {
    FILE *log = plan->log ? fopen(plan->log, "w") : NULL;
    if (!log)
        return;
    fprintf(log, "{\"mbit\": %g, \"delay_ms\": %g, \"seconds\": %.1f, \"hosts\": [", plan->mbit, plan->delay_ms,
            seconds);
    for (int i = 0; i < HOSTS; i++)
        fprintf(log, "%s{\"bytes\": %lld, \"frames\": %lld, \"dropped\": %lld}", i ? ", " : "",
                (long long)ways[i].sent_bytes, (long long)ways[i].sent_frames, (long long)ways[i].dropped);
    fprintf(log, "]}\n");
    fclose(log);
}

/* A process of its own, so that a host that computes doesn't hold it up. Returns its id; it ends, and writes the log,
 * when the last copy of stop[1] is closed. */
static pid_t start_relay(const int taps[HOSTS], const plan *plan, int stop[2]) {
    if (pipe2(stop, O_CLOEXEC))
        return -1;
    pid_t pid = fork();
    if (pid)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(stop[1]);
    direction ways[HOSTS];
    int64_t began = now_ns();
    for (int i = 0; i < HOSTS; i++)
        ways[i] = (direction){.from = taps[i], .to = taps[!i], .queue = calloc(QUEUE, sizeof(frame))};
    if (!ways[0].queue || !ways[1].queue)
        _exit(126);
    relay_frames(ways, plan, stop[0]);
    write_log(ways, plan, (double)(now_ns() - began) / 1e9);
    _exit(0);
}

/* ---- the hosts ---- */

/* A tap device of this name space. */
static int open_tap(void) {
    struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
    int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
    snprintf(request.ifr_name, sizeof request.ifr_name, "eth0");
    if (fd < 0 || !ioctl(fd, TUNSETIFF, &request))
        return fd;
    close(fd);
    return -1;
}

/* Make host h; the caller stays there. */
static const char *make_far_host(netlab *lab, int h, int *tap) {
    if (unshare(CLONE_NEWNET) || (lab->space[h] = netlab_here()) < 0)
        return "no name space for a host";
    *tap = open_tap();
    if (*tap < 0)
        return "no tap device (/dev/net/tun)";
    return netlab_batch("ip",
                        "link set lo up\n"
                        "addr add 10.77.0.%d/24 dev eth0\n"
                        "link set eth0 up\n",
                        h + 1)
               ? NULL
               : "iproute2 can't set up a tap device";
}

static const char *make_far_hosts(netlab *lab, int taps[HOSTS]) {
    const char *why = netlab_unshare() ? NULL : "network name spaces need root, or unprivileged user name spaces";
    for (int h = 0; h < HOSTS && !why; h++)
        why = make_far_host(lab, h, &taps[h]);
    return why;
}

static void be_far_rank(const netlab *lab, const plan *plan, int rank) {
    char text[16];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(text, sizeof text, "%d", rank);
    setenv("RANK", text, 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("LOCAL_RANK", "0", 1);
    setenv("LOCAL_WORLD_SIZE", "1", 1);
    setenv("MASTER_ADDR", "10.77.0.1", 1);
    setenv("MASTER_PORT", "29500", 1);
    setenv("TT_SECRET", "a lab's ranks belong together", 0);
    if (netlab_enter(lab, rank))
        execvp(plan->command[0], plan->command);
    fprintf(stderr, "wan: %s: %s\n", plan->command[0], strerror(errno));
    _exit(127);
}

static int run_far_ranks(const netlab *lab, const plan *plan, int stop) {
    pid_t pids[HOSTS];
    int worst = 0, status;
    for (int h = 0; h < HOSTS; h++) {
        pids[h] = fork();
        if (!pids[h])
            be_far_rank(lab, plan, h);
        worst = pids[h] < 0 ? 126 : worst;
    }
    for (int h = 0; h < HOSTS; h++)
        if (pids[h] > 0 && waitpid(pids[h], &status, 0) == pids[h]) {
            int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            worst = code > worst ? code : worst;
        }
    close(stop);
    return worst;
}

static bool parse_wan(int argc, char **argv, plan *plan) {
    static const struct option options[] = {
        {"mbit", required_argument, NULL, 'm'},
        {"delay", required_argument, NULL, 'd'},
        {"log", required_argument, NULL, 'l'},
        {0},
    };
    *plan = (struct plan){.mbit = 10, .delay_ms = 50};
    for (int option; (option = getopt_long(argc, argv, "+", options, NULL)) != -1;)
        switch (option) {
        case 'm':
            plan->mbit = strtod(optarg, NULL);
            break;
        case 'd':
            plan->delay_ms = strtod(optarg, NULL);
            break;
        case 'l':
            plan->log = optarg;
            break;
        default:
            return false;
        }
    plan->command = argv + optind;
    return plan->mbit > 0 && plan->delay_ms >= 0 && optind < argc;
}

int main(int argc, char **argv) {
    plan plan;
    netlab lab = {.hosts = HOSTS};
    int taps[HOSTS], stop[2], status;
    if (!parse_wan(argc, argv, &plan)) {
        fprintf(stderr, "usage: wan [--mbit N] [--delay MS] [--log FILE] -- COMMAND [ARGUMENT...]\n");
        return 2;
    }
    const char *why = make_far_hosts(&lab, taps);
    if (why) {
        fprintf(stderr, "wan: skipped: %s\n", why);
        return 77;
    }
    pid_t relay = start_relay(taps, &plan, stop);
    if (relay < 0)
        return 126;
    int code = run_far_ranks(&lab, &plan, stop[1]);
    waitpid(relay, &status, 0);
    return code;
}
