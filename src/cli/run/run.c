/* tutti run, tutti launch: start a program once per rank. torchrun's command line; the job itself is src/launch. */
#include "cli/run/run.h"
#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/machine/clock.h"
#include "base/process/limits.h"
#include "cli/cli.h"
#include "cli/look/job_view.h"
#include "cli/run/run_flags.h"
#include "launch/job.h"
#include "launch/local/keeper.h"
#include "launch/local/program.h"
#include "net/secure/secret.h"

#include <tutti/store.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127 };

static int run_main(int argc, char **argv);
static int launch_main(int argc, char **argv);

const tt__command tt__cmd_run = {
    .name = "run",
    .what = "start a program once per rank",
    .usage = "[FLAGS] PROGRAM [ARGUMENTS]\n[FLAGS] -m MODULE [ARGUMENTS]",
    .text = "Start PROGRAM once per rank, with torchrun's environment (RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, "
            "MASTER_PORT, ...), and serve the store that the ranks meet through. PROGRAM is an executable or a Python "
            "script; it may use Tutti, PyTorch or neither.\n"
            "\n"
            "  tutti run --nproc-per-node=2 ./trainer --epochs 5\n"
            "  tutti run --nproc-per-node=4 train.py\n"
            "  tutti run --standalone --nproc-per-node=auto -m mypackage.train\n"
            "  tutti run --nnodes=2 --node-rank=0 --master-addr=node0 ./trainer\n"
            "  tutti run --nnodes=1:4 --rdzv-endpoint=node0:29400 --max-restarts=3 ./trainer",
    .flags = tt__run_flags_table,
    .notes =
        "A flag may be written with \"_\" for \"-\", its value after \"=\" or as the next argument; "
        "PET_NPROC_PER_NODE and so on give defaults. A script NAME.py without its run bit is started with python3 -u "
        "($PYTHON_EXEC chooses another, and starts every NAME.py). torchrun's flags may be shortened to what no other "
        "begins with.\n"
        "\n"
        "When a rank fails, the others have a moment to end by themselves, then get SIGTERM and at last SIGKILL. With "
        "--max-restarts all ranks, of all nodes, are then started again, with TORCHELASTIC_RESTART_COUNT one higher "
        "and an empty store. With --nnodes=MIN:MAX nodes may come and go meanwhile: all ranks are started again, "
        "without "
        "counting that. The report on stderr names the rank that failed first and why; the exit code is that "
        "rank's, 128 + N for signal N.",
    .offer = TT__OFFER_FILES,
    .runs_program = true,
    .run = run_main,
};

/* torch.distributed.launch, the older form of torchrun, whose programs take --local-rank=N. */
const tt__command tt__cmd_launch = {
    .name = "launch",
    .what = "as run, for programs that take --local-rank=N",
    .usage = "[FLAGS] PROGRAM [ARGUMENTS]\n[FLAGS] -m MODULE [ARGUMENTS]",
    .text =
        "Start PROGRAM once per rank as tutti run does, with --local-rank=N before its own arguments: "
        "torch.distributed.launch's command line. New programs read LOCAL_RANK instead, which is set, too; for those "
        "there is --use-env, or tutti run.\n"
        "\n"
        "  tutti launch --nproc_per_node=2 train.py --epochs 5\n"
        "  tutti launch --use-env --nproc-per-node=2 --no-python ./trainer",
    .flags = tt__run_flags_table,
    .notes = "The flags are those of tutti run. --no-python needs --use-env, as with PyTorch's.",
    .offer = TT__OFFER_FILES,
    .runs_program = true,
    .run = launch_main,
};

_Static_assert(TT_STORE_DEFAULT_PORT == 29500, "the help says so");

/* Print the thread's last error as this command's. */
static int run_fail(int exit_code) {
    tt__cli_error("run", "%s", tt_last_error());
    tt__error_file_write(tt_last_error(), false); /* of whoever started this command, as torchrun does */
    return exit_code;
}

