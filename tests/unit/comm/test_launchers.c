/* Who started this process, as recorded environments of real launchers tell it, and lists of hosts as Slurm writes
 * them, beside a plain expansion. */
#include "comm/rendezvous/rendezvous.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "unit/expect.h"

/* ---- an environment made of lines "NAME=value" */

enum { SIZE = 32768 };

typedef struct lines_environment {
    tt__environment base;
    char text[SIZE];
    long maker;
} lines_environment;

static const char *value_of(const tt__environment *environment, const char *name) {
    const lines_environment *e = (const lines_environment *)environment;
    static char values[8][512];
    static int turn;
    size_t length = strlen(name);
    const char *found = NULL; /* the last one counts */
    for (const char *at = e->text; at && *at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL)
        if (!strncmp(at, name, length) && at[length] == '=')
            found = at + length + 1;
    if (!found || !strncmp(found, "<unset>", 7))
        return NULL;
    char *value = values[turn++ % 8];
    snprintf(value, sizeof values[0], "%.*s", (int)strcspn(found, "\n"), found);
    return value;
}

static long maker_of(const tt__environment *environment, const char *fd) {
    const lines_environment *e = (const lines_environment *)environment;
    return *fd ? e->maker : 0;
}

/* The recorded environment `name` (NULL: nothing), and more lines, which win. */
static const tt__environment *environment_of(const char *name, const char *more) {
    static lines_environment e;
    size_t n = 0;
    e = (lines_environment){.base = {.get = value_of, .maker_of = maker_of}, .maker = 4321};
    if (name) {
        char path[4096];
        const char *source = getenv("TT_SOURCE");
        snprintf(path, sizeof path, "%s/tests/vectors/launchers/%s.env", source ? source : ".", name);
        FILE *file = fopen(path, "r");
        if (!file)
            fail_msg("%s can't be read", path);
        n = fread(e.text, 1, SIZE / 2, file);
        fclose(file);
        assert_true(n > 0 && n < SIZE / 2);
    }
    snprintf(e.text + n, sizeof e.text - n, "%s", more);
    return &e.base;
}

/* ---- */

