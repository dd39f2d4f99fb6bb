/* tutti submit: print the batch script or manifest by which a cluster's scheduler runs a command. */
#include "base/error.h"
#include "base/text/parse.h"
#include "cli/cli.h"
#include "cli/run/run_flags.h"
#include "net/secure/secret.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_LENGTH = 52, MAX_SUBMIT_NODES = 4096 }; /* a pod's host name is NAME-NODE, and no longer than 63 */

typedef struct submission {
    const char *name; /* of the job: lower-case letters, digits and "-", at most 52 of them */
    char **command;   /* "tutti", "run", ... or "torchrun", ...; ends with NULL */
    int64_t nodes;
    int64_t cpus, gpus, memory_gib;         /* a node; 0: not asked for */
    int64_t warning_s;                      /* from SIGTERM to the end of the time; 0: none */
    bool has_grace;                         /* the command says how long its ranks have from SIGTERM to SIGKILL */
    const char *time, *partition, *account; /* Slurm's; NULL: not given */
    const char *image, *name_space;         /* Kubernetes'; NULL: not given */
} submission;

/* Return the seconds between SIGTERM to the launcher and SIGKILL to its ranks; the rest of the warning is for the end
 * itself. */
static int64_t grace_seconds(const submission *s) { return s->warning_s > 10 ? s->warning_s - 5 : s->warning_s; }

static int submit_main(int argc, char **argv);

static const tt__flag submit_flags[] = {
    {.what = "Where:"},
    TT__SWITCH("slurm", 's', "a script for sbatch"),
    TT__SWITCH("k8s", 'k', "a manifest for kubectl apply: a Job, and what its pods find each other by"),
    {.what = "What it asks for:"},
    TT__VALUE("name", 'n', "NAME", "of the job (default: the program's)"),
    TT__VALUE("cpus-per-node", 'c', "N", "CPUs of each node"),
    TT__VALUE("gpus-per-node", 'g', "N", "GPUs of each node"),
    TT__VALUE("memory-per-node", 'm', "GIB", "memory of each node, in GiB"),
    TT__VALUE("warning", 'w', "SECONDS", "SIGTERM so long before the end, for a program that saves a checkpoint then"),
    {.what = "Slurm alone:"},
    TT__VALUE("time", 't', "LIMIT", "how long it may run, as sbatch's: 90 (minutes), 4:00:00"),
    TT__VALUE("partition", 'p', "NAME", "in which partition"),
    TT__VALUE("account", 'a', "NAME", "at whose charge"),
    {.what = "Kubernetes alone:"},
    TT__VALUE("image", 'i', "IMAGE", "the container image, which holds the command (required)"),
    TT__VALUE("namespace", 'N', "NAME", "in which namespace"),
    {0}};

const tt__command tt__cmd_submit = {
    .name = "submit",
    .what = "print a batch script or manifest of a command",
    .usage = "--slurm [FLAGS] tutti run [RUN'S FLAGS] PROGRAM [ARGUMENTS]\n"
             "--k8s --image=IMAGE [FLAGS] tutti run [RUN'S FLAGS] PROGRAM [ARGUMENTS]",
    .text = "Print what a scheduler needs to run a command that works by hand: how many nodes there are is --nnodes of "
            "the command; which of them each is, where they meet and the job's secret are filled in. The command may "
            "be torchrun's, too.\n"
            "\n"
            "  tutti submit --slurm --time=4:00:00 tutti run --nnodes=4 --nproc-per-node=8 ./train >train.sbatch\n"
            "  sbatch train.sbatch\n"
            "  tutti submit --k8s --image=registry/train:1 tutti run --nnodes=2 ./train | kubectl apply -f -",
    .flags = submit_flags,
    .notes = "Nothing is submitted: read what is printed, and change it as you like.",
    .offer = TT__OFFER_FILES,
    .runs_program = true,
    .run = submit_main,
};

