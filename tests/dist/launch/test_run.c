/* tutti run: flags, environment, programs, exit codes, the report. What dies in which order is in
 * tests/fault/launch/test_run_deaths.c. */
#include "support/process.h"

#include <tutti/store.h>

#include <netinet/in.h>
#include <sys/socket.h>

/* A script that every test can start: its text as an argument of sh. --standalone keeps tests off each other's
 * ports. */
#define run_script(nproc, script) run_tutti("run", "--standalone", nproc, "sh", "-c", script)

static bool has_line(const char *text, const char *line) {
    size_t n = strlen(line);
    for (const char *at = text; (at = strstr(at, line)); at++)
        if ((at == text || at[-1] == '\n') && at[n] == '\n')
            return true;
    return false;
}

#define assert_line(text, line)                                     \
    do {                                                            \
        if (!has_line(text, line))                                  \
            fail_msg("expected the line \"%s\" in %s", line, text); \
    } while (0)

/* Each rank writes its environment into a file of its own. */
static void run_env(char *texts[2], size_t size, const char *const *environment, const char *const *flags) {
    char folder[64], path[96], where[160];
    temporary_folder(folder);
    snprintf(where, sizeof where, "WHERE=%s", folder);
    const char *argv[24] = {tutti(), "run"}, *env[8] = {where};
    int n = 2, m = 1;
    while (*flags)
        argv[n++] = *flags++;
    while (environment && *environment)
        env[m++] = *environment++;
    argv[n++] = "sh";
    argv[n++] = "-c";
    argv[n] = "env > $WHERE/$RANK";
    process *p = process_run(argv, env);
    assert_int_equal(p->code, 0);
    process_free(p);
    for (int rank = 0; rank < 2; rank++) {
        snprintf(path, sizeof path, "%s/%d", folder, rank);
        read_file(path, texts[rank], size);
    }
    assert_int_equal(remove_folder(folder), 2);
}

static void environment_is_torchruns(void **state) {
    (void)state;
    enum { SIZE = 65536 };
    char *texts[2] = {calloc(1, SIZE), calloc(1, SIZE)}, line[64];
    run_env(texts, SIZE, (const char *const[]){"MASTER_ADDR=overwritten", "MASTER_PORT=1", "KEPT=yes", NULL},
            (const char *const[]){"--master-port=0", "--nproc-per-node=2", "--role=trainer", "--rdzv-id=job7", NULL});
    for (int rank = 0; rank < 2; rank++) {
        static const char *const same[] = {"WORLD_SIZE=2",
                                           "LOCAL_WORLD_SIZE=2",
                                           "GROUP_RANK=0",
                                           "GROUP_WORLD_SIZE=1",
                                           "ROLE_NAME=trainer",
                                           "ROLE_WORLD_SIZE=2",
                                           "MASTER_ADDR=127.0.0.1",
                                           "TORCHELASTIC_RESTART_COUNT=0",
                                           "TORCHELASTIC_MAX_RESTARTS=0",
                                           "TORCHELASTIC_RUN_ID=job7",
                                           "TORCHELASTIC_USE_AGENT_STORE=True",
                                           "TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT",
                                           "NCCL_ASYNC_ERROR_HANDLING=1",
                                           "TORCH_NCCL_ASYNC_ERROR_HANDLING=1",
                                           "KEPT=yes"};
        static const char *const numbered[] = {"RANK", "LOCAL_RANK", "ROLE_RANK"};
        for (size_t i = 0; i < sizeof same / sizeof *same; i++)
            assert_line(texts[rank], same[i]);
        for (size_t i = 0; i < sizeof numbered / sizeof *numbered; i++) {
            snprintf(line, sizeof line, "%s=%d", numbered[i], rank);
            assert_line(texts[rank], line);
        }
        assert_contains(texts[rank], "\nTORCHELASTIC_ERROR_FILE=/");
        assert_lacks(texts[rank], "MASTER_PORT=0\n");
        free(texts[rank]);
    }
}

