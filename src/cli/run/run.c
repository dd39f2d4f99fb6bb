/* tutti run: start a program once per rank. torchrun's command line; the job itself is src/elastic. */
#include "cli/run/run.h"
#include "base/setting.h"
#include "cli/look/trace_write.h"
#include "cli/run/run_bind.h"
#include "cli/run/run_devices.h"
#include "cli/run/run_dry.h"
#include "cli/run/run_flags.h"
#include "cli/run/run_logs.h"
#include "cli/run/run_look.h"
#include "cli/run/run_meeting.h"
#include "cli/run/run_signals.h"
#include "cli/run/run_ssh.h"
#include "cli/run/run_torch.h"
#include "cli/run/run_watch.h"

#include "base/atomic_file.h"
#include "base/clock.h"
#include "base/cores.h"
#include "base/error.h"
#include "base/parse.h"
#include "elastic/job.h"
#include "elastic/program.h"
#include "elastic/remote_node.h"
#include "net/net.h"
#include "net/secret_memory.h"
#include "net/wire_choice.h"

#include <tutti/store.h>

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <unistd.h>

enum { MAX_WORKERS = 4096, MAX_NODES = 4096, EXIT_NOT_EXECUTABLE = 126, EXIT_NOT_FOUND = 127 };

static const double default_settle_s = 1, default_grace_s = 30;

static int run_main(int argc, char **argv);

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

_Static_assert(TT_STORE_DEFAULT_PORT == 29500, "the help says so");

/* Print the thread's last error as this command's. */
static int run_fail(int exit_code) {
    tt__cli_error("run", "%s", tt_last_error());
    return exit_code;
}

/* "3", or "2:4". */
static tt_status count_nodes(tt__job *job, const tt__run_flags *flags) {
    const char *nnodes = flags->nnodes ? flags->nnodes : "1", *colon = strchr(nnodes, ':');
    char least[24];
    int64_t min, max, node = 0, restarts = 0;
    snprintf(least, sizeof least, "%.*s", colon ? (int)(colon - nnodes) : (int)strlen(nnodes), nnodes);
    TT__TRY(tt__parse_i64("--nnodes", least, 1, MAX_NODES, &min));
    max = min;
    if (colon)
        TT__TRY(tt__parse_i64("--nnodes", colon + 1, 1, MAX_NODES, &max));
    if (max < min)
        return tt__fail(TT_ERR_INVALID, "--nnodes: expected MIN:MAX, got \"%.40s\"", nnodes);
    if (flags->node_rank)
        TT__TRY(tt__parse_i64("--node-rank", flags->node_rank, 0, max - 1, &node));
    if (flags->max_restarts)
        TT__TRY(tt__parse_i64("--max-restarts", flags->max_restarts, 0, INT32_MAX, &restarts));
    job->max_restarts = (int)restarts;
    job->min_nodes = (int)min;
    job->nodes = job->max_nodes = (int)max;
    job->node = job->number = (int)node;
    job->node_0_reports = node > 0 && secure_getenv(TT__REMOTE_VARIABLE);
    if (secure_getenv(TT__REMOTE_VARIABLE)) /* who hands signals on may be killed */
        prctl(PR_SET_PDEATHSIG, SIGTERM);
    unsetenv(TT__REMOTE_VARIABLE);
    return TT_OK;
}

static tt_status count_workers(tt__job *job, const tt__run_flags *flags) {
    const char *text = flags->nproc_per_node ? flags->nproc_per_node : "1";
    int cores = tt__cores();
    int64_t n = 0;
    if (!strcmp(text, "cpu") || (!strcmp(text, "auto") && tt__count_devices("gpu", &n)))
        n = cores;
    else if (!strcmp(text, "gpu") || !strcmp(text, "xpu"))
        TT__TRY(tt__count_devices(text, &n));
    else if (strcmp(text, "auto") != 0 && tt__parse_i64("--nproc-per-node", text, 1, MAX_WORKERS, &n))
        return tt__fail(TT_ERR_INVALID,
                        "--nproc-per-node: expected a number from 1 to %d, auto, cpu or gpu, got \"%.100s\"",
                        MAX_WORKERS, text);
    job->workers = (int)n;
    const char *threads = getenv("OMP_NUM_THREADS");
    int share = job->workers > 0 ? cores / job->workers : 1;
    job->omp_threads = threads && *threads ? 0 : share < 1 ? 1 : share;
    return TT_OK;
}