static tt_status take_submit_flag(submission *s, bool *slurm, bool *k8s, int id) {
    switch (id) {
    case 's':
        *slurm = true;
        break;
    case 'k':
        *k8s = true;
        break;
    case 'n':
        s->name = optarg;
        break;
    case 'c':
        return tt__parse_i64("--cpus-per-node", optarg, 1, 1 << 20, &s->cpus);
    case 'g':
        return tt__parse_i64("--gpus-per-node", optarg, 1, 1 << 10, &s->gpus);
    case 'm':
        return tt__parse_i64("--memory-per-node", optarg, 1, 1 << 20, &s->memory_gib);
    case 'w':
        return tt__parse_i64("--warning", optarg, 1, 65535, &s->warning_s);
    case 't':
        s->time = optarg;
        break;
    case 'p':
        s->partition = optarg;
        break;
    case 'a':
        s->account = optarg;
        break;
    case 'i':
        s->image = optarg;
        break;
    default:
        s->name_space = optarg;
    }
    return TT_OK;
}

/* ---- the command */

/* Check that the command is a launcher's. *launcher: the index of the word that names it. */
static tt_status find_launcher(char **command, int *launcher) {
    const char *first = command[0] ? strrchr(command[0], '/') : NULL;
    first = first ? first + 1 : command[0];
    if (!first)
        return tt__fail(TT_ERR_INVALID, "expected a command: tutti run [FLAGS] PROGRAM");
    *launcher = 0;
    if (!strcmp(first, "torchrun"))
        return TT_OK;
    *launcher = 1;
    if (!strcmp(first, "tutti") && command[1] && (!strcmp(command[1], "run") || !strcmp(command[1], "launch")))
        return TT_OK;
    return tt__fail(TT_ERR_INVALID,
                    "expected \"tutti run ...\" or \"torchrun ...\" as the command, got \"%.100s\": put \"tutti run\" "
                    "before the program",
                    command[0]);
}

/* Refuse flags of the command that are filled in here. */
static tt_status check_left_open(const tt__run_flags *f) {
    const struct {
        bool given;
        const char *name;
    } filled[] = {{f->given.node_rank, "node-rank"},
                  {f->given.master_addr, "master-addr"},
                  {f->given.master_port, "master-port"},
                  {f->given.rdzv_endpoint, "rdzv-endpoint"},
                  {f->given.rdzv_id, "rdzv-id"},
                  {f->given.secret_file, "secret-file"},
                  {f->given.ssh, "ssh"},
                  {f->given.hostfile, "hostfile"}};
    for (size_t i = 0; i < sizeof filled / sizeof *filled; i++)
        if (filled[i].given)
            return tt__fail(TT_ERR_INVALID, "--%s of the command is filled in here: leave it out", filled[i].name);
    if (f->rdzv_backend && strcmp(f->rdzv_backend, "static") != 0)
        return tt__fail(TT_ERR_INVALID,
                        "--rdzv-backend=%.40s of the command: the nodes meet by what is filled in here: leave it out",
                        f->rdzv_backend);
    return TT_OK;
}

static tt_status count_submit_nodes(submission *s, const tt__run_flags *f) {
    TT__TRY(tt__parse_i64("--nnodes of the command", f->nnodes, 1, MAX_SUBMIT_NODES, &s->nodes));
    s->has_grace = f->given.grace_period || f->given.shutdown_timeout;
    return f->standalone && s->nodes > 1
               ? tt__fail(TT_ERR_INVALID,
                          "--standalone and --nnodes=%s of the command: a job on one node, or on several", f->nnodes)
               : TT_OK;
}

/* ---- its name */

/* Make a name of the program's: "./bin/Train_v2.py" gives "train-v2". */
static void name_of_program(const char *program, char name[NAME_MAX_LENGTH + 1]) {
    const char *slash = strrchr(program, '/'), *base = slash ? slash + 1 : program;
    int n = 0;
    for (const char *c = base; *c && *c != '.' && n < NAME_MAX_LENGTH; c++) {
        bool good = isalnum((unsigned char)*c);
        if (good || n)
            name[n++] = good ? (char)tolower((unsigned char)*c) : '-';
    }
    while (n && name[n - 1] == '-')
        n--;
    if (!n || !isalpha((unsigned char)name[0]))
        n = snprintf(name, NAME_MAX_LENGTH + 1, "train");
    name[n] = 0;
}

