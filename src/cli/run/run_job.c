/* A job from the flags of `tutti run`: how many nodes and workers, what they are called, how long anything may take,
 * and where their output goes. */
#include "cli/run/run.h"

#include "base/error.h"
#include "base/process/limits.h"
#include "base/random_bytes.h"
#include "base/setting.h"
#include "base/text/parse.h"
#include "cli/cli.h"
#include "launch/adapters/remote_node.h"
#include "net/secure/secret.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

/* "3", or "2:4". */
static tt_status count_nodes(tt__job *job, const tt__run_flags *flags) {
    const char *nnodes = flags->nnodes, *colon = strchr(nnodes, ':');
    char least[24];
    int64_t min, max;
    snprintf(least, sizeof least, "%.*s", colon ? (int)(colon - nnodes) : (int)strlen(nnodes), nnodes);
    TT__TRY(tt__parse_i64("--nnodes", least, 1, TT__RUN_NODES_MAX, &min));
    max = min;
    if (colon)
        TT__TRY(tt__parse_i64("--nnodes", colon + 1, 1, TT__RUN_NODES_MAX, &max));
    if (max < min)
        return tt__fail(TT_ERR_INVALID, "--nnodes: expected MIN:MAX, got \"%.40s\"", nnodes);
    if (flags->node_rank >= max)
        return tt__fail(TT_ERR_INVALID, "--node-rank: expected a number from 0 to %lld, got \"%lld\"",
                        (long long)(max - 1), (long long)flags->node_rank);
    job->max_restarts = (int)flags->max_restarts;
    job->min_nodes = (int)min;
    job->nodes = job->max_nodes = (int)max;
    job->node = job->number = (int)flags->node_rank;
    job->node_0_reports = flags->node_rank > 0 && secure_getenv(TT__REMOTE_VARIABLE);
    if (secure_getenv(TT__REMOTE_VARIABLE)) /* the process that hands signals on may be killed */
        prctl(PR_SET_PDEATHSIG, SIGTERM);
    unsetenv(TT__REMOTE_VARIABLE);
    return TT_OK;
}

static tt_status count_workers(tt__job *job, const tt__run_flags *flags) {
    const char *text = flags->nproc_per_node;
    int cores = tt__cores();
    int64_t n = 0;
    if (!strcmp(text, "cpu") || (!strcmp(text, "auto") && tt__count_devices("gpu", &n)))
        n = cores;
    else if (!strcmp(text, "gpu") || !strcmp(text, "xpu"))
        TT__TRY(tt__count_devices(text, &n));
    else if (strcmp(text, "auto") != 0 && tt__parse_i64("--nproc-per-node", text, 1, TT__WORKERS_MAX, &n))
        return tt__fail(TT_ERR_INVALID,
                        "--nproc-per-node: expected a number from 1 to %d, auto, cpu or gpu, got \"%.100s\"",
                        TT__WORKERS_MAX, text);
    job->workers = (int)n;
    const char *threads = getenv("OMP_NUM_THREADS");
    int share = job->workers > 0 ? cores / job->workers : 1;
    job->omp_threads = threads && *threads ? 0 : share < 1 ? 1 : share;
    return TT_OK;
}

/* Make a random UUID (version 4), as torchrun does with --standalone. */
static tt_status make_run_id(char *text, size_t size) {
    unsigned char b[16];
    TT__TRY(tt__random_bytes(b, sizeof b));
    b[6] = (unsigned char)((b[6] & 0x0f) | 0x40);
    b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
    snprintf(text, size, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2], b[3],
             b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
    return TT_OK;
}

static tt_status name_job(tt__job *job, tt__run_meeting *place, const tt__run_flags *flags) {
    job->role = flags->role;
    job->run_id = flags->rdzv_id;
    if (!flags->standalone)
        return TT_OK;
    TT__TRY(make_run_id(place->run_id, sizeof place->run_id));
    job->run_id = place->run_id;
    return TT_OK;
}

tt_status tt__run_read_grace(int64_t *grace_ms, const tt__run_flags *flags) {
    const char *inherited = getenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT");
    double seconds;
    *grace_ms = flags->given.shutdown_timeout ? flags->shutdown_timeout : flags->grace_period;
    if (flags->given.grace_period && flags->given.shutdown_timeout)
        return tt__fail(TT_ERR_INVALID,
                        "--grace-period and --shutdown-timeout both say how long after SIGTERM: give one of them");
    if (flags->given.grace_period || flags->given.shutdown_timeout || !inherited || !*inherited)
        return TT_OK;
    TT__TRY(tt__parse_f64("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", inherited, &seconds));
    if (seconds < 0 || seconds > 86400)
        return tt__fail(TT_ERR_INVALID,
                        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT: expected seconds from 0 to 86400, got \"%.40s\"", inherited);
    *grace_ms = (int64_t)(seconds * 1000);
    return TT_OK;
}

static tt_status read_periods(tt__job *job, const tt__run_flags *flags) {
    job->settle_ms = flags->settle_period;
    return tt__run_read_grace(&job->grace_ms, flags);
}