static void each_launcher_is_recognised(void **state) {
    (void)state;
    static const struct {
        const char *file, *name, *rank_name;
        int rank, world, local_rank, local_world;
        const char *host, *job;
    } cases[] = {
        {"openmpi", "mpirun (Open MPI)", "OMPI_COMM_WORLD_RANK", 1, 2, 1, 2, "", "mpi-1103822849"},
        {"mpich", "mpirun (MPICH or Intel MPI)", "PMI_RANK", 1, 2, 1, 2, "", "pmi-4321"},
        {"intelmpi", "mpirun (MPICH or Intel MPI)", "PMI_RANK", 1, 2, 1, 2, "",
         "mpi-f7670000-78e2-72fe-e960-0600aaf4396b"},
        {"srun", "srun", "SLURM_PROCID", 2, 3, 0, 1, "n1", "slurm-2-0"},
        {"srun-one-node", "srun", "SLURM_PROCID", 1, 2, 1, 2, "127.0.0.1", "slurm-1-0"},
        {"srun-pmi2", "srun", "SLURM_PROCID", 1, 2, 0, 1, "n1", "slurm-5-0"},
        /* mpirun's own servers are srun's tasks there, and all variables of theirs are inherited. */
        {"openmpi-in-slurm", "mpirun (Open MPI)", "OMPI_COMM_WORLD_RANK", 1, 2, 1, 2, "", "mpi-2127298561"},
        {"mpich-in-slurm", "mpirun (MPICH or Intel MPI)", "PMI_RANK", 1, 2, 1, 2, "", "pmi-4321"},
        {"openmpi-in-slurm-nodes", "mpirun (Open MPI)", "OMPI_COMM_WORLD_RANK", 1, 2, 0, 1, "n1", "mpi-2117402625"},
        {"mpich-in-slurm-nodes", "srun", "SLURM_PROCID", 1, 2, 0, 1, "n1", "slurm-8-0"},
        {"kubeflow-worker", "the environment", "RANK", 2, 3, -1, 0, "", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tt__launched l;
        print_message("%s\n", cases[i].file);
        assert_int_equal(tt__launched_look(environment_of(cases[i].file, ""), &l), TT_OK);
        assert_non_null(l.name);
        assert_string_equal(l.name, cases[i].name);
        assert_string_equal(l.rank_name, cases[i].rank_name);
        assert_int_equal(l.rank, cases[i].rank);
        assert_int_equal(l.world, cases[i].world);
        assert_int_equal(l.local_rank, cases[i].local_rank);
        assert_int_equal(l.local_world, cases[i].local_world);
        assert_string_equal(l.host, cases[i].host);
        assert_string_equal(l.job, cases[i].job);
        assert_int_equal(tt__launched_local_rank(environment_of(cases[i].file, ""), -7),
                         cases[i].local_rank < 0 ? -7 : cases[i].local_rank);
    }
}

/* RANK and WORLD_SIZE win over everything; one of them alone must not contradict. */
static void what_the_user_sets_wins(void **state) {
    (void)state;
    tt__launched l;
    assert_int_equal(tt__launched_look(environment_of("srun", "RANK=4\nWORLD_SIZE=9\nLOCAL_RANK=3\n"), &l), TT_OK);
    assert_true(l.by_rank_and_size);
    assert_int_equal(l.rank, 4);
    assert_int_equal(l.world, 9);
    assert_int_equal(l.local_rank, 3);
    assert_int_equal(tt__launched_look(environment_of("srun", "WORLD_SIZE=3\n"), &l), TT_OK);
    assert_string_equal(l.name, "srun");
    assert_int_equal(tt__launched_look(environment_of("srun", "WORLD_SIZE=4\n"), &l), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "WORLD_SIZE=4 is set, but srun says SLURM_STEP_NUM_TASKS=3");
    assert_int_equal(tt__launched_look(environment_of("openmpi", "RANK=0\n"), &l), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "RANK=0 is set, but mpirun (Open MPI) says OMPI_COMM_WORLD_RANK=1");
}

static void nonsense_is_named(void **state) {
    (void)state;
    static const struct {
        const char *file, *more, *text;
    } cases[] = {
        {"openmpi", "OMPI_COMM_WORLD_RANK=x\n", "OMPI_COMM_WORLD_RANK: expected a number"},
        {"openmpi", "OMPI_COMM_WORLD_RANK=2\n", "OMPI_COMM_WORLD_RANK=2 in a world of OMPI_COMM_WORLD_SIZE=2"},
        {"mpich", "PMI_SIZE=0\n", "PMI_SIZE: expected a number from 1"},
        {"srun", "SLURM_PROCID=-1\n", "SLURM_PROCID: expected a number"},
        {"srun", "SLURM_STEP_NODELIST=n[1-\n", "SLURM_STEP_NODELIST: expected a list of hosts"},
        {"srun", "SLURM_JOB_ID=x\n", "SLURM_JOB_ID: expected a number"},
        {"kubeflow-pods-of-two", "", "RANK=1 numbers a pod of 2 processes (PET_NPROC_PER_NODE)"},
    };
    tt__launched l;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(tt__launched_look(environment_of(cases[i].file, cases[i].more), &l), TT_ERR_INVALID);
        expect_error(TT_ERR_INVALID, cases[i].text);
    }
    /* Under a launcher that starts the pod's processes RANK is theirs. */
    assert_int_equal(tt__launched_look(environment_of("kubeflow-pods-of-two", "LOCAL_RANK=1\nRANK=3\n"), &l), TT_OK);
    assert_int_equal(l.rank, 3);
    /* Asking for the local rank is no error, and leaves none. */
    assert_int_equal(tt__launched_local_rank(environment_of("mpich", "PMI_SIZE=0\n"), 5), 5);
    assert_int_equal(tt_last_status(), TT_OK);
}

