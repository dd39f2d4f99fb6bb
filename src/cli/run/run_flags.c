#include "cli/run/run_flags.h"

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
     .value = "N|auto|cpu|gpu",
     .what = "how many; cpu: one per CPU that this process may use; gpu: one per NVIDIA GPU that it sees; auto: the "
             "latter if there are any, else the former (default 1)",
     .offer = "auto cpu gpu"},
    {.name = "nnodes",
     .id = FIELD(nnodes),
     .value = "N|MIN:MAX",
     .what = "on how many nodes the job runs (default 1); MIN:MAX: it begins with MIN, and nodes may come and go"},
    {.name = "node-rank",
     .id = FIELD(node_rank),
     .value = "R",
     .what = "which of them this is; node 0 serves the store (default 0). With c10d nodes get their numbers when they "
             "come"},
    {.name = "ssh",
     .id = FIELD(ssh),
     .value = "HOSTS",
     .what = "run the whole job from here: a launcher on each host of a,b:4,user@c, by ssh (TUTTI_SSH: another command "
             "for it); a number is how many ranks are there. The first is node 0. Program and directory have the same "
             "paths on all"},
    {.name = "hostfile",
     .id = FIELD(hostfile),
     .value = "FILE",
     .what = "the same for the hosts in FILE, a line each: \"a\", \"b:4\" or \"b slots=4\"",
     .offer = TT__OFFER_FILES},
    {.name = "role", .id = FIELD(role), .value = "NAME", .what = "ROLE_NAME (default \"default\")"},
    {.name = "virtual-local-rank",
     .id = FIELD(virtual_local_rank),
     .what = "LOCAL_RANK is 0 for all, and CUDA_VISIBLE_DEVICES of each names its own GPU alone"},
    {.name = "bind",
     .id = FIELD(bind),
     .value = "HOW",
     .what = "where workers run: core, each on its share of the CPU cores; numa, each on one NUMA node; none, anywhere "
             "(default)",
     .offer = "none core numa"},
    {.name = "numa-binding",
     .id = FIELD(numa_binding),
     .value = "HOW",
     .what = "near its GPU, as torchrun does: on the GPU's NUMA node, on that node's processor (socket), on a share of "
             "its cores (exclusive) or on one of its last-level caches (core-complex); without GPUs spread in order",
     .offer = "node socket exclusive core-complex"},
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
     .value = "static|c10d|etcd",
     .what = "how nodes find each other. static: each has its --node-rank; c10d: they meet at the endpoint, and may be "
             "replaced; on one node: as --standalone; etcd: the same, but an etcd says which node serves the store "
             "(default static, "
             "or c10d with --nnodes=MIN:MAX)",
     .offer = "static c10d etcd"},
    {.name = "rdzv-endpoint",
     .id = FIELD(rdzv_endpoint),
     .value = "HOST[:PORT]",
     .what = "the same as --master-addr and --master-port; with c10d the node that has this address serves the store "
             "there (default localhost:29400); with etcd etcd's servers: HOST:2379, several separated by commas"},
    {.name = "local-addr",
     .id = FIELD(local_addr),
     .value = "ADDRESS",
     .what = "this node's address: MASTER_ADDR of a job on one node whose other flags don't say where; with etcd "
             "where the others reach this node (default: the address from which it reaches them)"},
    {.name = "rdzv-id",
     .id = FIELD(rdzv_id),
     .value = "ID",
     .what = "the job's name: TORCHELASTIC_RUN_ID; tutti top ID shows it"},
    {.name = "rdzv-conf",
     .id = FIELD(rdzv_conf),
     .value = "K=V,...",
     .what =
         "timeout=SECONDS: how long to wait for other nodes (default 600); heartbeat=SECONDS: a node that is silent "
         "for so long is lost (default 5). With c10d: last_call_timeout=SECONDS: fewer than MAX nodes begin when "
         "nobody has come for so long (default 1); rejoin=SECONDS: how long a node that was cut off looks for the job "
         "(default 60); is_host=true|false: whether this node serves the store (default: if it has the endpoint's "
         "address). With etcd protocol=http|https, cacert=FILE, cert=FILE, key=FILE"},
    {.what = "What runs:"},
    {.name = "module", .id = FIELD(module), .letter = 'm', .what = "PROGRAM is a Python module"},
    {.name = "no-python", .id = FIELD(no_python), .what = "never start PROGRAM with python3"},
    {.name = "run-path",
     .id = FIELD(run_path),
     .what = "PROGRAM is a Python script that runpy.run_path() runs; an exception is recorded in error.json"},
    {.name = "use-env",
     .id = FIELD(use_env),
     .what = "tutti launch: no --local-rank=N among PROGRAM's arguments, LOCAL_RANK says it; so it always is with run"},
    {.name = "local-rank-name",
     .id = FIELD(local_rank_name),
     .value = "NAME",
     .what = "tutti launch: what the argument is called, local-rank (default) as in PyTorch 2, or local_rank as before",
     .offer = "local-rank local_rank"},
    {.name = "dry-run", .id = FIELD(dry_run), .what = "print each rank's environment and command, and start nothing"},
    {.name = "max-restarts",
     .id = FIELD(max_restarts),
     .value = "N",
     .what = "when a rank fails, start all of them again, at most N times (default 0)"},
    {.name = "settle-period",
     .id = FIELD(settle_period),
     .value = "SECONDS",
     .what = "from a rank's failure to the others' SIGTERM (default 1)"},
    {.name = "grace-period",
     .id = FIELD(grace_period),
     .value = "SECONDS",
     .what = "from SIGTERM to SIGKILL (default 30)"},
    {.name = "shutdown-timeout",
     .id = FIELD(shutdown_timeout),
     .value = "SECONDS",
     .what = "torchrun's for it (TORCH_ELASTIC_SHUTDOWN_TIMEOUT)"},
    {.name = "signals-to-handle",
     .id = FIELD(signals_to_handle),
     .value = "NAMES",
     .what = "the signals that end the job in order, as the workers get them first (default, or what "
             "TORCHELASTIC_SIGNALS_TO_HANDLE says: SIGTERM,SIGINT,SIGHUP,SIGQUIT)"},
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
    {.name = "event-log-handler",
     .id = FIELD(event_log_handler),
     .value = "null|console",
     .what = "console: a line of JSON on stderr for each worker that ended, and for the job (default null)",
     .offer = "null console"},
    {.name = "health-check-port",
     .id = FIELD(health_check_port),
     .value = "PORT",
     .what = "answer health checks there, on all addresses: HTTP GET is 200 while this node's workers are well, else "
             "503 with the reason (default, or TORCHELASTIC_HEALTH_CHECK_PORT: none; 0: any free one)"},
    {.name = "print-completion",
     .id = FIELD(print_completion),
     .value = "SHELL",
     .what = "as tutti completion",
     .offer = "bash zsh fish"},
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
    /* Checked, but without effect here: the end of a worker is noticed at once; no worker is a copy of the launcher. */
    {.name = "monitor-interval", .id = FIELD(monitor_interval), .value = "SECONDS"},
    {.name = "start-method", .id = FIELD(start_method), .value = "NAME"},
    {0}};