static bool is_name(const char *text) {
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-");
    return islower((unsigned char)*text) && !text[n] && n <= NAME_MAX_LENGTH && text[n - 1] != '-';
}

/* Is it one word? A blank or line end could begin something else in what is printed. */
static bool is_word(const char *text) {
    for (const char *c = text; c && *c; c++)
        if ((unsigned char)*c <= ' ' || *c == 127)
            return false;
    return !text || *text;
}

static tt_status check_words(const submission *s) {
    const struct {
        const char *value, *name;
    } words[] = {{s->time, "time"}, {s->partition, "partition"}, {s->account, "account"}, {s->image, "image"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!is_word(words[i].value))
            return tt__fail(TT_ERR_INVALID, "--%s: expected a word, without blanks, got \"%.100s\"", words[i].name,
                            words[i].value);
    const char *const names[][2] = {{s->name, "name"}, {s->name_space, "namespace"}};
    for (int i = 0; i < 2; i++)
        if (names[i][0] && !is_name(names[i][0]))
            return tt__fail(TT_ERR_INVALID,
                            "--%s: expected a lower-case letter, then such letters, digits and \"-\", at most %d, got "
                            "\"%.100s\"",
                            names[i][1], NAME_MAX_LENGTH, names[i][0]);
    return TT_OK;
}

static tt_status check_scheduler(const submission *s, bool slurm, bool k8s) {
    if (slurm == k8s)
        return tt__fail(TT_ERR_INVALID, "expected --slurm or --k8s%s", slurm ? ", not both" : "");
    if (k8s && !s->image)
        return tt__fail(TT_ERR_INVALID, "--k8s needs --image, the container that holds the command");
    if (k8s && (s->time || s->partition || s->account))
        return tt__fail(TT_ERR_INVALID, "--time, --partition and --account are Slurm's");
    if (slurm && (s->image || s->name_space))
        return tt__fail(TT_ERR_INVALID, "--image and --namespace are Kubernetes'");
    return TT_OK;
}

/* Check all, and make the submission of it. `argc` words from argv[0] on are the command. */
static tt_status make_submission(submission *s, bool slurm, bool k8s, int argc, char **argv,
                                 char name[NAME_MAX_LENGTH + 1]) {
    tt__run_flags flags;
    int launcher = 0, program = 0;
    TT__TRY(check_scheduler(s, slurm, k8s));
    TT__TRY(find_launcher(argv, &launcher));
    if (tt__run_flags_parse("submit", &flags, argc - launcher, argv + launcher, &program))
        return TT_ERR_STATE; /* the error is printed */
    TT__TRY(check_left_open(&flags));
    TT__TRY(count_submit_nodes(s, &flags));
    if (program >= argc - launcher)
        return tt__fail(TT_ERR_INVALID, "expected a program in the command");
    if (!s->name) {
        name_of_program(argv[launcher + program], name);
        s->name = name;
    }
    s->command = argv;
    return check_words(s);
}

/* ---- a script for sbatch ---- */

static void write_options(const submission *s) {
    const struct {
        const char *name, *value;
    } texts[] = {{"time", s->time}, {"partition", s->partition}, {"account", s->account}};
    printf("#SBATCH --job-name=%s\n#SBATCH --nodes=%" PRId64 "\n#SBATCH --ntasks-per-node=1\n", s->name, s->nodes);
    if (s->cpus)
        printf("#SBATCH --cpus-per-task=%" PRId64 "\n", s->cpus);
    else
        fputs("#SBATCH --exclusive\n", stdout); /* else a task has one CPU, for all ranks of a node */
    if (s->gpus)
        printf("#SBATCH --gpus-per-node=%" PRId64 "\n", s->gpus);
    if (s->memory_gib)
        printf("#SBATCH --mem=%" PRId64 "G\n", s->memory_gib);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].value)
            printf("#SBATCH --%s=%s\n", texts[i].name, texts[i].value);
    if (s->warning_s)
        printf("#SBATCH --signal=TERM@%" PRId64 "\n", s->warning_s);
    printf("#SBATCH --output=%s-%%j.out\n", s->name);
}

/* The job's number makes the port: jobs that share a node don't meet. Launchers find each other by PET_* variables,
 * torchrun's way of giving flags. */