/* Open closed standard streams, whose numbers the job's own pipes would take. */
static void fill_standard_streams(void) {
    int fd;
    while ((fd = open("/dev/null", O_RDWR)) >= 0 && fd <= STDERR_FILENO)
        ;
    if (fd >= 0)
        close(fd);
}

static tt_status run_write_trace(const tt__job *job, tt__snapshot *snapshot) {
    tt__view view;
    TT__TRY(tt__view_make(&view, snapshot));
    tt_status status = tt__trace_write(&view, job->trace);
    tt__view_free(&view);
    return status;
}

/* Read the secret that the user gave, or make one: "" = none. On several nodes the user must give it: launchers can't
 * each make the same one. A job on one node that a rank of another job starts has a secret of its own. */
static tt_status choose_secret(const tt__job *job, const tt__run_flags *flags, char text[TT__SECRET_MAX + 1]) {
    if (flags->secret_file)
        return tt__secret_read_file(flags->secret_file, text) ? tt__fail_prefix("--secret-file") : TT_OK;
    if (job->nodes == 1)
        unsetenv("TT_SECRET_FD");
    TT__TRY(tt__secret_read(text));
    return *text || job->nodes > 1 ? TT_OK : tt__secret_make(text);
}

/* Hand the secret down in memory that the ranks inherit, not in their environment, which their children, core dumps and
 * logs get to see. TT_SECRET_FILE stays if it names that secret. */
static tt_status hand_down(tt__job *job, const tt__run_flags *flags, const char *text) {
    char *given = getenv("TT_SECRET"), number[16];
    TT__TRY(tt__secret_memory_make(&job->secret_fd, text));
    snprintf(number, sizeof number, "%d", job->secret_fd);
    if (flags->secret_file || (given && *given))
        unsetenv("TT_SECRET_FILE");
    if (given)
        explicit_bzero(given, strlen(given)); /* else /proc/PID/environ would show it */
    unsetenv("TT_SECRET");
    return setenv("TT_SECRET_FD", number, 1) ? tt__fail(TT_ERR_MEMORY, "no memory for TT_SECRET_FD") : TT_OK;
}

static tt_status hand_down_secret(tt__job *job, const tt__run_flags *flags) {
    char text[TT__SECRET_MAX + 1] = "";
    tt__wire wire;
    tt_status status = choose_secret(job, flags, text);
    job->has_secret = !status && *text;
    if (!status && *text)
        status = hand_down(job, flags, text);
    explicit_bzero(text, sizeof text);
    TT__TRY(status);
    TT__TRY(tt__wire_check(&wire, &(tt__secret){.set = job->has_secret}));
    if (!job->has_secret && job->etcd)
        tt__cli_note("run",
                     "the job has no secret: who reaches it on %s, or etcd, can take part in it (--secret-file FILE, "
                     "the same on all nodes, keeps others out)",
                     job->own_addr);
    else if (!job->has_secret && job->number <= 0)
        tt__cli_note(
            "run",
            "the job has no secret: who reaches %s:%d can take part in it (--secret-file FILE, the same on all "
            "nodes, keeps others out)",
            job->master_addr, job->master_port);
    return TT_OK;
}

/* Fail as run_fail() does, and tell the other nodes, which can't know the problem. */
static int run_fail_everywhere(const tt__job *job, int exit_code) {
    char problem[TT__ERROR_TEXT_SIZE];
    snprintf(problem, sizeof problem, "%s", tt_last_error());
    run_fail(exit_code);
    if (job->nodes == 1)
        return exit_code;
    tt__cli_note("run", "telling the other nodes, for at most %d s", TT__TELL_MS / 1000);
    tt__job_tell_problem(job, problem);
    return exit_code;
}

/* ---- --dry-run ---- */