/* Those that torchrun does not have: a beginning that fits one of its flags alone means that one. */
static const char *const own_flags[] = {
    "bind",        "dry-run",       "grace-period", "health-check-port", "hostfile",     "local-rank-name", "log-level",
    "secret-file", "settle-period", "ssh",          "store-auth",        "store-memory", "trace",           "use-env",
    "wait-notice", "wire"};

static const char **flag_field(tt__run_flags *flags, const tt__flag *flag) {
    return (const char **)(void *)((char *)flags + flag->id - 1);
}

static const char *variable_value(const tt__flag *flag, char name[64]) {
    int n = snprintf(name, 64, "PET_%s", flag->name);
    for (int c = 0; c < n; c++)
        name[c] = name[c] == '-' ? '_' : (char)toupper((unsigned char)name[c]);
    const char *value = secure_getenv(name);
    return value && *value && (flag->value || strcmp(value, "0") != 0) ? value : NULL;
}

/* torchrun's rule: the variable of --rdzv-id is PET_RDZV_ID. */
static int read_environment(const char *command, tt__run_flags *flags) {
    char name[64];
    for (const tt__flag *flag = tt__run_flags_table; flag->name || flag->what; flag++) {
        const char *value = flag->name ? variable_value(flag, name) : NULL;
        if (!value)
            continue;
        if (!flag->value && strcmp(value, "1") != 0)
            return tt__cli_usage_error(command, "%s: expected 1 or 0, got \"%s\"", name, value);
        *flag_field(flags, flag) = value;
    }
    return 0;
}

/* What other launchers call it: mpirun, srun, accelerate, DeepSpeed, torch.distributed's programs. NULL: nothing. */
static const char *guess_foreign(const char *arg) {
    static const struct {
        const char *instead, *theirs[16];
    } known[] = {
        {"nproc-per-node",
         {"-n", "-np", "--n", "--np", "--nprocs", "--ntasks", "--ntasks-per-node", "--ppn", "-ppn", "--npernode",
          "-npernode", "--num-procs", "--num-processes", "--num-gpus", "--gpus"}},
        {"nnodes", {"--nodes", "--num-nodes", "--num-machines"}},
        {"node-rank", {"--rank", "--machine-rank"}},
        {"master-addr", {"--main-process-ip", "--master"}},
        {"master-port", {"--main-process-port", "--port"}},
        {"ssh", {"-H", "-host", "--host", "--hosts"}},
        {"hostfile", {"-hostfile", "-machinefile", "--machinefile"}},
    };
    size_t n = strcspn(arg, "=");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        for (const char *const *theirs = known[i].theirs; *theirs; theirs++)
            if (strlen(*theirs) == n && !strncmp(arg, *theirs, n))
                return known[i].instead;
    return NULL;
}

