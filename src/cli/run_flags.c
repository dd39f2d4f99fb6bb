#include "cli/run_flags.h"

#include <ctype.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A flag's id: the index of its field, from 1. */
#define FIELD(name) ((int)offsetof(tt__run_flags, name) + 1)

const tt__flag tt__run_flags_table[] = {
    {.what = "Ranks:"},
    {.name = "nproc-per-node",
     .id = FIELD(nproc_per_node),
     .value = "N|auto|cpu",
     .what = "how many; auto and cpu: one per CPU that this process may use (default 1)",
     .offer = "auto cpu"},
    {.name = "nnodes", .id = FIELD(nnodes), .value = "N", .what = "on how many nodes the job runs (default 1)"},
    {.name = "node-rank",
     .id = FIELD(node_rank),
     .value = "R",
     .what = "which of them this is; node 0 serves the store (default 0)"},
    {.name = "role", .id = FIELD(role), .value = "NAME", .what = "ROLE_NAME (default \"default\")"},
    {.what = "Where they meet:"},
    {.name = "standalone",
     .id = FIELD(standalone),
     .what = "on any free port, under an id of its own: several jobs can run side by side"},
    {.name = "master-addr",
     .id = FIELD(master_addr),
     .value = "ADDRESS",
     .what = "MASTER_ADDR, an address of node 0 (default 127.0.0.1)"},
    {.name = "master-port",
     .id = FIELD(master_port),
     .value = "PORT",
     .what = "MASTER_PORT, 0 = any free one (default 29500; on one node, where no flag says where, any free one)"},
    {.name = "rdzv-backend",
     .id = FIELD(rdzv_backend),
     .value = "static|c10d",
     .what = "c10d: as --standalone, on this host",
     .offer = "static c10d"},
    {.name = "rdzv-endpoint",
     .id = FIELD(rdzv_endpoint),
     .value = "HOST[:PORT]",
     .what = "static: the same as --master-addr and --master-port"},
    {.name = "rdzv-id",
     .id = FIELD(rdzv_id),
     .value = "ID",
     .what = "the job's name: TORCHELASTIC_RUN_ID; tutti top ID shows it"},
    {.name = "rdzv-conf",
     .id = FIELD(rdzv_conf),
     .value = "K=V,...",
     .what =
         "timeout=SECONDS: how long to wait for other nodes (default 600); heartbeat=SECONDS: a node that is silent "
         "for so long is lost (default 5)"},
    {.what = "What runs:"},
    {.name = "module", .id = FIELD(module), .letter = 'm', .what = "PROGRAM is a Python module"},
    {.name = "no-python", .id = FIELD(no_python), .what = "never start PROGRAM with python3"},
    {.name = "max-restarts", .id = FIELD(max_restarts), .value = "0", .what = "restarts are not supported yet"},
    {.name = "settle-period",
     .id = FIELD(settle_period),
     .value = "SECONDS",
     .what = "from a rank's failure to the others' SIGTERM (default 1)"},
    {.name = "grace-period",
     .id = FIELD(grace_period),
     .value = "SECONDS",
     .what = "from SIGTERM to SIGKILL (default 30)"},
    {.what = "Workers' output:"},
    {.name = "log-dir",
     .id = FIELD(log_dir),
     .value = "DIR",
     .what =
         "keep logs in a new folder in DIR, ID_random: attempt_0/LOCAL_RANK/ has stdout.log, stderr.log, error.json",
     .offer = TT__OFFER_FOLDERS},
    {.name = "redirects",
     .id = FIELD(redirects),
     .letter = 'r',
     .value = "STREAMS",
     .what = "what goes to these files only: 1 stdout, 2 stderr, 3 both (default 0), or by local rank 0:1,1:3. Without "
             "--log-dir a folder for them is made where temporary files go",
     .offer = "0 1 2 3"},
    {.name = "tee",
     .id = FIELD(tee),
     .letter = 't',
     .value = "STREAMS",
     .what = "what goes to the files, and is shown line by line with the worker's prefix",
     .offer = "0 1 2 3"},
    {.name = "log-line-prefix-template",
     .id = FIELD(log_line_prefix_template),
     .value = "TEXT",
     .what = "that prefix, with ${role_name}, ${local_rank}, ${rank} and ${hostname} (default "
             "[${role_name}${local_rank}]:, or what TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE says)"},
    {.name = "local-ranks-filter",
     .id = FIELD(local_ranks_filter),
     .value = "RANKS",
     .what = "show the output of these local ranks alone, as 0,2; files are not concerned"},
    {.name = "duplicate-stdout-filters",
     .id = FIELD(duplicate_stdout_filters),
     .value = "TEXTS",
     .what =
         "lines of stdout shown by --tee that contain one of TEXTS (between commas; ,, is a comma) are also kept in "
         "attempt_0/filtered_stdout.log"},
    {.name = "duplicate-stderr-filters",
     .id = FIELD(duplicate_stderr_filters),
     .value = "TEXTS",
     .what = "the same for stderr, in filtered_stderr.log"},
    {.what = "What is seen:"},
    {.name = "log-level",
     .id = FIELD(log_level),
     .value = "LEVEL",
     .what =
         "debug, info or warning: lines from this level on are written to stderr, by the ranks (TT_LOG) and by this "
         "command (default: this command's warnings)",
     .offer = "debug info warning"},
    {.name = "wait-notice",
     .id = FIELD(wait_notice),
     .value = "SECONDS",
     .what = "say on stderr for whom a rank has waited so long in a call, and where; 0: never (default 5)"},
    {.name = "trace",
     .id = FIELD(trace),
     .value = "FILE",
     .what = "when the job ends, write the last calls of every rank as a trace for Perfetto",
     .offer = TT__OFFER_FILES},
    {.what = "Who may take part:"},
    {.name = "secret-file",
     .id = FIELD(secret_file),
     .value = "FILE",
     .what =
         "the job's secret is in FILE, 16 bytes or more (default: TT_SECRET, TT_SECRET_FILE, or a new one for each job "
         "on one node, which the ranks inherit in sealed memory)",
     .offer = TT__OFFER_FILES},
    {.name = "store-auth",
     .id = FIELD(store_auth),
     .value = "WHO",
     .what = "who may use the store without proving the secret: local (default) this user's processes on node 0, "
             "as PyTorch's clients; required: nobody; none: all, from anywhere. Launchers of other nodes must have the "
             "secret unless it is none",
     .offer = "local required none"},
    {.name = "store-memory",
     .id = FIELD(store_memory),
     .value = "MIB",
     .what = "what the store that node 0 serves may take, in MiB (default: an eighth of the machine's, at least 256)"},
    {.name = "wire",
     .id = FIELD(wire),
     .value = "HOW",
     .what = "how bytes travel between hosts (TT_WIRE): sealed, so that nobody can change them (default where the job "
             "has a secret); plain; or tls, encrypted, the store's connections, too",
     .offer = "sealed plain tls"},
    /* Refused with a reason. */
    {.name = "logs-specs", .id = FIELD(logs_specs), .value = "NAME"},
    /* Without effect here. */
    {.name = "monitor-interval", .id = FIELD(ignored), .value = "SECONDS"},
    {.name = "start-method", .id = FIELD(ignored), .value = "NAME"},
    {0}};

