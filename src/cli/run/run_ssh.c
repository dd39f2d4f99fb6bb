/* tutti run --ssh, --hostfile: one command for a job on several hosts. */
#include "cli/run/run.h"

#include "base/error.h"
#include "base/text/parse.h"
#include "cli/cli.h"
#include "launch/adapters/ssh_job.h"
#include "net/secure/secret.h"

#include <stdlib.h>
#include <string.h>

/* Refuse flags that say where nodes are and meet: the hosts say that. */
static tt_status check_host_flags(const tt__run_flags *f, const tt__hosts *hosts) {
    const struct {
        bool given;
        const char *name;
    } made[] = {{f->given.node_rank, "node-rank"},
                {f->given.standalone, "standalone"},
                {f->given.rdzv_backend, "rdzv-backend"},
                {f->given.rdzv_endpoint, "rdzv-endpoint"}};
    const char *by = f->ssh ? "--ssh" : "--hostfile";
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        if (made[i].given)
            return tt__fail(TT_ERR_INVALID, "--%s and %s were given: the hosts say where the nodes are", made[i].name,
                            by);
    if (f->given.dry_run)
        return tt__fail(TT_ERR_INVALID,
                        "--dry-run and %s were given: expected one of them; the hosts' launchers know "
                        "the ranks' environment, this command does not",
                        by);
    int64_t nodes = hosts->n;
    if (strchr(f->nnodes, ':'))
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "%s starts a fixed set of hosts: expected no --nnodes=MIN:MAX, got \"%.40s\"", by, f->nnodes);
    if (f->given.nnodes)
        TT__TRY(tt__parse_i64("--nnodes", f->nnodes, 1, TT__HOSTS_MAX, &nodes));
    return nodes == hosts->n ? TT_OK
                             : tt__fail(TT_ERR_INVALID, "--nnodes is %lld, but %s lists %d host%s", (long long)nodes,
                                        by, hosts->n, hosts->n == 1 ? "" : "s");
}

static tt_status read_hosts_flag(const tt__run_flags *f, tt__hosts *hosts) {
    if (f->ssh && f->hostfile)
        return tt__fail(TT_ERR_INVALID, "--ssh and --hostfile were given: expected one of them");
    tt_status status = f->ssh ? tt__hosts_from_list(hosts, f->ssh) : tt__hosts_from_file(hosts, f->hostfile);
    return status ? tt__fail_prefix(f->ssh ? "--ssh" : "--hostfile") : TT_OK;
}

/* Read the user's secret, or make a new one. It travels over ssh, whatever file it came from. */
static tt_status choose_ssh_secret(const tt__run_flags *f, char text[TT__SECRET_MAX + 1]) {
    if (f->secret_file)
        return tt__secret_read_file(f->secret_file, text) ? tt__fail_prefix("--secret-file") : TT_OK;
    TT__TRY(tt__secret_read(text));
    return *text ? TT_OK : tt__secret_make(text);
}

/* Is the flag one that each launcher gets from here? */
static bool is_made_here(const tt__flag *flag) {
    static const char *const made[] = {"ssh", "hostfile", "secret-file", "nnodes", "master-addr", "master-port"};
    for (size_t i = 0; flag && i < sizeof made / sizeof *made; i++)
        if (!strcmp(flag->name, made[i]))
            return true;
    return false;
}

/* List the flags that every launcher gets as they are. Allocated; NULL: no memory. */
static char **common_flags(char **argv, int program) {
    char **flags = calloc((size_t)program + 1, sizeof *flags);
    int n = 0;
    for (int i = 1; flags && i < program && strcmp(argv[i], "--") != 0; i++) {
        const tt__flag *flag = tt__run_flag_named(argv[i]);
        bool has_next = flag && flag->value && !strchr(argv[i], '=') && i + 1 < program, made = is_made_here(flag);
        if (!made)
            flags[n++] = argv[i];
        i += has_next;
        if (!made && has_next)
            flags[n++] = argv[i];
    }
    return flags;
}

static void say_for_run(void *unused, const char *line) {
    (void)unused;
    tt__cli_note("run", "%s", line);
}

static tt_status run_hosts(const char *command, const tt__run_flags *f, const tt__hosts *hosts, char **argv,
                           int program, int *exit_code) {
    char secret[TT__SECRET_MAX + 1] = "";
    int64_t grace_ms = 0;
    TT__TRY(tt__run_read_grace(&grace_ms, f));
    TT__TRY(choose_ssh_secret(f, secret));
    char **flags = common_flags(argv, program);
    tt__ssh_job job = {.hosts = hosts,
                       .command = command,
                       .flags = flags,
                       .program = argv + program,
                       .master_addr = f->given.master_addr ? f->master_addr : NULL,
                       .master_port = (int)f->master_port,
                       .grace_ms = grace_ms,
                       .secret = secret,
                       .say = say_for_run};
    tt_status status = flags ? tt__ssh_job_run(&job, exit_code) : tt__fail(TT_ERR_MEMORY, "no memory for the flags");
    explicit_bzero(secret, sizeof secret);
    free(flags);
    return status;
}

int tt__run_on_hosts(const char *command, const tt__run_flags *f, int argc, char **argv, int program) {
    tt__hosts hosts = {0};
    int exit_code = TT__EXIT_FAILED;
    tt_status status = read_hosts_flag(f, &hosts);
    if (!status)
        status = check_host_flags(f, &hosts);
    if (!status && program >= argc)
        status = tt__fail(TT_ERR_INVALID, "expected a program to run");
    if (status) {
        tt__hosts_free(&hosts);
        return tt__run_flags_error(command, f);
    }
    status = run_hosts(command, f, &hosts, argv, program, &exit_code);
    tt__hosts_free(&hosts);
    if (status)
        tt__cli_error(command, "%s", tt_last_error());
    return exit_code;
}