/* Make a random UUID (version 4), as torchrun does with --standalone. */
static tt_status make_run_id(char *text, size_t size) {
    unsigned char b[16];
    if (getrandom(b, sizeof b, 0) != (ssize_t)sizeof b)
        return tt__fail(TT_ERR_SYSTEM, "the system gives no random bytes for a run id");
    b[6] = (unsigned char)((b[6] & 0x0f) | 0x40);
    b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
    snprintf(text, size, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2], b[3],
             b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
    return TT_OK;
}

static tt_status name_job(tt__job *job, tt__meeting_place *place, const tt__run_flags *flags) {
    job->role = flags->role && *flags->role ? flags->role : "default";
    job->run_id = flags->rdzv_id && *flags->rdzv_id ? flags->rdzv_id : "none";
    if (!flags->standalone)
        return TT_OK;
    TT__TRY(make_run_id(place->run_id, sizeof place->run_id));
    job->run_id = place->run_id;
    return TT_OK;
}

static tt_status read_period(const char *name, const char *text, double seconds, int64_t *ms) {
    if (text)
        TT__TRY(tt__parse_f64(name, text, &seconds));
    if (seconds < 0 || seconds > 86400)
        return tt__fail(TT_ERR_INVALID, "%s: expected seconds from 0 to 86400, got \"%s\"", name, text);
    *ms = (int64_t)(seconds * 1000);
    return TT_OK;
}

static tt_status read_periods(tt__job *job, const tt__run_flags *flags) {
    TT__TRY(read_period("--settle-period", flags->settle_period, default_settle_s, &job->settle_ms));
    const char *shutdown = flags->shutdown_timeout, *inherited = getenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
    if (flags->grace_period && shutdown)
        return tt__fail(TT_ERR_INVALID,
                        "--grace-period and --shutdown-timeout both say how long after SIGTERM: give one of them");
    if (flags->grace_period)
        return read_period("--grace-period", flags->grace_period, default_grace_s, &job->grace_ms);
    return read_period(shutdown ? "--shutdown-timeout" : "TORCH_ELASTIC_SHUTDOWN_TIMEOUT",
                       shutdown                  ? shutdown
                       : inherited && *inherited ? inherited
                                                 : NULL,
                       default_grace_s, &job->grace_ms);
}

/* Read TT_WAIT_NOTICE, which the ranks' log also uses, and check the others that ranks inherit. */
static tt_status read_notice(int64_t *ms, const tt__run_flags *flags) {
    if (flags->wait_notice)
        TT__TRY(read_period("--wait-notice", flags->wait_notice, 0, ms));
    if (flags->wait_notice && setenv("TT_WAIT_NOTICE", flags->wait_notice, 1))
        return tt__fail(TT_ERR_MEMORY, "no memory for TT_WAIT_NOTICE");
    TT__TRY(tt__settings_check());
    *ms = (int64_t)(tt__setting_seconds(TT__WAIT_NOTICE) * 1000);
    return TT_OK;
}

/* In MiB. */
static tt_status read_store_memory(tt__job *job, const tt__run_flags *flags) {
    int64_t mib = 0;
    if (flags->store_memory)
        TT__TRY(tt__parse_i64("--store-memory", flags->store_memory, 1, 1 << 24, &mib));
    job->store_memory = (size_t)mib << 20;
    return TT_OK;
}

static tt_status read_store_auth(tt__job *job, const tt__run_flags *flags) {
    static const char *const names[] = {
        [TT_STORE_AUTH_LOCAL] = "local", [TT_STORE_AUTH_REQUIRED] = "required", [TT_STORE_AUTH_NONE] = "none"};
    if (!flags->store_auth)
        return TT_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(flags->store_auth, names[i])) {
            job->store_auth = (tt_store_auth)i;
            return TT_OK;
        }
    return tt__fail(TT_ERR_INVALID, "--store-auth: expected local, required or none, got \"%.100s\"",
                    flags->store_auth);
}