static void meet(tt__meeting *meeting, const char *file, const char *more) {
    tt_init_process_group_args args = {0};
    if (tt__meeting_from_env(environment_of(file, more), meeting, &args))
        fail_msg("%s: %s", file ? file : "nothing", tt_last_error());
}

static void ranks_meet_where_the_launcher_says(void **state) {
    (void)state;
    tt__meeting m, other;
    char path[256];
    meet(&m, "srun", "");
    assert_string_equal(m.host, "n1");
    assert_int_equal(m.port, 10002); /* 10000 + the job's number % 20000 */
    assert_int_equal(m.rank, 2);
    assert_int_equal(m.serves, false);
    meet(&other, "srun", "SLURM_STEP_ID=1\n");
    assert_int_not_equal(other.port, m.port);
    assert_true(other.port >= 10000 && other.port < 30000);
    meet(&m, "srun", "SLURM_JOB_ID=4294967295\nSLURM_STEP_ID=2147483647\n");
    assert_true(m.port >= 10000 && m.port < 30000);
    meet(&m, "srun", "SLURM_PROCID=0\nMASTER_PORT=29999\n");
    assert_string_equal(m.host, "n1");
    assert_int_equal(m.port, 29999);
    assert_int_equal(m.serves, true);
    meet(&m, "srun", "MASTER_ADDR=login\n");
    assert_string_equal(m.host, "login");
    assert_int_equal(m.port, 10002);
    meet(&m, "mpich-in-slurm-nodes", "");
    assert_string_equal(m.host, "n1");
    meet(&m, "openmpi-in-slurm-nodes", "");
    assert_string_equal(m.host, "n1");
    assert_string_equal(m.path, "");
    assert_true(m.port >= 10000 && m.port < 30000);
    /* One host: in a file named after the job. */
    meet(&m, "openmpi", "TMPDIR=/scratch\n");
    snprintf(path, sizeof path, "/scratch/tutti-%u-mpi-1103822849", (unsigned)geteuid());
    assert_string_equal(m.path, path);
    /* In the user's own runtime folder, if nobody else may look into it. */
    char own[] = "/tmp/tutti-launchers-XXXXXX", more[128];
    assert_non_null(mkdtemp(own));
    snprintf(more, sizeof more, "TMPDIR=/scratch\nXDG_RUNTIME_DIR=%s\n", own);
    meet(&m, "openmpi", more);
    assert_memory_equal(m.path, own, strlen(own));
    assert_int_equal(chmod(own, 0755), 0);
    meet(&m, "openmpi", more);
    assert_string_equal(m.path, path);
    assert_int_equal(rmdir(own), 0);
    meet(&m, "openmpi", more);
    assert_string_equal(m.path, path);
    meet(&m, "mpich", "");
    snprintf(path, sizeof path, "/tmp/tutti-%u-pmi-4321", (unsigned)geteuid());
    assert_string_equal(m.path, path);
    meet(&m, "openmpi", "PMIX_NAMESPACE=prterun-../host@1\n");
    assert_null(strchr(m.path + strlen("/tmp/"), '/'));
    /* The user's own choice, for an mpirun as well. */
    meet(&m, "openmpi", "MASTER_ADDR=10.0.0.1\nMASTER_PORT=1234\n");
    assert_string_equal(m.path, "");
    assert_string_equal(m.host, "10.0.0.1");
    assert_int_equal(m.port, 1234);
    meet(&m, "mpich", "MASTER_PORT=1234\n");
    assert_string_equal(m.host, "127.0.0.1");
    /* One process meets nobody. */
    meet(&m, "mpich", "PMI_RANK=0\nPMI_SIZE=1\nMPI_LOCALNRANKS=1\nPMI_FD=<unset>\n");
    assert_int_equal(m.world, 1);
    meet(&m, "kubeflow-worker", "");
    assert_string_equal(m.host, "digits-master-0");
    assert_int_equal(m.port, 23456);
    assert_int_equal(m.rank, 2);
}