static void both_spellings_and_pet_defaults(void **state) {
    (void)state;
    process *p =
        run_tutti("run", "--nproc_per_node", "2", "--master_addr=127.0.0.1", "--master_port", "0", "--nnodes=1:1",
                  "--node_rank=0", "--max_restarts", "0", "--monitor_interval=5", "sh", "-c", "echo $WORLD_SIZE");
    assert_string_equal(p->text[0], "2\n2\n");
    process_free(p);

    static const char *const pet[] = {"PET_NPROC_PER_NODE=3", "PET_STANDALONE=1", "PET_ROLE=pet", NULL};
    p = run_tutti_env(pet, "run", "sh", "-c", "echo $WORLD_SIZE $ROLE_NAME");
    assert_string_equal(p->text[0], "3 pet\n3 pet\n3 pet\n");
    process_free(p);
    p = run_tutti_env(pet, "run", "--nproc-per-node=1", "sh", "-c", "echo $WORLD_SIZE $ROLE_NAME");
    assert_string_equal(p->text[0], "1 pet\n");
    process_free(p);
}

static void what_people_paste_for_one_node(void **state) {
    (void)state;
    process *p = run_tutti("run", "--nnodes=1", "--node-rank=0", "--nproc-per-node=1", "--rdzv-backend=c10d",
                           "--rdzv-endpoint=localhost:0", "--rdzv-id=7", "--rdzv-conf=timeout=60,is_host=1", "sh", "-c",
                           "echo $TORCHELASTIC_RUN_ID");
    assert_int_equal(p->code, 0);
    assert_string_equal(p->text[0], "7\n");
    process_free(p);
    p = run_tutti("run", "--rdzv-backend=static", "--rdzv-endpoint=localhost:0", "sh", "-c", "echo $MASTER_ADDR");
    assert_int_equal(p->code, 0);
    assert_string_equal(p->text[0], "localhost\n");
    process_free(p);
    p = run_tutti("run", "--standalone", "--rdzv-id=mine", "sh", "-c", "echo $TORCHELASTIC_RUN_ID");
    assert_int_equal(p->code, 0);
    assert_int_equal(strlen(p->text[0]), 37);
    assert_non_null(strstr(p->text[1], "not used: --rdzv-id=mine\n"));
    p->text[0][36] = '\0';
    assert_non_null(strstr(p->text[1], p->text[0]));
    process_free(p);
    p = run_tutti("run", "--nproc-per-node=auto", "--standalone", "sh", "-c", "echo $WORLD_SIZE $RANK");
    assert_int_equal(p->code, 0);
    assert_int_equal(count_of(p->text[0], "\n"), atoi(p->text[0]));
    process_free(p);
}

/* The second begins while the first still serves its store. */
static void two_jobs_run_side_by_side(void **state) {
    (void)state;
    process *p = run_tutti("run", "sh", "-c", "exec \"$0\" run sh -c 'echo inner $MASTER_PORT'", tutti());
    assert_int_equal(p->code, 0);
    assert_int_equal(strncmp(p->text[0], "inner ", 6), 0);
    process_free(p);
    p = run_tutti("run", "--master-addr=[::1]", "--master-port=0", "sh", "-c", "echo $MASTER_ADDR");
    assert_int_equal(p->code, 0);
    assert_string_equal(p->text[0], "::1\n");
    process_free(p);
    static const char *const loopbacks[] = {"::1", "[::1]:0", "::ffff:127.0.0.1", "::1:29500"};
    for (size_t i = 0; i < sizeof loopbacks / sizeof *loopbacks; i++) {
        p = run_tutti("run", "--rdzv-backend=c10d", "--rdzv-endpoint", loopbacks[i], "true");
        assert_int_equal(p->code, 0);
        process_free(p);
    }
}

static void flags_after_the_program_are_its_own(void **state) {
    (void)state;
    process *p = run_tutti("run", "--standalone", "echo", "--nproc_per_node=3", "--help", "-m");
    assert_string_equal(p->text[0], "--nproc_per_node=3 --help -m\n");
    process_free(p);
    p = run_tutti("run", "--standalone", "--", "echo", "--", "x");
    assert_string_equal(p->text[0], "-- x\n");
    process_free(p);
}

static void help_is_given(void **state) {
    (void)state;
    process *p = run_tutti("run", "--help");
    assert_contains(p->text[0], "--nproc-per-node");
    assert_int_equal(p->code, 0);
    process_free(p);
    p = run_tutti("help", "run");
    assert_contains(p->text[0], "--nproc-per-node");
    assert_int_equal(p->code, 0);
    process_free(p);
}