tt_status tt__run_read_notice(int64_t *ms, const tt__run_flags *flags) {
    char seconds[32];
    snprintf(seconds, sizeof seconds, "%lld.%03lld", (long long)(flags->wait_notice / 1000),
             (long long)(flags->wait_notice % 1000));
    if (flags->given.wait_notice && setenv("TT_WAIT_NOTICE", seconds, 1))
        return tt__fail(TT_ERR_MEMORY, "no memory for TT_WAIT_NOTICE");
    TT__TRY(tt__settings_check());
    *ms = (int64_t)(tt__setting_seconds(TT__WAIT_NOTICE) * 1000);
    return TT_OK;
}

/* ---- --signals-to-handle */

/* Return the number of a signal by its name of n letters, "SIGTERM"; 0: there is none. */
static int signal_named(const char *name, size_t n) {
    for (int sig = 1; sig < SIGRTMIN; sig++) {
        const char *own = sigabbrev_np(sig);
        if (own && n == strlen(own) + 3 && !strncmp(name, "SIG", 3) && !strncmp(name + 3, own, n - 3))
            return sig;
    }
    return 0;
}

/* May the user name this signal? Not if nobody can handle it, it tells of a mistake of the process itself, or the
 * launcher needs it. */
static bool can_be_handled(int sig) {
    static const int others[] = {SIGKILL, SIGSTOP, SIGCHLD, SIGWINCH, SIGPIPE, SIGXFSZ,
                                 SIGSEGV, SIGBUS,  SIGFPE,  SIGILL,   SIGTRAP, SIGABRT};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (sig == others[i])
            return false;
    return sig != 0;
}

/* Set job->signals and signal_names, which point into `flags`, the environment or constants. Errors: TT_ERR_INVALID. */
static tt_status read_signals(tt__job *job, const tt__run_flags *flags) {
    const char *given = flags->signals_to_handle, *inherited = getenv("TORCHELASTIC_SIGNALS_TO_HANDLE");
    const char *names = given ? given : inherited && *inherited ? inherited : "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
    sigemptyset(&job->signals);
    job->signal_names = names;
    for (const char *at = names; at;) {
        const char *comma = strchr(at, ',');
        at += strspn(at, " ");
        size_t n = strcspn(at, ", ");
        int sig = signal_named(at, n);
        if (!can_be_handled(sig))
            return tt__fail(TT_ERR_INVALID,
                            "%s: expected names such as SIGTERM,SIGINT,SIGUSR1, got \"%.*s\", which is %s",
                            names == given ? "--signals-to-handle" : "TORCHELASTIC_SIGNALS_TO_HANDLE", (int)n, at,
                            sig ? "a signal that can't be handled" : "no signal");
        sigaddset(&job->signals, sig);
        at = comma ? comma + 1 : NULL;
    }
    return TT_OK;
}

/* ---- the whole job */

/* Set TT_LOG and TT_WIRE, which the ranks and this process read. */
static tt_status set_variables(const tt__run_flags *flags) {
    tt__wire wire;
    if (flags->log_level && setenv("TT_LOG", flags->log_level, 1))
        return tt__fail(TT_ERR_MEMORY, "no memory for TT_LOG");
    if (flags->wire && setenv("TT_WIRE", flags->wire, 1))
        return tt__fail(TT_ERR_MEMORY, "no memory for TT_WIRE");
    return tt__wire_asked(&wire);
}

tt_status tt__run_job_make(tt__job *job, tt__run_meeting *place, const tt__run_flags *flags) {
    TT__TRY(count_nodes(job, flags));
    TT__TRY(count_workers(job, flags));
    TT__TRY(tt__run_find_meeting_place(job, place, flags));
    TT__TRY(read_periods(job, flags));
    TT__TRY(set_variables(flags));
    TT__TRY(read_signals(job, flags));
    TT__TRY(tt__run_watch_check(flags));
    job->store_auth = (tt_store_auth)tt__cli_choice(TT__STORE_AUTHS, flags->store_auth);
    job->store_memory = (size_t)flags->store_memory << 20;
    job->events = !strcmp(flags->event_log_handler, "console");
    if (!job->events && strcmp(flags->event_log_handler, "null") != 0)
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "--event-log-handler: expected null or console (others are plug-ins of torchrun's, written in "
                        "Python), got \"%.40s\"",
                        flags->event_log_handler);
    job->local_rank_name = flags->local_rank_name;
    job->virtual_local_rank = flags->virtual_local_rank;
    TT__TRY(tt__check_visible_devices(job));
    if (flags->module && flags->no_python && !flags->run_path)
        return tt__fail(TT_ERR_INVALID, "--module starts Python, --no-python forbids it: give one of them");
    return name_job(job, place, flags);
}

/* ---- their output: --log-dir, --redirects, --tee, filters */