/* Whose secret MUNGE can bring: that of an srun's step on several hosts, and of nothing else. */
static void srun_names_the_secret(void **state) {
    (void)state;
    static const struct {
        const char *file, *more, *of;
        bool needs;
    } cases[] = {
        {"srun", "", "slurm-2-0", true},
        {"srun", "SLURM_STEP_ID=3\n", "slurm-2-3", true},
        {"srun-pmi2", "", "slurm-5-0", true},
        {"mpich-in-slurm-nodes", "", "slurm-8-0", true},
        {"srun-one-node", "", "slurm-1-0", false},
        {"openmpi-in-slurm-nodes", "", "", true},
        {"srun", "RANK=0\nWORLD_SIZE=2\nMASTER_ADDR=n1\nMASTER_PORT=1\n", "", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tt__meeting m;
        meet(&m, cases[i].file, cases[i].more);
        assert_string_equal(m.secret_of, cases[i].of);
        assert_int_equal(m.needs_secret, cases[i].needs);
    }
}

static void what_is_missing_is_told(void **state) {
    (void)state;
    static const struct {
        const char *file, *more, *text;
    } cases[] = {
        {"sbatch", "", "SLURM_PROCID=0 and SLURM_NTASKS=3, but no SLURM_STEP_ID"},
        {"sbatch", "", "start the program with `srun PROGRAM`"},
        {"sbatch", "SLURM_PROCID=<unset>\n", "saw SLURM_JOB_ID=3"},
        {"srun", "SLURM_STEP_ID=4294967290\n", "no SLURM_STEP_ID of a task"},
        {"kubeflow-trainer-v2", "", "saw PET_NNODES=2"},
        {"kubeflow-trainer-v2", "", "`tutti run PROGRAM`"},
        {NULL, "PMIX_RANK=1\n", "a PMIx server tells no number of processes: set WORLD_SIZE"},
        {NULL, "PMIX_RANK=1\nWORLD_SIZE=2\n", "a PMIx server does not say where rank 0 of 2 can be met"},
        {NULL, "", "RANK is not set, nor do variables of srun or mpirun say it"},
        {NULL, "RANK=0\n", "WORLD_SIZE is not set"},
        {NULL, "RANK=\nWORLD_SIZE=2\n", "RANK: expected a number"},
        {"mpich", "PMI_SIZE=4\n",
         "mpirun (MPICH or Intel MPI) does not say where rank 0 of 4 can be met: set MASTER_ADDR"},
        {"mpich", "PMI_FD=<unset>\n", "set MASTER_ADDR"},
        {"mpich", "PMI_SIZE=4\nMASTER_ADDR=n1\n", "MASTER_PORT: expected a number"},
        {"openmpi", "MASTER_ADDR=\n", "MASTER_ADDR is empty"},
    };
    tt_init_process_group_args args = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tt__meeting m;
        assert_int_equal(tt__meeting_from_env(environment_of(cases[i].file, cases[i].more), &m, &args), TT_ERR_INVALID);
        expect_error(TT_ERR_INVALID, cases[i].text);
    }
}