static const char several_nodes[] =
    "# The launcher of the first node serves the store; the others prove to it that they know the secret.\n"
    "nodes=($(scontrol show hostnames \"$SLURM_JOB_NODELIST\"))\n"
    "export PET_NNODES=$SLURM_NNODES PET_MASTER_ADDR=${nodes[0]} PET_MASTER_PORT=$((10000 + SLURM_JOB_ID % 20000)) "
    "PET_RDZV_ID=$SLURM_JOB_ID\n"
    "# A file on a file system that all nodes share; dd makes it anew, under a name that nobody can guess.\n"
    "random() { od -An -N\"$1\" -tx1 /dev/urandom | tr -d ' \\n'; }\n"
    "export TT_SECRET_FILE=$SLURM_SUBMIT_DIR/.tutti-$SLURM_JOB_ID-$(random 16).secret\n"
    "trap 'rm -f \"$TT_SECRET_FILE\"' EXIT\n"
    "(umask 077; random 32 | dd of=\"$TT_SECRET_FILE\" conv=excl status=none)\n";

static void write_slurm(const submission *s) {
    fputs("#!/bin/bash\n", stdout);
    write_options(s);
    fputs("\nset -eu\n", stdout);
    if (s->cpus)
        fputs("export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK # srun does not take it from sbatch\n", stdout);
    if (s->warning_s && !s->has_grace)
        printf("export TORCH_ELASTIC_SHUTDOWN_TIMEOUT=%" PRId64 "\n", grace_seconds(s));
    if (s->nodes > 1) {
        fputs(several_nodes, stdout);
        fputs("# A launcher on each node starts the ranks of that node.\n"
              "srun --kill-on-bad-exit=0 bash -c 'PET_NODE_RANK=$SLURM_NODEID exec \"$@\"' node",
              stdout);
    } else {
        fputs("srun", stdout);
    }
    for (char **word = s->command; *word; word++) {
        fputs(word == s->command ? " \\\n    " : " ", stdout);
        tt__write_shell_word(*word, stdout);
    }
    putchar('\n');
}

/* ---- a manifest for kubectl apply ---- */

enum { STORE_PORT = 29500 };

/* Write a text as JSON, which is YAML, too. In a command "$(NAME)" would be replaced by a variable: "$$(NAME)" stands
 * for it. */
static void write_yaml_text(const char *text, bool is_of_command) {
    putchar('"');
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (is_of_command && c[0] == '$')
            putchar('$');
        if (*c < 0x20 || *c == 0x7f)
            printf("\\u%04x", *c);
        else
            printf(*c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
    }
    putchar('"');
}

static void write_head(const char *version, const char *kind, const submission *s) {
    printf("apiVersion: %s\nkind: %s\nmetadata:\n  name: \"%s\"\n", version, kind, s->name);
    if (s->name_space)
        printf("  namespace: \"%s\"\n", s->name_space);
}

static void write_secret(const submission *s, const char *secret) {
    fputs("# What proves that a pod belongs to the job. Keep this manifest to yourself, or print a new one.\n", stdout);
    write_head("v1", "Secret", s);
    printf("stringData:\n  secret: \"%s\"\n---\n", secret);
}

static void write_service(const submission *s) {
    printf("# Gives the first pod a name, %s-0.%s, under which the others find its store.\n", s->name, s->name);
    write_head("v1", "Service", s);
    printf("spec:\n  clusterIP: None\n  publishNotReadyAddresses: true\n  selector:\n    job-name: \"%s\"\n"
           "  ports:\n    - name: store\n      port: %d\n---\n",
           s->name, STORE_PORT);
}

static void write_variables(const submission *s) {
    printf("            - name: PET_NNODES\n"
           "              value: \"%" PRId64 "\"\n"
           "            - name: PET_NODE_RANK\n"
           "              valueFrom:\n"
           "                fieldRef:\n"
           "                  fieldPath: metadata.annotations['batch.kubernetes.io/job-completion-index']\n"
           "            - name: PET_MASTER_ADDR\n"
           "              value: %s-0.%s\n"
           "            - name: PET_MASTER_PORT\n"
           "              value: \"%d\"\n"
           "            - name: PET_RDZV_ID\n"
           "              value: \"%s\"\n"
           "            - name: TT_SECRET\n"
           "              valueFrom:\n"
           "                secretKeyRef:\n"
           "                  name: \"%s\"\n"
           "                  key: secret\n",
           s->nodes, s->name, s->name, STORE_PORT, s->name, s->name);
}

