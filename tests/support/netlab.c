/* netlab: run a command once a rank on several "hosts" (netlab.h), with RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
 * MASTER_ADDR and MASTER_PORT set, and a job secret unless there is one.
 *
 *   netlab --hosts 2 --per-host 2 --rate 1gbit -- build/examples/bare_all_reduce
 *
 * Exit code: the largest of the ranks'; 77 if there can be no lab here. */
#include "support/netlab.h"

#include <getopt.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

typedef struct plan {
    int hosts, per_host;
    const char *rate;
    char **command;
} plan;

static int usage(void) {
    fprintf(stderr, "usage: netlab [--hosts N] [--per-host N] [--rate 1gbit] -- COMMAND [ARGUMENT...]\n");
    return 2;
}

static bool parse(int argc, char **argv, plan *plan) {
    static const struct option options[] = {
        {"hosts", required_argument, NULL, 'h'},
        {"per-host", required_argument, NULL, 'p'},
        {"rate", required_argument, NULL, 'r'},
        {0},
    };
    *plan = (struct plan){.hosts = 2, .per_host = 1};
    for (int option; (option = getopt_long(argc, argv, "+", options, NULL)) != -1;)
        switch (option) {
        case 'h':
            plan->hosts = atoi(optarg);
            break;
        case 'p':
            plan->per_host = atoi(optarg);
            break;
        case 'r':
            plan->rate = optarg;
            break;
        default:
            return false;
        }
    plan->command = argv + optind;
    return plan->hosts >= 1 && plan->hosts <= NETLAB_HOSTS && plan->per_host >= 1 && plan->per_host <= 64 &&
           optind < argc;
}

static void set_number(const char *name, int value) {
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    setenv(name, text, 1);
}

static void be_rank(const netlab *lab, const plan *plan, int host, int local) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    set_number("RANK", host * plan->per_host + local);
    set_number("WORLD_SIZE", plan->hosts * plan->per_host);
    set_number("LOCAL_RANK", local);
    set_number("LOCAL_WORLD_SIZE", plan->per_host);
    setenv("MASTER_ADDR", "10.77.0.1", 1);
    setenv("MASTER_PORT", "29500", 1);
    setenv("TT_SECRET", "a lab's ranks belong together", 0);
    if (netlab_enter(lab, host))
        execvp(plan->command[0], plan->command);
    fprintf(stderr, "netlab: %s: %s\n", plan->command[0], strerror(errno));
    _exit(127);
}

static int run(const netlab *lab, const plan *plan) {
    int worst = 0, status, ranks = 0;
    for (int h = 0; h < plan->hosts; h++)
        for (int i = 0; i < plan->per_host; i++, ranks++) {
            pid_t pid = fork();
            if (pid < 0)
                return 126;
            if (!pid)
                be_rank(lab, plan, h, i);
        }
    for (; ranks; ranks--)
        if (wait(&status) > 0) {
            int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            worst = code > worst ? code : worst;
        }
    return worst;
}

int main(int argc, char **argv) {
    plan plan;
    netlab lab;
    if (!parse(argc, argv, &plan))
        return usage();
    const char *why = netlab_open(&lab, plan.hosts);
    for (int h = 0; h < plan.hosts && plan.rate && !why; h++)
        if (!netlab_rate(&lab, h, plan.rate))
            why = "this kernel has no tbf, or the rate is malformed";
    if (why) {
        fprintf(stderr, "netlab: skipped: %s\n", why);
        return 77;
    }
    int code = run(&lab, &plan);
    netlab_close(&lab);
    return code;
}