/* A world of one is for who asks for it, and only where nobody wanted several. */
static void alone_where_nothing_is_set(void **state) {
    (void)state;
    static const struct {
        const char *file, *more;
        tt_status status;
    } cases[] = {
        {NULL, "", TT_OK},
        {NULL, "MASTER_ADDR=n1\nMASTER_PORT=29500\n", TT_OK},
        {"sbatch", "SLURM_PROCID=<unset>\n", TT_OK},
        {"sbatch", "SLURM_NTASKS=1\n", TT_OK},
        {"sbatch", "", TT_ERR_INVALID},
        {"sbatch", "SLURM_NTASKS=<unset>\nSLURM_NNODES=2\nSLURM_JOB_NUM_NODES=2\n", TT_ERR_INVALID},
        {"sbatch", "SLURM_NTASKS=<unset>\nSLURM_NNODES=1\nSLURM_JOB_NUM_NODES=1\n", TT_OK},
        {"kubeflow-trainer-v2", "", TT_ERR_INVALID},
        {NULL, "PMIX_RANK=0\n", TT_ERR_INVALID},
        {NULL, "RANK=0\n", TT_ERR_INVALID},
        {NULL, "WORLD_SIZE=2\n", TT_ERR_INVALID},
    };
    tt_init_process_group_args args = {.or_alone = true};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tt__meeting m;
        assert_int_equal(tt__meeting_from_env(environment_of(cases[i].file, cases[i].more), &m, &args),
                         cases[i].status);
        if (!cases[i].status)
            assert_int_equal(m.world, 1);
    }
    tt__meeting m;
    assert_int_equal(tt__meeting_from_env(environment_of("srun", ""), &m, &args), TT_OK);
    assert_int_equal(m.world, 3);
}

/* A socket pair tells who made it, also to a child that inherits one end. */
static void the_maker_of_a_socket_is_known(void **state) {
    (void)state;
    int ends[2];
    char text[16];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    snprintf(text, sizeof text, "%d", ends[1]);
    assert_int_equal(tt__own_environment.maker_of(&tt__own_environment, text), getpid());
    close(ends[0]);
    close(ends[1]);
    assert_int_equal(tt__own_environment.maker_of(&tt__own_environment, text), 0);
    assert_int_equal(tt__own_environment.maker_of(&tt__own_environment, "x"), 0);
    assert_int_equal(tt__own_environment.maker_of(&tt__own_environment, "-1"), 0);
    assert_int_equal(tt__own_environment.maker_of(&tt__own_environment, "99999999999"), 0);
}

/* ---- lists of hosts */

/* Expand a list through tt__slurm_host(), joined by spaces; "-": it makes no sense. */
static const char *expand(const char *list) {
    static char text[65536];
    char host[256];
    size_t n = 0;
    *text = '\0';
    for (uint64_t i = 0;; i++) {
        int got = tt__slurm_host(list, i, host, sizeof host);
        if (got < 0)
            return "-";
        if (!got)
            return text;
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s", i ? " " : "", host);
        assert_true(n < sizeof text);
    }
}

/* What `scontrol show hostnames` of Slurm 24.11 says of those that make sense. */
static void lists_are_expanded_as_by_scontrol(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"node[01-03,05],gpu7", "node01 node02 node03 node05 gpu7"},
        {"rack[1-2]n[1-3]", "rack1n1 rack1n2 rack1n3 rack2n1 rack2n2 rack2n3"},
        {"n[9-11]", "n9 n10 n11"},
        {"n[09-11]", "n09 n10 n11"},
        {"node-[001-002]-ib", "node-001-ib node-002-ib"},
        {"x1000c[0-1]s[0,2]b0", "x1000c0s0b0 x1000c0s2b0 x1000c1s0b0 x1000c1s2b0"},
        {"tux[3]", "tux3"},
        {"a,b,c", "a b c"},
        {"n[5,1-2]", "n5 n1 n2"},
        {"n[08-11]", "n08 n09 n10 n11"},
        {"n[1-3", "-"},
        {"n[]", "-"},
        {"n[3-1]", "-"},
        {"n[1-2,]", "-"},
        {"n[-2]", "-"},
        {"n]", "-"},
        {"", "-"},
        {",a", "-"},
        {"a b", "-"},
        {"n[1-99999999999999999999]", "-"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(expand(cases[i][0]), cases[i][1]);
    char host[256];
    assert_int_equal(tt__slurm_host("n[1-4000000000]", 3999999999, host, sizeof host), 1);
    assert_string_equal(host, "n4000000000");
    assert_int_equal(tt__slurm_host("n[1-4000000000]", 4000000000, host, sizeof host), 0);
    assert_int_equal(tt__slurm_host("abcdef", 0, host, 6), -1);
    assert_int_equal(tt__slurm_host("abcde", 0, host, 6), 1);
}