static int refuse_unknown(const char *command, const char *arg) {
    int n = (int)strcspn(arg, "=");
    const char *foreign = guess_foreign(arg), *guess = foreign ? foreign : tt__cli_guess_flag(arg, tt__run_flags_table);
    return tt__cli_usage_error(command, "unknown flag %.*s%s%s%s (a program's own flags stand after it)", n, arg,
                               guess ? "; did you mean --" : "", guess ? guess : "", guess ? "?" : "");
}

static bool is_own(const tt__flag *flag) {
    for (size_t i = 0; i < sizeof own_flags / sizeof *own_flags; i++)
        if (!strcmp(flag->name, own_flags[i]))
            return true;
    return false;
}

/* Find the flag that begins with `arg`, "--nproc" or "--nproc=2"; NULL: there is none. Several: *others is a second
 * one. */
static const tt__flag *find_beginning(const char *arg, const tt__flag **others) {
    const tt__flag *found = NULL;
    size_t n = strcspn(arg, "=");
    *others = NULL;
    if (strncmp(arg, "--", 2) != 0 || n < 3)
        return NULL;
    for (const tt__flag *flag = tt__run_flags_table; flag->name || flag->what; flag++) {
        if (!flag->name || strncmp(arg + 2, flag->name, n - 2) != 0)
            continue;
        if (!found || (is_own(found) && !is_own(flag))) {
            found = flag;
            *others = NULL;
        } else if (is_own(found) || !is_own(flag)) {
            *others = flag;
        }
    }
    return found;
}

const tt__flag *tt__run_flag_named(const char *arg) {
    const tt__flag *flag = tt__cli_find_flag(tt__run_flags_table, arg), *other = NULL;
    return flag ? flag : find_beginning(arg, &other);
}

/* torchrun has no other flag with an "h", so it takes "--he", too. */
static bool is_help(const char *arg) {
    return !strcmp(arg, "-h") || (strlen(arg) > 2 && !strncmp("--help", arg, strlen(arg)));
}

/* Take the flag at argv[*i], and its value. */
static int take_flag(const char *command, tt__run_flags *flags, int argc, char **argv, int *i) {
    char *arg = argv[*i], letter[] = {arg[0], arg[1], '\0'};
    tt__cli_normalise_flag(arg);
    if (is_help(arg)) {
        flags->help = "1";
        return 0;
    }
    const tt__flag *flag = tt__cli_find_flag(tt__run_flags_table, arg), *other = NULL;
    if (!flag && arg[1] != '-' && arg[2]) { /* "-t3" */
        flag = tt__cli_find_flag(tt__run_flags_table, letter);
        if (flag && flag->value) {
            *flag_field(flags, flag) = arg + 2 + (arg[2] == '=');
            return 0;
        }
        return refuse_unknown(command, arg);
    }
    const char *foreign = guess_foreign(arg);
    if (!flag && !(foreign && !strcmp(foreign, "ssh"))) /* "--host" begins --hostfile, but is mpirun's list of hosts */
        flag = find_beginning(arg, &other);
    if (!flag)
        return refuse_unknown(command, arg);
    if (other)
        return tt__cli_usage_error(command, "%.*s could be --%s or --%s: write more of it", (int)strcspn(arg, "="), arg,
                                   flag->name, other->name);
    const char *value = strchr(arg, '=');
    if (!flag->value) {
        if (value)
            return tt__cli_usage_error(command, "--%s takes no value, got \"%s\"", flag->name, value + 1);
        *flag_field(flags, flag) = "1";
        return 0;
    }
    if (!value && *i + 1 >= argc)
        return tt__cli_usage_error(command, "--%s: expected a value after it", flag->name);
    *flag_field(flags, flag) = value ? value + 1 : argv[++*i];
    return 0;
}

int tt__run_flags_parse(const char *command, tt__run_flags *flags, int argc, char **argv, int *program) {
    *flags = (tt__run_flags){0};
    int i = 1, status = read_environment(command, flags);
    for (; !status && i < argc && argv[i][0] == '-' && argv[i][1]; i++) {
        if (!strcmp(argv[i], "--")) {
            i++;
            break;
        }
        status = take_flag(command, flags, argc, argv, &i);
    }
    *program = i;
    return status;
}