static void exit_code_is_the_first_failing_ranks(void **state) {
    (void)state;
    static const struct {
        const char *script;
        int code;
    } cases[] = {{"exit 0", 0},
                 {"exit $((3 * RANK))", 3},
                 {"test $RANK = 0 || kill -9 $$", 137},
                 {"test $RANK = 0 || kill -SEGV $$", 139}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        process *p = run_tutti("run", "--standalone", "--nproc-per-node=2", "sh", "-c", cases[i].script);
        assert_int_equal(p->code, cases[i].code);
        process_free(p);
    }
}

/* Read the other's pid from the fifo, and go on when the keeper has reaped it. */
#define SEE_IT_DIE "read pid <$FIFO; while kill -0 $pid 2>/dev/null; do :; done; "

static void report_names_the_first_failure(void **state) {
    (void)state;
    char folder[64], fifo[96], where[160];
    snprintf(fifo, sizeof fifo, "%s/fifo", temporary_folder(folder));
    snprintf(where, sizeof where, "FIFO=%s", fifo);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    process *p =
        run_tutti_env(((const char *const[]){where, NULL}), "run", "--standalone", "--nproc-per-node=2", "sh", "-c",
                      "if test $RANK = 1; then echo $$ >$FIFO; i=0; while test $i -lt 30; do i=$((i+1)); echo line $i "
                      ">&2; done; kill -9 $$\n"
                      "else " SEE_IT_DIE "echo rank zero cries >&2; exit 5; fi");
    const char *report =
        strstr(p->text[1], "tutti run: rank 1 failed first: killed by SIGKILL (signal 9) (local rank 1, pid ");
    assert_non_null(report);
    assert_contains(report, "\n    | line 11\n");
    assert_contains(report, "\n    | line 30\n");
    assert_lacks(report, "| line 10\n");
    assert_lacks(report, "| rank zero cries");
    assert_contains(report, "\ntutti run: rank 0: exit code 5\n");
    assert_int_equal(count_of(p->text[1], "failed first"), 1);
    assert_int_equal(p->code, 137);
    process_free(p);
    remove_folder(folder);
}

/* As ranks do whose calls differ. */
static void of_ranks_that_fail_alike_the_lowest_is_named(void **state) {
    (void)state;
    char folder[64], fifo[96], where[160];
    snprintf(fifo, sizeof fifo, "%s/fifo", temporary_folder(folder));
    snprintf(where, sizeof where, "FIFO=%s", fifo);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    static const char script[] =
        "echo '{\"message\": \"call 1 differs\"}' >$TORCHELASTIC_ERROR_FILE; if test $RANK = 1; then echo $$ >$FIFO; "
        "else " SEE_IT_DIE "fi; exit 1";
    process *p = run_tutti_env(((const char *const[]){where, NULL}), "run", "--standalone", "--nproc-per-node=2", "sh",
                               "-c", script);
    const char *report = strstr(p->text[1], "tutti run: rank 0 failed, as others did: exit code 1 (local rank 0, pid ");
    assert_non_null(report);
    assert_contains(report, "    call 1 differs\ntutti run: rank 1: exit code 1: the same message\n");
    assert_lacks(p->text[1], "failed first");
    process_free(p);
    remove_folder(folder);
}

static void a_secondary_failure_is_never_the_first(void **state) {
    (void)state;
    char folder[64], fifo[96], where[160];
    snprintf(fifo, sizeof fifo, "%s/fifo", temporary_folder(folder));
    snprintf(where, sizeof where, "FIFO=%s", fifo);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    process *p =
        run_tutti_env(((const char *const[]){where, NULL}), "run", "--standalone", "--nproc-per-node=2", "sh", "-c",
                      "if test $RANK = 0; then echo $$ >$FIFO\n"
                      "  echo '{\"message\": {\"message\": \"rank 1 left\", \"extraInfo\": {\"secondary\": true}}}' > "
                      "$TORCHELASTIC_ERROR_FILE; exit 1\n"
                      "else " SEE_IT_DIE "printf %s '{\"message\": {\"message\": \"ValueError: boom\\nline two\", "
                      "\"extraInfo\": {}}}' > $TORCHELASTIC_ERROR_FILE; exit 7; fi");
    assert_contains(p->text[1], "rank 1 failed first: exit code 7");
    assert_contains(p->text[1], "its message:\n    ValueError: boom\n    line two\n");
    assert_contains(p->text[1], "rank 0: exit code 1, because of another rank: rank 1 left\n");
    assert_int_equal(p->code, 7);
    process_free(p);
    remove_folder(folder);
}