static unsigned draw(unsigned *seed, unsigned below) {
    *seed = *seed * 1664525u + 1013904223u;
    return (*seed >> 16) % below;
}

/* Write an item of up to two groups, and its hosts by plain loops. */
static void draw_item(unsigned *seed, char *list, char *want) {
    int width = (int)draw(seed, 4), first = (int)draw(seed, 120), n = 1 + (int)draw(seed, 9);
    int second = (int)draw(seed, 20), m = draw(seed, 2) ? 1 + (int)draw(seed, 4) : 0;
    sprintf(list + strlen(list), "%sn%u-[%0*d-%d]", *list ? "," : "", draw(seed, 10), width, first, first + n - 1);
    char prefix[16];
    snprintf(prefix, sizeof prefix, "%.*s", 3, strrchr(list, 'n'));
    if (m)
        sprintf(list + strlen(list), "s[%d-%d,99]x", second, second + m - 1);
    char digits[16];
    snprintf(digits, sizeof digits, "%0*d", width, first);
    width = (int)strlen(digits);
    for (int i = first; i < first + n; i++) {
        if (!m)
            sprintf(want + strlen(want), "%s%s%0*d", *want ? " " : "", prefix, width, i);
        for (int j = 0; m && j <= m; j++)
            sprintf(want + strlen(want), "%s%s%0*ds%dx", *want ? " " : "", prefix, width, i, j < m ? second + j : 99);
    }
}

static void drawn_lists_are_expanded(void **state) {
    (void)state;
    unsigned seed = 20260101;
    for (int i = 0; i < 2000; i++) {
        char list[1024] = "", want[16384] = "";
        for (int items = 1 + (int)draw(&seed, 3); items--;)
            draw_item(&seed, list, want);
        if (strcmp(expand(list), want) != 0)
            fail_msg("%s\n  became %s\nexpected %s", list, expand(list), want);
        /* Damaged ones end, one way or the other. */
        char host[16];
        list[draw(&seed, (unsigned)strlen(list))] = "[],-9 "[draw(&seed, 6)];
        for (uint64_t at = 0; at < 3; at++)
            assert_in_range(tt__slurm_host(list, at, host, sizeof host) + 1, 0, 2);
    }
}

static void tasks_of_nodes(void **state) {
    (void)state;
    static const int want[] = {2, 2, 2, 1, -1};
    for (uint64_t i = 0; i < 5; i++)
        assert_int_equal(tt__slurm_tasks("2(x3),1", i), want[i]);
    assert_int_equal(tt__slurm_tasks("4", 0), 4);
    assert_int_equal(tt__slurm_tasks("4(x1000000000)", 999999999), 4);
    static const char *const bad[] = {"", "x", "2(x3", "2(3)", "2,,1", "99999999999", "2;1"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(tt__slurm_tasks(bad[i], 1), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_launcher_is_recognised),
        cmocka_unit_test(what_the_user_sets_wins),
        cmocka_unit_test(nonsense_is_named),
        cmocka_unit_test(ranks_meet_where_the_launcher_says),
        cmocka_unit_test(srun_names_the_secret),
        cmocka_unit_test(what_is_missing_is_told),
        cmocka_unit_test(alone_where_nothing_is_set),
        cmocka_unit_test(the_maker_of_a_socket_is_known),
        cmocka_unit_test(lists_are_expanded_as_by_scontrol),
        cmocka_unit_test(drawn_lists_are_expanded),
        cmocka_unit_test(tasks_of_nodes),
    };
    unsetenv("TORCHELASTIC_USE_AGENT_STORE");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