static int put_variable(void *user, const char *name, const char *value, bool only_missing) {
    const tt__job *job = user;
    const char *own = only_missing ? secure_getenv(name) : NULL;
    /* Made when the job starts. */
    if (!strcmp(name, "TT_JOB_SOCKET") || (!strcmp(name, "TORCHELASTIC_ERROR_FILE") && !job->error_dir[0]))
        return 0;
    printf("  %s=", name);
    if (!strcmp(name, "MASTER_PORT") && !job->master_port)
        fputs("\"${MASTER_PORT:?is drawn when the job starts: set it to a free port}\"", stdout);
    else
        tt__write_shell_word(own ? own : value, stdout);
    fputs(" \\\n", stdout);
    return 0;
}

/* Print on stdout what each worker of this node would get: a comment with its rank, its environment, its command, as a
 * shell could run it. Ranks are counted as if all nodes had as many workers. */
static void print_job(tt__job *job) {
    job->node = job->number < 0 ? 0 : job->number;
    job->world = job->role_world = job->workers * job->nodes;
    job->first_rank = job->first_role_rank = job->workers * job->node;
    for (int i = 0; i < job->workers; i++) {
        char local_rank[32];
        snprintf(local_rank, sizeof local_rank, "--%s=%d", job->local_rank_name, i);
        printf("# rank %d, local rank %d\nenv \\\n", job->first_rank + i, i);
        tt__worker_env(job, i, put_variable, job);
        fputs("  ", stdout);
        tt__write_shell_word(job->file, stdout);
        for (int k = 1; job->argv[k]; k++) {
            putchar(' ');
            tt__write_shell_word(k == job->local_rank_at ? local_rank : job->argv[k], stdout);
        }
        putchar('\n');
    }
}

/* ---- the job ---- */

static tt__program_how program_how(const tt__run_flags *flags) {
    return flags->run_path    ? TT__PROGRAM_RUN_PATH
           : flags->module    ? TT__PROGRAM_MODULE
           : flags->no_python ? TT__PROGRAM_NO_PYTHON
                              : TT__PROGRAM_ANY;
}

/* Run the job, whose flags are checked. */
static int run_job(tt__job *job, const tt__run_flags *flags, int64_t notice_ms, char **args, int count) {
    tt__program program;
    bool local_rank = job->local_rank_at != 0;
    tt_status status =
        tt__program_find(&program, args, count, program_how(flags), local_rank ? &job->local_rank_at : NULL);
    int not_found = status == TT_ERR_NOT_FOUND ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE;
    if (status)
        return flags->dry_run ? run_fail(not_found) : run_fail_everywhere(job, not_found);
    job->file = program.file;
    job->argv = program.argv;
    if (flags->dry_run) {
        print_job(job);
        tt__program_free(&program);
        return TT__EXIT_OK;
    }
    tt__run_bind_tell(job);
    int cores = tt__cores();
    if (job->omp_threads)
        tt__cli_note("run", "OMP_NUM_THREADS=%d for each of %d worker%s (%d CPU%s); set it to choose yourself",
                     job->omp_threads, job->workers, job->workers == 1 ? "" : "s", cores, cores == 1 ? "" : "s");
    int exit_code = TT__EXIT_FAILED;
    bool any_port = !job->master_port;
    if (tt__cli_check_ending("--trace", flags->trace, ".json"))
        status = TT_ERR_INVALID;
    else if (flags->trace && tt__atomic_check(flags->trace))
        status = tt__fail_prefix("--trace");
    if (status || tt__run_watch_begin(job, flags)) {
        tt__program_free(&program);
        return run_fail_everywhere(job, TT__EXIT_FAILED);
    }
    job->trace = flags->trace;
    job->at_end = flags->trace ? run_write_trace : NULL;
    status = tt__run_look_begin(job, notice_ms);
    if (!status) {
        tt__ticks_init(); /* the ends of workers are compared with what their recorders say */
        status = tt__job_run(job, &exit_code);
    }
    tt__run_look_end(job);
    if (status == TT_ERR_NET)
        tt__fail_prefix(any_port ? "--master-addr"
                                 : "--master-addr, --master-port (--standalone takes any port that is free)");
    if (status)
        run_fail(TT__EXIT_FAILED);
    tt__program_free(&program);
    return exit_code;
}