/* The launcher shows once what tt_report() writes to both places; other lines of stderr are shown too. */
static void a_message_is_reported_once(void **state) {
    (void)state;
    static const char leave[] =
        "printf %s '{\"message\": {\"message\": \"TT_ERR_IO: boom\"}}' > $TORCHELASTIC_ERROR_FILE\n"
        "echo 'tutti: rank 0: TT_ERR_IO: boom' >&2; exit 1";
    char talk[sizeof leave + 32];
    process *p = run_tutti("run", "--standalone", "sh", "-c", leave);
    assert_int_equal(count_of(p->text[1], "boom"), 2);
    assert_lacks(p->text[1], "last lines");
    process_free(p);
    snprintf(talk, sizeof talk, "echo before >&2\n%s", leave);
    p = run_tutti("run", "--standalone", "sh", "-c", talk);
    assert_contains(p->text[1], "last lines of its stderr:\n    | before\n    | tutti: rank 0: TT_ERR_IO: boom\n");
    process_free(p);
}

/* What ended a rank stands at the end of its last line. */
static void long_last_lines_show_their_end(void **state) {
    (void)state;
    process *p = run_tutti("run", "--standalone", "bash", "-c",
                           "head -c 5000 /dev/zero | tr '\\0' x >&2; echo ' the cause' >&2; exit 1");
    assert_contains(p->text[1], "  last lines of its stderr:\n    | [beginning left out] xxx");
    assert_contains(p->text[1], "xxx the cause\n");
    assert_int_equal(count_of(p->text[1], "the cause"), 2);
    process_free(p);
    static const char report[] =
        "import json, os; text = 'E' * 5000 + ' the cause'; "
        "json.dump({'message': {'message': text}}, open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w')); exit(1)";
    p = run_tutti("run", "--standalone", "python3", "-c", report);
    assert_contains(p->text[1], "  its message:\n    [beginning left out] EEE");
    assert_contains(p->text[1], "EEE the cause\n");
    process_free(p);
}

/* A job of many ranks: those that ended alike share a line. */
static void ranks_that_end_alike_share_a_line(void **state) {
    (void)state;
    char folder[64], fifo[96], where[160];
    snprintf(fifo, sizeof fifo, "%s/fifo", temporary_folder(folder));
    snprintf(where, sizeof where, "FIFO=%s", fifo);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    process *p =
        run_tutti_env(((const char *const[]){where, NULL}), "run", "--standalone", "--nproc-per-node=8", "sh", "-c",
                      "case $RANK in 2) for r in 0 1 3 4 6 7; do while ! test -e $FIFO.$r; do :; done; done; echo $$ "
                      ">$FIFO; kill -9 $$;;\n"
                      "5) " SEE_IT_DIE "exit 3;; esac; : >$FIFO.$RANK");
    assert_contains(p->text[1], "rank 2 failed first: killed by SIGKILL");
    assert_contains(p->text[1], "\ntutti run: ranks 0-1, 3-4, 6-7: exit code 0\n");
    assert_contains(p->text[1], "\ntutti run: rank 5: exit code 3\n");
    process_free(p);
    remove_folder(folder);
}