/* Set the log level in the environment, for the ranks and this process. */
static tt_status set_log_level(const tt__run_flags *flags) {
    tt_log_level level;
    if (!flags->log_level)
        return TT_OK;
    if (!tt__log_level_named(flags->log_level, &level))
        return tt__fail(TT_ERR_INVALID, "--log-level: expected debug, info or warning, got \"%.100s\"",
                        flags->log_level);
    return setenv("TT_LOG", flags->log_level, 1) ? tt__fail(TT_ERR_MEMORY, "no memory for TT_LOG") : TT_OK;
}

/* torchrun's flags that change nothing here are checked all the same. */
static tt_status check_without_effect(const tt__run_flags *flags) {
    int64_t ignored;
    const char *method = flags->start_method, *handler = flags->event_log_handler;
    if (flags->monitor_interval)
        TT__TRY(read_period("--monitor-interval", flags->monitor_interval, 0, &ignored));
    if (method && strcmp(method, "spawn") != 0 && strcmp(method, "fork") != 0 && strcmp(method, "forkserver") != 0)
        return tt__fail(TT_ERR_INVALID, "--start-method: expected spawn, fork or forkserver, got \"%.40s\"", method);
    if (handler && *handler && strcmp(handler, "null") != 0 && strcmp(handler, "console") != 0)
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "--event-log-handler: expected null or console (others are plug-ins of torchrun's, written in "
                        "Python), got \"%.40s\"",
                        handler);
    return TT_OK;
}

static tt_status set_wire(const tt__run_flags *flags) {
    tt__wire wire;
    if (!flags->wire)
        return tt__wire_asked(&wire);
    if (!tt__wire_named(flags->wire, &wire))
        return tt__fail(TT_ERR_INVALID, "--wire: expected sealed, plain or tls, got \"%.40s\"", flags->wire);
    if (setenv("TT_WIRE", flags->wire, 1))
        return tt__fail(TT_ERR_MEMORY, "no memory for TT_WIRE");
    return tt__wire_asked(&wire);
}

static tt_status make_job(tt__job *job, tt__meeting_place *place, const tt__run_flags *flags) {
    TT__TRY(count_nodes(job, flags));
    TT__TRY(count_workers(job, flags));
    TT__TRY(tt__run_torch_read(job, flags));
    TT__TRY(tt__run_find_meeting_place(job, place, flags));
    TT__TRY(read_periods(job, flags));
    TT__TRY(read_store_auth(job, flags));
    TT__TRY(read_store_memory(job, flags));
    TT__TRY(set_log_level(flags));
    TT__TRY(set_wire(flags));
    TT__TRY(tt__run_signals_read(job, flags));
    TT__TRY(tt__run_watch_check(flags));
    TT__TRY(check_without_effect(flags));
    job->events = flags->event_log_handler && !strcmp(flags->event_log_handler, "console");
    const char *name = job->local_rank_name = flags->local_rank_name ? flags->local_rank_name : "local-rank";
    if (strcmp(name, "local-rank") != 0 && strcmp(name, "local_rank") != 0)
        return tt__fail(TT_ERR_INVALID, "--local-rank-name: expected local-rank or local_rank, got \"%.40s\"", name);
    job->virtual_local_rank = flags->virtual_local_rank != NULL;
    TT__TRY(tt__check_visible_devices(job));
    if (flags->module && flags->no_python && !flags->run_path)
        return tt__fail(TT_ERR_INVALID, "--module starts Python, --no-python forbids it: give one of them");
    return name_job(job, place, flags);
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
        explicit_bzero(given, strlen(given)); /* /proc/PID/environ shows it else */
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
                     "the job has no secret: who reaches it on %s, or %s, can take part in it (--secret-file FILE, "
                     "the same on all nodes, keeps others out)",
                     job->own_addr, job->etcd->replicas ? "a replica of the store" : "etcd");
    else if (!job->has_secret && job->number <= 0 && !job->torch)
        tt__cli_note(
            "run",
            "the job has no secret: who reaches %s:%d can take part in it (--secret-file FILE, the same on all "
            "nodes, keeps others out)",
            job->master_addr, job->master_port);
    return TT_OK;
}