/* A limit is a request, too; ranks' shared memory counts as the pod's memory, and needs no volume. */
static void write_limits(const submission *s) {
    if (!s->cpus && !s->gpus && !s->memory_gib)
        return;
    fputs("          resources:\n            limits:\n", stdout);
    if (s->cpus)
        printf("              cpu: %" PRId64 "\n", s->cpus);
    if (s->memory_gib)
        printf("              memory: %" PRId64 "Gi\n", s->memory_gib);
    if (s->gpus)
        printf("              nvidia.com/gpu: %" PRId64 "\n", s->gpus);
}

static void write_job(const submission *s) {
    printf("# A pod a node, each with a launcher that starts the ranks of that pod.%s\n",
           s->nodes > 1 ? " When one fails, all end." : "");
    write_head("batch/v1", "Job", s);
    printf("spec:\n  completionMode: Indexed\n  completions: %" PRId64 "\n  parallelism: %" PRId64
           "\n  backoffLimit: 0\n  template:\n    spec:\n      restartPolicy: Never\n",
           s->nodes, s->nodes);
    if (s->nodes > 1)
        printf("      subdomain: \"%s\"\n", s->name);
    if (s->warning_s)
        printf("      terminationGracePeriodSeconds: %" PRId64 "\n", s->warning_s);
    fputs("      containers:\n        - name: tutti\n          image: ", stdout);
    write_yaml_text(s->image, false);
    fputs("\n          command:\n", stdout);
    for (char **word = s->command; *word; word++) {
        fputs("            - ", stdout);
        write_yaml_text(*word, true);
        putchar('\n');
    }
    bool says_grace = s->warning_s && !s->has_grace;
    if (s->nodes > 1 || says_grace)
        fputs("          env:\n", stdout);
    if (says_grace)
        printf("            - name: TORCH_ELASTIC_SHUTDOWN_TIMEOUT\n"
               "              value: \"%" PRId64 "\"\n",
               grace_seconds(s));
    if (s->nodes > 1)
        write_variables(s);
    write_limits(s);
}

/* Write a manifest for kubectl apply: a Job whose pods have numbers, the Service by which they find the first, and the
 * job's Secret. Errors: TT_ERR_SYSTEM no random bytes for it. */
static tt_status write_k8s(const submission *s) {
    char secret[TT__SECRET_MADE_SIZE];
    if (s->nodes > 1) {
        TT__TRY(tt__secret_make(secret));
        write_secret(s, secret);
        explicit_bzero(secret, sizeof secret);
        write_service(s);
    }
    write_job(s);
    return TT_OK;
}

static int submit_main(int argc, char **argv) {
    submission s = {0};
    bool slurm = false, k8s = false;
    char name[NAME_MAX_LENGTH + 1];
    int id;
    while (optind < argc && argv[optind][0] == '-' && strcmp(argv[optind], "--") != 0) {
        tt__cli_normalise_flag(argv[optind]);
        if ((id = tt__cli_next_flag(&tt__cmd_submit, argc, argv, NULL)) == 'h')
            return TT__EXIT_OK;
        if (id == '?' || id == -1)
            return TT__EXIT_USAGE;
        if (take_submit_flag(&s, &slurm, &k8s, id))
            return tt__cli_usage_error("submit", "%s", tt_last_error());
    }
    optind += optind < argc && !strcmp(argv[optind], "--");
    tt_status status = make_submission(&s, slurm, k8s, argc - optind, argv + optind, name);
    if (status)
        return status == TT_ERR_STATE ? TT__EXIT_USAGE : tt__cli_usage_error("submit", "%s", tt_last_error());
    if (slurm)
        write_slurm(&s);
    else
        status = write_k8s(&s);
    if (status)
        tt__cli_error("submit", "%s", tt_last_error());
    return status ? TT__EXIT_FAILED : TT__EXIT_OK;
}