static void missing_programs_are_one_error(void **state) {
    (void)state;
    char folder[64], plain[96], script[96];
    temporary_folder(folder);
    snprintf(plain, sizeof plain, "%s/plain", folder);
    snprintf(script, sizeof script, "%s/script.py", folder);
    write_file(plain, "exit 0\n", 0644);
    write_file(script, "print(1)\n", 0644);
    const struct {
        const char *program, *text;
        int code;
    } cases[] = {{"no-such-program", "no-such-program: there is no such program in PATH", 127},
                 {"./no-such-program", "./no-such-program: there is no such file", 127},
                 {"no-such-script.py", "no-such-script.py: there is no such", 127},
                 {plain, "is not executable", 126},
                 {folder, "is not a file that can be run", 126},
                 {"", "expected a program to run, got an empty name", 126},
                 {script, "--no-python forbids", 126}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        process *p = run_tutti("run", "--standalone", "--nproc-per-node=2", "--no-python", cases[i].program);
        assert_contains(p->text[1], cases[i].text);
        assert_int_equal(count_of(p->text[1], "\n"), 1);
        assert_int_equal(p->code, cases[i].code);
        process_free(p);
    }
    snprintf(script, sizeof script, "%s/lost", folder);
    write_file(script, "#!/no/such/interpreter\n", 0755);
    process *p = run_tutti("run", "--standalone", "--nproc-per-node=2", script);
    assert_contains(p->text[1], "failed first: could not be started: No such file or directory");
    assert_contains(p->text[1], "the interpreter in its first line");
    assert_int_equal(p->code, 127);
    process_free(p);
    assert_int_equal(remove_folder(folder), 3);
}

static void shell_scripts_run(void **state) {
    (void)state;
    char folder[64], with[96], without[96];
    temporary_folder(folder);
    snprintf(with, sizeof with, "%s/with", folder);
    snprintf(without, sizeof without, "%s/without", folder);
    write_file(with, "#!/bin/sh\necho with $1\n", 0755);
    write_file(without, "echo without $1\n", 0755);
    process *p = run_tutti("run", "--standalone", with, "a b");
    assert_string_equal(p->text[0], "with a b\n");
    process_free(p);
    p = run_tutti("run", "--standalone", without, "c");
    assert_string_equal(p->text[0], "without c\n");
    process_free(p);
    remove_folder(folder);
}

/* PYTHON_EXEC stands in for Python here, so that the test needs none: it prints how it was called. */
static void python_is_started_unbuffered(void **state) {
    (void)state;
    char folder[64], script[96], runnable[96], module[128];
    temporary_folder(folder);
    snprintf(script, sizeof script, "%s/script.py", folder);
    snprintf(runnable, sizeof runnable, "%s/runnable.py", folder);
    write_file(script, "print(1)\n", 0644);
    write_file(runnable, "#!/bin/sh\necho run as it is\n", 0755);
    static const char *const python[] = {"PYTHON_EXEC=echo", NULL};
    process *p = run_tutti_env(python, "run", "--standalone", script, "--flag");
    snprintf(module, sizeof module, "-u %s --flag\n", script);
    assert_string_equal(p->text[0], module);
    process_free(p);
    p = run_tutti_env(python, "run", "--standalone", "-m", "package.module", "--flag");
    assert_string_equal(p->text[0], "-u -m package.module --flag\n");
    process_free(p);
    p = run_tutti_env(python, "run", "--standalone", runnable); /* as torchrun, in spite of its run bit */
    snprintf(module, sizeof module, "-u %s\n", runnable);
    assert_string_equal(p->text[0], module);
    process_free(p);
    p = run_tutti_env(((const char *const[]){"PYTHON_EXEC=", NULL}), "run", "--standalone", runnable);
    assert_string_equal(p->text[0], "run as it is\n");
    process_free(p);
    p = run_tutti_env(((const char *const[]){"PYTHON_EXEC=no-such-python", NULL}), "run", "--standalone", script);
    assert_contains(p->text[1], "no executable \"no-such-python\"");
    assert_int_equal(p->code, 127);
    process_free(p);
    remove_folder(folder);
}

static void openmp_threads_are_shared_out(void **state) {
    (void)state;
    process *p = run_script("--nproc-per-node=64", "echo $OMP_NUM_THREADS");
    assert_contains(p->text[1], "tutti run: OMP_NUM_THREADS=");
    assert_int_equal(count_of(p->text[0], "\n"), 64);
    assert_true(atoi(p->text[0]) >= 1);
    process_free(p);
    p = run_tutti_env(((const char *const[]){"OMP_NUM_THREADS=5", NULL}), "run", "--standalone", "sh", "-c",
                      "echo $OMP_NUM_THREADS");
    assert_string_equal(p->text[0], "5\n");
    assert_string_equal(p->text[1], "");
    process_free(p);
}