/* torchrun's other flags. */
static const struct unsupported {
    tt__flag flag;
    const char *instead; /* what to do instead */
} unsupported_table[] = {
    {{.name = "run-path"}, "give the script itself"},
    {{.name = "local-addr", .value = ""},
     "ranks find out themselves by which addresses they reach each other (TT_SOCKET_IFNAME)"},
    {{.name = "numa-binding", .value = ""}, "start the program through numactl or taskset"},
    {{.name = "signals-to-handle", .value = ""}, "SIGINT, SIGTERM, SIGHUP and SIGQUIT are handled"},
    {{.name = "event-log-handler", .value = ""}, "the report on stderr says how the job ended"},
    {{.name = "virtual-local-rank"}, "every worker has its own LOCAL_RANK"},
    {{0}, NULL},
};

static const char **flag_field(tt__run_flags *flags, const tt__flag *flag) {
    return (const char **)(void *)((char *)flags + flag->id - 1);
}

static int refuse_flag(const char *spelling, const struct unsupported *flag) {
    return tt__cli_usage_error("run", "%s is torchrun's, but not supported by tutti run; instead: %s", spelling,
                               flag->instead);
}

static const char *variable_value(const tt__flag *flag, char name[64]) {
    int n = snprintf(name, 64, "PET_%s", flag->name);
    for (int c = 0; c < n; c++)
        name[c] = name[c] == '-' ? '_' : (char)toupper((unsigned char)name[c]);
    const char *value = getenv(name);
    return value && *value && (flag->value || strcmp(value, "0") != 0) ? value : NULL;
}

/* torchrun's rule: the variable of --rdzv-id is PET_RDZV_ID. */
static int read_environment(tt__run_flags *flags) {
    char name[64];
    for (const struct unsupported *u = unsupported_table; u->instead; u++)
        if (variable_value(&u->flag, name))
            return refuse_flag(name, u);
    for (const tt__flag *flag = tt__run_flags_table; flag->name || flag->what; flag++) {
        const char *value = flag->name ? variable_value(flag, name) : NULL;
        if (!value)
            continue;
        if (!flag->value && strcmp(value, "1") != 0)
            return tt__cli_usage_error("run", "%s: expected 1 or 0, got \"%s\"", name, value);
        *flag_field(flags, flag) = value;
    }
    return 0;
}

/* Refuse an unknown flag, or one that only torchrun has. `arg`: "--name", "--name=value" or "-x". */
static int refuse_unknown(const char *arg) {
    int n = (int)strcspn(arg, "=");
    char name[64];
    snprintf(name, sizeof name, "%.*s", n, arg);
    for (const struct unsupported *u = unsupported_table; u->instead; u++) {
        const tt__flag one[2] = {u->flag, {0}};
        if (tt__cli_find_flag(one, arg))
            return refuse_flag(name, u);
    }
    const char *guess = tt__cli_guess_flag(arg, tt__run_flags_table);
    return tt__cli_usage_error("run", "unknown flag %.*s%s%s%s (a program's own flags stand after it)", n, arg,
                               guess ? "; did you mean --" : "", guess ? guess : "", guess ? "?" : "");
}

/* Take the flag at argv[*i], and its value. */
static int take_flag(tt__run_flags *flags, int argc, char **argv, int *i) {
    char *arg = argv[*i];
    tt__cli_normalise_flag(arg);
    if (!strcmp(arg, "--help") || !strcmp(arg, "-h")) {
        flags->help = "1";
        return 0;
    }
    const tt__flag *flag = tt__cli_find_flag(tt__run_flags_table, arg);
    if (!flag)
        return refuse_unknown(arg);
    const char *value = strchr(arg, '=');
    if (!flag->value) {
        if (value)
            return tt__cli_usage_error("run", "--%s takes no value, got \"%s\"", flag->name, value + 1);
        *flag_field(flags, flag) = "1";
        return 0;
    }
    if (!value && *i + 1 >= argc)
        return tt__cli_usage_error("run", "%s: expected a value after it", arg);
    *flag_field(flags, flag) = value ? value + 1 : argv[++*i];
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
        status = take_flag(flags, argc, argv, &i);
    }
    *program = i;
    return status;
}