/* Read "3", streams of all workers, or "0:1,12:3", those of local ranks 0 and 12 and none of the others. */
static tt_status read_streams(const char *flag, const char *text, int workers, uint8_t *streams) {
    if (text[0] >= '0' && text[0] <= '3' && !text[1]) {
        memset(streams, text[0] - '0', (size_t)workers);
        return TT_OK;
    }
    for (const char *at = text; at;) {
        char *colon;
        unsigned long worker = strtoul(at, &colon, 10);
        bool good = *at >= '0' && *at <= '9' && *colon == ':' && colon[1] >= '0' && colon[1] <= '3' &&
                    (!colon[2] || colon[2] == ',');
        if (!good)
            return tt__fail(TT_ERR_INVALID,
                            "%s: expected 0 (nothing), 1 (stdout), 2 (stderr), 3 (both), or LOCAL_RANK:0..3,..., got "
                            "\"%.100s\"",
                            flag, text);
        if (worker < (unsigned long)workers)
            streams[worker] = (uint8_t)(colon[1] - '0');
        at = colon[2] ? colon + 3 : NULL;
    }
    return TT_OK;
}

static tt_status read_ranks_filter(tt__logs *logs, const char *text, int workers) {
    if (!text)
        return TT_OK;
    memset(logs->hidden, true, (size_t)workers);
    for (const char *at = text; at;) {
        char *end;
        unsigned long worker = strtoul(at, &end, 10);
        if (*at < '0' || *at > '9' || end - at > 9 || (*end && *end != ','))
            return tt__fail(TT_ERR_INVALID, "--local-ranks-filter: expected local ranks as 0,1,2, got \"%.100s\"",
                            text);
        if (worker < (unsigned long)workers)
            logs->hidden[worker] = false;
        at = *end ? end + 1 : NULL;
    }
    return TT_OK;
}

/* Split at single commas; a double one is a comma. Returns one allocation, an array that ends with NULL and its texts;
 * NULL: no memory. */
static char **split_filters(const char *text) {
    size_t n = strlen(text), count = 1, i = 0;
    char **filters = calloc(1, (n + 2) * sizeof *filters + n + 1);
    char *out = filters ? (char *)(filters + n + 2) : NULL;
    if (!filters)
        return NULL;
    filters[0] = out;
    for (; i < n; i++) {
        if (text[i] != ',') {
            *out++ = text[i];
        } else if (text[i + 1] == ',') {
            *out++ = text[i++];
        } else {
            *out++ = '\0';
            filters[count++] = out;
        }
    }
    return filters;
}

static tt_status read_filters(tt__logs *logs, const tt__run_flags *flags) {
    const char *const texts[] = {flags->duplicate_stdout_filters, flags->duplicate_stderr_filters};
    for (int i = 0; i < 2; i++)
        if (texts[i] && !(logs->filters[i] = split_filters(texts[i])))
            return tt__fail(TT_ERR_MEMORY, "no memory for filters");
    return TT_OK;
}

tt_status tt__run_logs_read(tt__logs *logs, tt__job *job, const tt__run_flags *flags) {
    const char *prefix = flags->log_line_prefix_template ? flags->log_line_prefix_template
                                                         : getenv("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
    size_t n = (size_t)job->workers;
    if (flags->logs_specs && strcmp(flags->logs_specs, "default") != 0)
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "--logs-specs names a plug-in of torchrun's, written in Python, which tutti run does not load: "
                        "--log-dir, --redirects and --tee say where output goes");
    *logs = (tt__logs){.files = calloc(n, 1), .tee = calloc(n, 1), .hidden = calloc(n, sizeof *logs->hidden)};
    if (!logs->files || !logs->tee || !logs->hidden)
        return tt__fail(TT_ERR_MEMORY, "no memory for the output of %d workers", job->workers);
    logs->prefix = prefix && *prefix ? prefix : "[${role_name}${local_rank}]:";
    TT__TRY(read_streams("--redirects", flags->redirects, job->workers, logs->files));
    TT__TRY(read_streams("--tee", flags->tee, job->workers, logs->tee));
    TT__TRY(read_ranks_filter(logs, flags->local_ranks_filter, job->workers));
    TT__TRY(read_filters(logs, flags));
    job->logs = logs;
    return TT_OK;
}

tt_status tt__run_logs_make(tt__logs *logs, const tt__job *job, const tt__run_flags *flags) {
    const char *base = flags->log_dir;
    bool keeps_output = false, to_null = base && !strcmp(base, "/dev/null");
    for (int i = 0; i < job->workers; i++) {
        logs->files[i] |= logs->tee[i]; /* a stream that is teed goes through its file */
        keeps_output = keeps_output || logs->files[i];
    }
    if ((!base && !keeps_output) || to_null) {
        memset(logs->files, 0, (size_t)job->workers);
        return TT_OK;
    }
    if (tt__logs_make(logs, base, job->run_id))
        return base ? tt__fail_prefix("--log-dir") : TT_ERR_IO;
    if (keeps_output)
        tt__cli_note("run", "the workers' logs are in %s", logs->dir);
    else
        tt__cli_note("run",
                     "the workers' error files are in %s; to keep their output there, too, add --tee=3 or "
                     "--redirects=3",
                     logs->dir);
    return TT_OK;
}

void tt__run_logs_free(tt__logs *logs) {
    free(logs->dir);
    free(logs->files);
    free(logs->tee);
    free(logs->hidden);
    free(logs->filters[0]);
    free(logs->filters[1]);
    *logs = (tt__logs){0};
}