/* As run_fail(), for what the other nodes can't know. */
static int run_fail_everywhere(const tt__job *job, int exit_code) {
    char problem[TT__ERROR_TEXT_SIZE];
    snprintf(problem, sizeof problem, "%s", tt_last_error());
    run_fail(exit_code);
    if (job->nodes == 1 || job->torch)
        return exit_code;
    tt__cli_note("run", "telling the other nodes, for at most %d s", TT__TELL_MS / 1000);
    tt__job_tell_problem(job, problem);
    return exit_code;
}

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
        tt__run_dry(job);
        tt__program_free(&program);
        return TT__EXIT_OK;
    }
    tt__run_bind_tell(job);
    int cores = tt__cores();
    if (job->omp_threads)
        tt__cli_note("run", "OMP_NUM_THREADS=%d for each of %d worker%s (%d CPU%s); set it to choose yourself",
                     job->omp_threads, job->workers, job->workers == 1 ? "" : "s", cores, cores == 1 ? "" : "s");
    int exit_code = TT__EXIT_FAILED;
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
    if (!status)
        status = tt__job_run(job, &exit_code);
    tt__run_look_end(job);
    if (status == TT_ERR_NET)
        tt__fail_prefix("--master-port (--standalone takes any that is free)");
    if (status)
        run_fail(TT__EXIT_FAILED);
    tt__program_free(&program);
    return exit_code;
}

/* Warn of flags that --standalone overrides, as torchrun's does. */
static void tell_overridden(const tt__job *job, const tt__run_flags *flags) {
    bool id = flags->rdzv_id && *flags->rdzv_id, endpoint = flags->rdzv_endpoint && *flags->rdzv_endpoint;
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
                     job->master_addr,
                     flags->rdzv_endpoint && *flags->rdzv_endpoint ? "the --rdzv-endpoint" : "the --master-addr");
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
    tt__meeting_place place = {0};
    cpu_set_t *cpus = NULL;
    int64_t notice_ms = 0;
    int code;
    if (make_job(job, &place, flags) || read_notice(&notice_ms, flags) || tt__run_logs_read(&logs, job, flags) ||
        tt__run_bind(job, &cpus, flags))
        code = tt__cli_usage_error(command->name, "%s", tt_last_error());
    else if (!count)
        code = tt__cli_usage_error(command->name, "expected a program to run");
    else if (!flags->dry_run && hand_down_secret(job, flags))
        code = run_fail(TT__EXIT_FAILED);
    else
        code = run_logged(job, &logs, flags, notice_ms, args, count);
    free(cpus);
    tt__run_logs_free(&logs);
    tt__torch_job_free(job->torch);
    return code;
}

/* PyTorch's own tests put the whole of --rdzv-conf in quotes, which no shell has taken off. */
static void take_quotes_off(const char **text) {
    static char bare[4096];
    size_t n = *text ? strlen(*text) : 0;
    if (n < 2 || n > sizeof bare || ((*text)[0] != '\'' && (*text)[0] != '"') || (*text)[n - 1] != (*text)[0])
        return;
    snprintf(bare, sizeof bare, "%.*s", (int)(n - 2), *text + 1);
    *text = bare;
}

int tt__run_main(const tt__command *command, bool local_rank, int argc, char **argv) {
    tt__run_flags flags;
    tt__job job = {.secret_fd = -1, .health = -1};
    fill_standard_streams();
    int program, status = tt__run_flags_parse(command->name, &flags, argc, argv, &program);
    if (status)
        return status;
    take_quotes_off(&flags.rdzv_conf);
    if (flags.help)
        return tt__cli_help(command, stdout);
    if (flags.print_completion)
        return print_shell_completion((char *)(uintptr_t)flags.print_completion);
    if (local_rank && flags.no_python && !flags.use_env)
        return tt__cli_usage_error(command->name, "--no-python needs --use-env: a program that is not Python's gets no "
                                                  "--local-rank=N");
    if (tt__run_has_hosts(&flags))
        return tt__run_on_hosts(command->name, &flags, argc, argv, program);
    job.local_rank_at = local_rank && !flags.use_env; /* where, its program will say */
    return run_parsed(command, &flags, job, argv + program, argc - program);
}

static int run_main(int argc, char **argv) { return tt__run_main(&tt__cmd_run, false, argc, argv); }