/* Warn of flags that --standalone overrides, as torchrun's does. */
static void tell_overridden(const tt__job *job, const tt__run_flags *flags) {
    bool id = flags->given.rdzv_id, endpoint = flags->given.rdzv_endpoint;
    if (!flags->standalone || !(id || endpoint))
        return;
    tt__cli_note("run", "--standalone makes its own id, %s, on any free port; not used:%s%s%s%s", job->run_id,
                 id ? " --rdzv-id=" : "", id ? flags->rdzv_id : "", endpoint ? " --rdzv-endpoint=" : "",
                 endpoint ? flags->rdzv_endpoint : "");
}

static int run_logged(tt__job *job, tt__logs *logs, const tt__run_flags *flags, int64_t notice_ms, char **args,
                      int count) {
    tell_overridden(job, flags);
    if (tt__run_meets_on_loopback(job))
        tt__cli_note("run", "nodes on other hosts can't reach this one at %s: give all %s that they know this host by",
                     job->master_addr, flags->rdzv_endpoint ? "the --rdzv-endpoint" : "the --master-addr");
    if (!flags->dry_run && tt__run_logs_make(logs, job, flags))
        return run_fail_everywhere(job, TT__EXIT_FAILED);
    tt__log_to_stderr("tutti run", TT_LOG_WARNING);
    return run_job(job, flags, notice_ms, args, count);
}

/* Become `tutti completion SHELL`. */
static int print_shell_completion(char *shell) {
    char name[] = "tutti", command[] = "completion";
    execv("/proc/self/exe", (char *[]){name, command, shell, NULL});
    tt__cli_error("run", "can't start tutti completion");
    return TT__EXIT_FAILED;
}

static int run_parsed(const tt__command *command, const tt__run_flags *flags, tt__job begun, char **args, int count) {
    tt__job *job = &begun;
    tt__logs logs = {0};
    tt__run_meeting place = {0};
    cpu_set_t *cpus = NULL;
    int64_t notice_ms = 0;
    int code;
    if (tt__run_job_make(job, &place, flags) || tt__run_read_notice(&notice_ms, flags) ||
        tt__run_logs_read(&logs, job, flags) || tt__run_bind(job, &cpus, flags))
        code = tt__run_flags_error(command->name, flags);
    else if (!count)
        code = tt__cli_usage_error(command->name, "expected a program to run");
    else if (!flags->dry_run && hand_down_secret(job, flags))
        code = run_fail(TT__EXIT_FAILED);
    else
        code = run_logged(job, &logs, flags, notice_ms, args, count);
    free(cpus);
    tt__run_logs_free(&logs);
    return code;
}

/* Run the job that the command line says. local_rank: --local-rank=N is among the program's arguments, unless --use-env
 * is given. Returns the exit code. */
static int run_command(const tt__command *command, bool local_rank, int argc, char **argv) {
    tt__run_flags flags;
    tt__job job = {.secret_fd = -1, .health = -1};
    fill_standard_streams();
    int program, status = tt__run_flags_parse(command->name, &flags, argc, argv, &program);
    if (status)
        return status;
    if (flags.help)
        return tt__cli_help(command, stdout);
    if (flags.print_completion)
        return print_shell_completion((char *)(uintptr_t)flags.print_completion);
    if (local_rank && flags.no_python && !flags.use_env)
        return tt__cli_usage_error(command->name, "--no-python needs --use-env: a program that is not Python's gets no "
                                                  "--local-rank=N");
    if (flags.ssh || flags.hostfile)
        return tt__run_on_hosts(command->name, &flags, argc, argv, program);
    job.local_rank_at = local_rank && !flags.use_env; /* its place is found with the program */
    return run_parsed(command, &flags, job, argv + program, argc - program);
}

static int run_main(int argc, char **argv) { return run_command(&tt__cmd_run, false, argc, argv); }
static int launch_main(int argc, char **argv) { return run_command(&tt__cmd_launch, true, argc, argv); }