/* Threads that spin take the CPUs from those that they wait for. */
static void openmp_threads_spin_briefly(void **state) {
    (void)state;
    static const char *const said[] = {"GOMP_SPINCOUNT=7", "OMP_WAIT_POLICY=active"}, *const kept[] = {"7\n", "\n"};
    process *p = run_script("--nproc-per-node=1", "echo $GOMP_SPINCOUNT");
    assert_string_equal(p->text[0], "4000\n");
    process_free(p);
    for (int i = 0; i < 2; i++) {
        p = run_tutti_env(((const char *const[]){said[i], NULL}), "run", "--standalone", "sh", "-c",
                          "echo $GOMP_SPINCOUNT");
        assert_string_equal(p->text[0], kept[i]);
        process_free(p);
    }
}

static void a_port_in_use_is_one_error(void **state) {
    (void)state;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    char port[16], place[32];
    snprintf(port, sizeof port, "%d", ntohs(address.sin_port));
    snprintf(place, sizeof place, "127.0.0.1:%s", port);
    process *p = run_tutti("run", "--master-port", port, "echo", "started");
    assert_int_equal(p->code, 1);
    assert_contains(p->text[1], place);
    assert_contains(p->text[1], "--master-port");
    assert_contains(p->text[1], "--standalone");
    assert_string_equal(p->text[0], "");
    process_free(p);
    close(fd);
}

static void stdin_is_rank_zeros(void **state) {
    (void)state;
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    assert_int_equal(write(ends[1], "hello\n", 6), 6);
    close(ends[1]);
    process *p = process_start((const char *const[]){tutti(), "run", "--standalone", "--nproc-per-node=2", "sh", "-c",
                                                     "read line; echo \"$RANK:$line\"", NULL},
                               NULL, ends[0]);
    close(ends[0]);
    process_finish(p);
    assert_contains(p->text[0], "0:hello\n");
    assert_contains(p->text[0], "1:\n");
    process_free(p);
}

static void standard_streams_may_be_closed(void **state) {
    (void)state;
    static const char script[] =
        "exec \"$0\" run --standalone --nproc-per-node=2 sh -c 'read line; echo $RANK:$line' <&- 2>&-";
    process *p = process_run((const char *const[]){"sh", "-c", script, tutti(), NULL}, NULL);
    assert_int_equal(p->code, 0);
    assert_contains(p->text[0], "0:\n");
    assert_contains(p->text[0], "1:\n");
    process_free(p);
}

static void too_many_ranks_for_the_limit_is_one_error(void **state) {
    (void)state;
    static const char script[] = "ulimit -n 40; exec \"$0\" run --standalone --nproc-per-node=50 true";
    process *p = process_run((const char *const[]){"sh", "-c", script, tutti(), NULL}, NULL);
    assert_int_equal(p->code, 1);
    assert_contains(p->text[1], "ulimit -n");
    process_free(p);
}

/* It works, or says what it lacks: nothing waits for descriptors, or aborts. */
static void any_limit_on_descriptors_is_fine(void **state) {
    (void)state;
    char script[160];
    if (getenv("TT_SANITIZED")) /* who needs some, too */
        skip();
    for (int limit = 8; limit <= 32; limit++) {
        snprintf(script, sizeof script,
                 "ulimit -n %d; exec \"$0\" run --standalone --nproc-per-node=2 \"$0\" bench startup", limit);
        process *p = process_run((const char *const[]){"sh", "-c", script, tutti(), NULL},
                                 (const char *const[]){"TUTTI_BENCH_RANK=1", "OMP_NUM_THREADS=1", NULL});
        if (p->code) {
            assert_int_equal(p->code, 1);
            assert_contains(p->text[1], "ulimit -n");
            assert_int_equal(count_of(p->text[1], "\n"), 1);
        }
        process_free(p);
    }
}

static void all_of_stderr_comes_through(void **state) {
    (void)state;
    process *p =
        run_script("--nproc-per-node=2",
                   "i=0; while test $i -lt 2000; do i=$((i+1)); echo rank $RANK line $i >&2; done; printf end >&2");
    char line[64];
    for (int rank = 0; rank < 2; rank++)
        for (int i = 1; i <= 2000; i++) {
            snprintf(line, sizeof line, "rank %d line %d\n", rank, i);
            assert_contains(p->text[1], line);
        }
    assert_int_equal(count_of(p->text[1], "end"), 2);
    process_free(p);
}

