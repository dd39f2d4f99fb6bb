#include "cli/run_flags.h"

#include "cli/cli.h"

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { VALUE, SWITCH, UNSUPPORTED_VALUE, UNSUPPORTED_SWITCH };

struct flag {
    const char *name; /* without "--" */
    char letter;      /* short form, or 0 */
    enum kind kind;
    size_t offset;       /* of the field */
    const char *instead; /* unsupported: what to do instead */
};

#define FIELD(name) offsetof(tt__run_flags, name)

static const struct flag flags_table[] = {
    {"nproc-per-node", 0, VALUE, FIELD(nproc_per_node), NULL},
    {"nnodes", 0, VALUE, FIELD(nnodes), NULL},
    {"node-rank", 0, VALUE, FIELD(node_rank), NULL},
    {"standalone", 0, SWITCH, FIELD(standalone), NULL},
    {"master-addr", 0, VALUE, FIELD(master_addr), NULL},
    {"master-port", 0, VALUE, FIELD(master_port), NULL},
    {"rdzv-backend", 0, VALUE, FIELD(rdzv_backend), NULL},
    {"rdzv-endpoint", 0, VALUE, FIELD(rdzv_endpoint), NULL},
    {"rdzv-id", 0, VALUE, FIELD(rdzv_id), NULL},
    {"rdzv-conf", 0, VALUE, FIELD(rdzv_conf), NULL},
    {"max-restarts", 0, VALUE, FIELD(max_restarts), NULL},
    {"role", 0, VALUE, FIELD(role), NULL},
    {"settle-period", 0, VALUE, FIELD(settle_period), NULL},
    {"grace-period", 0, VALUE, FIELD(grace_period), NULL},
    {"trace", 0, VALUE, FIELD(trace), NULL},
    {"secret-file", 0, VALUE, FIELD(secret_file), NULL},
    {"store-auth", 0, VALUE, FIELD(store_auth), NULL},
    {"module", 'm', SWITCH, FIELD(module), NULL},
    {"no-python", 0, SWITCH, FIELD(no_python), NULL},
    {"help", 'h', SWITCH, FIELD(help), NULL},
    {"monitor-interval", 0, VALUE, FIELD(ignored), NULL},
    {"start-method", 0, VALUE, FIELD(ignored), NULL},
    {"redirects", 'r', UNSUPPORTED_VALUE, 0, "redirect the output of the whole command"},
    {"tee", 't', UNSUPPORTED_VALUE, 0, "redirect the output of the whole command"},
    {"log-dir", 0, UNSUPPORTED_VALUE, 0, "redirect the output of the whole command"},
    {"logs-specs", 0, UNSUPPORTED_VALUE, 0, "redirect the output of the whole command"},
    {"local-ranks-filter", 0, UNSUPPORTED_VALUE, 0, "let the program print on the ranks you want"},
    {"duplicate-stdout-filters", 0, UNSUPPORTED_VALUE, 0, "redirect the output of the whole command"},
    {"duplicate-stderr-filters", 0, UNSUPPORTED_VALUE, 0, "redirect the output of the whole command"},
    {"run-path", 0, UNSUPPORTED_SWITCH, 0, "give the script itself"},
    {"local-addr", 0, UNSUPPORTED_VALUE, 0,
     "ranks find out themselves by which addresses they reach each other (TT_SOCKET_IFNAME)"},
    {"numa-binding", 0, UNSUPPORTED_VALUE, 0, "start the program through numactl or taskset"},
    {"signals-to-handle", 0, UNSUPPORTED_VALUE, 0, "SIGINT, SIGTERM, SIGHUP and SIGQUIT are handled"},
    {"event-log-handler", 0, UNSUPPORTED_VALUE, 0, "the report on stderr says how the job ended"},
    {"virtual-local-rank", 0, UNSUPPORTED_SWITCH, 0, "every worker has its own LOCAL_RANK"},
};

enum { FLAGS = sizeof flags_table / sizeof *flags_table };