/* The launcher serves the store itself, and says there how a worker ended. */
static void the_store_says_how_a_worker_ended(void **state) {
    (void)state;
    /* Rank 0 stays, and the store with it, until its stdin is closed. */
    static const char script[] = "test $RANK = 0 || exit 4; trap '' TERM; echo port $MASTER_PORT.; read line";
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    process *p =
        process_start((const char *const[]){tutti(), "run", "--standalone", "--nproc-per-node=2", "--settle-period=60",
                                            "--grace-period=60", "sh", "-c", script, NULL},
                      NULL, ends[0]);
    close(ends[0]);
    process_expect(p, 0, ".\n", 1);
    const char *port = strstr(p->text[0], "port ");
    assert_non_null(port);
    tt_store *store = NULL;
    tt_store_value value;
    assert_int_equal(tt_tcp_store(&store, "127.0.0.1", atoi(port + 5), .timeout_ms = PATIENCE_MS), TT_OK);
    assert_int_equal(tt_store_get(store, "tutti/ended/1", &value), TT_OK);
    assert_string_equal(value.data, "exit code 4");
    tt_store_value_free(&value);
    tt_store_free(store);
    close(ends[1]);
    process_finish(p);
    assert_int_equal(p->code, 4);
    process_free(p);
}

/* The example that shows a process's place. */
static void env_report_shows_both_ranks(void **state) {
    (void)state;
    char program[4096], rank[64];
    const char *build = getenv("TT_BUILD");
    if (!build)
        skip();
    snprintf(program, sizeof program, "%s/examples/env_report", build);
    process *p = run_tutti_env(((const char *const[]){"OMP_NUM_THREADS=3", "CUDA_VISIBLE_DEVICES=", NULL}), "run",
                               "--standalone", "--nproc-per-node=2", program);
    assert_int_equal(p->code, 0);
    for (int i = 0; i < 2; i++) {
        snprintf(rank, sizeof rank, "RANK=%d\nLOCAL_RANK=%d\nWORLD_SIZE=2\nMASTER_ADDR=127.0.0.1\n", i, i);
        assert_contains(p->text[0], rank);
    }
    assert_int_equal(count_of(p->text[0], "threads 3 (OMP_NUM_THREADS)\nno devices"), 2);
    process_free(p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(environment_is_torchruns),
        cmocka_unit_test(both_spellings_and_pet_defaults),
        cmocka_unit_test(what_people_paste_for_one_node),
        cmocka_unit_test(two_jobs_run_side_by_side),
        cmocka_unit_test(flags_after_the_program_are_its_own),
        cmocka_unit_test(help_is_given),
        cmocka_unit_test(exit_code_is_the_first_failing_ranks),
        cmocka_unit_test(report_names_the_first_failure),
        cmocka_unit_test(of_ranks_that_fail_alike_the_lowest_is_named),
        cmocka_unit_test(a_secondary_failure_is_never_the_first),
        cmocka_unit_test(a_message_is_reported_once),
        cmocka_unit_test(long_last_lines_show_their_end),
        cmocka_unit_test(ranks_that_end_alike_share_a_line),
        cmocka_unit_test(missing_programs_are_one_error),
        cmocka_unit_test(shell_scripts_run),
        cmocka_unit_test(python_is_started_unbuffered),
        cmocka_unit_test(openmp_threads_are_shared_out),
        cmocka_unit_test(openmp_threads_spin_briefly),
        cmocka_unit_test(a_port_in_use_is_one_error),
        cmocka_unit_test(stdin_is_rank_zeros),
        cmocka_unit_test(all_of_stderr_comes_through),
        cmocka_unit_test(standard_streams_may_be_closed),
        cmocka_unit_test(too_many_ranks_for_the_limit_is_one_error),
        cmocka_unit_test(any_limit_on_descriptors_is_fine),
        cmocka_unit_test(the_store_says_how_a_worker_ended),
        cmocka_unit_test(env_report_shows_both_ranks),
    };
    setenv("PET_SETTLE_PERIOD", "60", 1); /* whoever is to end by itself is not stopped because it waits for a CPU */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