static const char **field(tt__run_flags *flags, const struct flag *flag) {
    return (const char **)((char *)flags + flag->offset);
}

static int refuse(const char *spelling, const struct flag *flag) {
    return tt__cli_usage_error("run", "%s is torchrun's, but not supported by tutti run; instead: %s", spelling,
                               flag->instead);
}

/* torchrun's rule: the variable of --rdzv-id is PET_RDZV_ID. */
static int read_environment(tt__run_flags *flags) {
    for (int i = 0; i < FLAGS; i++) {
        const struct flag *flag = &flags_table[i];
        char name[64];
        int n = snprintf(name, sizeof name, "PET_%s", flag->name);
        for (int c = 0; c < n; c++)
            name[c] = name[c] == '-' ? '_' : (char)toupper((unsigned char)name[c]);
        const char *value = getenv(name);
        bool is_switch = flag->kind == SWITCH || flag->kind == UNSUPPORTED_SWITCH;
        if (!value || !*value || flag->letter == 'h' || (is_switch && !strcmp(value, "0")))
            continue;
        if (flag->kind == UNSUPPORTED_VALUE || flag->kind == UNSUPPORTED_SWITCH)
            return refuse(name, flag);
        if (is_switch && strcmp(value, "1") != 0)
            return tt__cli_usage_error("run", "%s: expected 1 or 0, got \"%s\"", name, value);
        *field(flags, flag) = is_switch ? "1" : value;
    }
    return 0;
}

/* The flag that `arg` names: "--name", "--name=value" or "-x". */
static const struct flag *find(const char *arg) {
    size_t n = strcspn(arg, "=");
    for (int i = 0; i < FLAGS; i++) {
        const struct flag *flag = &flags_table[i];
        if (arg[1] == '-' ? strlen(flag->name) == n - 2 && !strncmp(arg + 2, flag->name, n - 2)
                          : flag->letter && arg[1] == flag->letter && !arg[2])
            return flag;
    }
    return NULL;
}

/* A flag's name of which `arg` is the beginning: argparse would take it, and people rely on that. */
static int refuse_unknown(const char *arg) {
    int n = (int)strcspn(arg, "=");
    for (int i = 0; i < FLAGS && n > 3; i++)
        if (!strncmp(arg + 2, flags_table[i].name, (size_t)n - 2))
            return tt__cli_usage_error("run",
                                       "unknown flag %.*s; did you mean --%s? (a program's own flags stand after it)",
                                       n, arg, flags_table[i].name);
    return tt__cli_usage_error("run", "unknown flag %.*s (a program's own flags stand after it)", n, arg);
}

/* Take the flag at argv[*i], and its value. */
static int take(tt__run_flags *flags, int argc, char **argv, int *i) {
    char *arg = argv[*i];
    tt__cli_normalise_flag(arg);
    const struct flag *flag = find(arg);
    if (!flag)
        return refuse_unknown(arg);
    const char *value = strchr(arg, '=');
    int name_length = (int)strcspn(arg, "=");
    if (flag->kind == UNSUPPORTED_VALUE || flag->kind == UNSUPPORTED_SWITCH) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", name_length, arg);
        return refuse(name, flag);
    }
    if (flag->kind == SWITCH) {
        if (value)
            return tt__cli_usage_error("run", "%.*s takes no value, got \"%s\"", name_length, arg, value + 1);
        *field(flags, flag) = "1";
        return 0;
    }
    if (!value && *i + 1 >= argc)
        return tt__cli_usage_error("run", "%s: expected a value after it", arg);
    *field(flags, flag) = value ? value + 1 : argv[++*i];
    return 0;
}

int tt__run_flags_parse(tt__run_flags *flags, int argc, char **argv, int *program) {
    *flags = (tt__run_flags){0};
    int i = 1, status = read_environment(flags);
    for (; !status && i < argc && argv[i][0] == '-' && argv[i][1]; i++) {
        if (!strcmp(argv[i], "--")) {
            i++;
            break;
        }
        status = take(flags, argc, argv, &i);
    }
    *program = i;
    return status;
}
