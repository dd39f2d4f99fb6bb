/* tutti bench rpc --workers: many processes call one, as workers that meet through a store. Measures the memory,
 * descriptors and threads of the one that is called, and how many calls a second it serves.
 *
 * All processes are forked before this one has threads. Then it serves the store, and tells them its port. */
#include "cli/bench/bench.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "base/process/threads.h"
#include "base/text/format.h"
#include "cli/cli.h"

#include <tutti/rpc.h>

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATIENCE_MS = 600000 };
enum { OWN_DESCRIPTORS = 24 }; /* of the store or the worker that is called, beside one for each that calls */
static const int64_t CALLING_NS = 3000000000;
static const char SERVER[] = "server"; /* its name, and a key of the store that is set when it has joined */

/* ---- the one that is called */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int workers, joined, reported;
    int64_t iterations; /* calls that each worker makes; 0: as many as it can in CALLING_NS */
    int64_t calls;      /* the sum of the calls that workers report */
    double seconds;     /* the mean of their times */
    int64_t began_ns;   /* when the first worker joined */
    tt_future *all;     /* is done when all have joined */
} served = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The size of this process, as /proc has it. */
typedef struct process_size {
    int64_t resident_bytes, descriptors, threads;
} process_size;

static int64_t count_in_folder(const char *folder) {
    DIR *entries = opendir(folder);
    int64_t n = 0;
    for (const struct dirent *entry; entries && (entry = readdir(entries));)
        n += entry->d_name[0] != '.';
    if (entries)
        closedir(entries);
    return n;
}

static process_size size_of_process(void) {
    long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file || fscanf(file, "%*s %lld", &pages) != 1)
        pages = 0;
    if (file)
        fclose(file);
    return (process_size){.resident_bytes = pages * sysconf(_SC_PAGESIZE),
                          .descriptors = count_in_folder("/proc/self/fd"),
                          .threads = count_in_folder("/proc/self/task")};
}

/* A worker has joined. The reply, which lets it begin, comes when all have. */
static tt_status bench_join(tt_rpc_call *call) {
    pthread_mutex_lock(&served.lock);
    if (!served.joined++)
        served.began_ns = tt__now_ns();
    pthread_cond_signal(&served.changed);
    pthread_mutex_unlock(&served.lock);
    return tt_rpc_return_future(call, served.all);
}
TT_RPC_FUNCTION_NAMED(bench_join, "tutti.bench.join", "()");

static tt_status bench_report(tt_rpc_call *call) {
    pthread_mutex_lock(&served.lock);
    served.calls += tt_rpc_arg_int(call, 0);
    served.seconds += tt_rpc_arg_float(call, 1) / served.workers;
    served.reported++;
    pthread_cond_signal(&served.changed);
    pthread_mutex_unlock(&served.lock);
    return TT_OK;
}
TT_RPC_FUNCTION_NAMED(bench_report, "tutti.bench.report", "(int calls, float seconds)");

static tt_status wait_until_all(const int *count, const char *what) {
    struct timespec until = tt__timespec_ms(tt__now_ms() + PATIENCE_MS);
    pthread_mutex_lock(&served.lock);
    int rc = 0;
    while (*count < served.workers && !rc)
        rc = pthread_cond_timedwait(&served.changed, &served.lock, &until);
    int n = *count;
    pthread_mutex_unlock(&served.lock);
    return n < served.workers ? tt__fail(TT_ERR_TIMEOUT, "%d of %d workers have %s in %d s", n, served.workers, what,
                                         PATIENCE_MS / 1000)
                              : TT_OK;
}

static void print_served(process_size before, process_size after, int64_t joined_ns) {
    tt__print(stdout,
              "{\"bench\":\"rpc\",\"call\":\"many workers\",\"workers\":%d,\"join_s\":%.3f,\"descriptors\":%lld,"
              "\"threads\":%lld,\"kib_per_worker\":%.1f,\"calls_per_sec\":%.0f}\n",
              served.workers, (double)joined_ns / 1e9, (long long)(after.descriptors - before.descriptors),
              (long long)after.threads, (double)(after.resident_bytes - before.resident_bytes) / 1024 / served.workers,
              (double)served.calls / served.seconds);
    fflush(stdout);
}

/* Be the server: measure this process when all have joined, and again when all have made their calls. */
static tt_status serve_workers(tt_store *store) {
    process_size before = size_of_process();
    TT__TRY(tt_store_set(store, SERVER, "", 0));
    TT__TRY(wait_until_all(&served.joined, "come"));
    int64_t joined_ns = tt__now_ns() - served.began_ns;
    process_size all = size_of_process();
    TT__TRY(tt_future_set_value(served.all, tt_rpc_none()));
    TT__TRY(wait_until_all(&served.reported, "reported their calls"));
    process_size after = size_of_process();
    if (after.resident_bytes > all.resident_bytes)
        all.resident_bytes = after.resident_bytes;
    print_served(before, all, joined_ns);
    return TT_OK;
}

/* ---- those that call */

static tt_status call_server(tt_rpc *rpc) {
    int64_t calls = 0, start, ns = 0;
    TT__TRY(tt_rpc_sync(rpc, SERVER, "tutti.bench.join"));
    for (start = tt__now_ns(); served.iterations ? calls < served.iterations : ns < CALLING_NS;
         ns = tt__now_ns() - start, calls++)
        TT__TRY(tt_rpc_sync(rpc, SERVER, "tutti.bench.take"));
    return tt_rpc_sync(rpc, SERVER, "tutti.bench.report",
                       .args = TT_RPC_ARGS(tt_rpc_int(calls), tt_rpc_float((double)ns / 1e9)));
}

/* ---- processes */

/* Run worker `i`; 0 is the one that is called. */
static int run_worker(int i, int port) {
    char name[32];
    tt_store *store = NULL;
    tt_rpc *rpc = NULL;
    snprintf(name, sizeof name, "worker%d", i);
    tt__cond_init(&served.changed);
    tt_status status = (served.all = tt_future_new()) ? TT_OK : tt_last_status();
    if (!status)
        status = tt_tcp_store(&store, "127.0.0.1", port, .timeout_ms = PATIENCE_MS);
    if (!status && i) /* wait until the server is there */
        status = tt_store_wait(store, (const char *[]){SERVER}, 1, PATIENCE_MS);
    if (!status)
        status = tt_rpc_init(&rpc, i ? name : SERVER, .store = store, .join_timeout_ms = PATIENCE_MS);
    if (!status)
        status = i ? call_server(rpc) : serve_workers(store);
    tt_status ended = rpc ? tt_rpc_shutdown(rpc, .at_once = status != TT_OK) : TT_OK;
    status = status ? status : ended;
    if (status)
        tt_report();
    tt_store_free(store);
    tt_future_free(served.all);
    return status ? TT__EXIT_FAILED : TT__EXIT_OK;
}

/* Fork worker `i`, which ends with this process, and which waits until it can read the store's port. */
static pid_t fork_worker(int i, const int ports[2]) {
    int port = 0;
    pid_t parent = getpid(), pid = fork();
    if (pid)
        return pid;
    close(ports[1]);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || read(ports[0], &port, sizeof port) != (ssize_t)sizeof port)
        _exit(TT__EXIT_FAILED);
    close(ports[0]);
    int rc = run_worker(i, port);
    fflush(NULL);
    _exit(rc);
}

static int fail_to_start(const char *what) {
    fprintf(stderr, "tutti bench rpc: can't %s: %s\n", what, strerror(errno));
    return TT__EXIT_FAILED;
}

/* Send the store's port to each worker. A write of so few bytes is never partial. */
static int tell_ports(int end, int port, int n) {
    for (int i = 0; i < n; i++)
        if (write(end, &port, sizeof port) != (ssize_t)sizeof port)
            return fail_to_start("tell the workers where the store is");
    return TT__EXIT_OK;
}

/* Wait for all; the first that fails ends the others. */
static int wait_for_processes(pid_t *pids, int n) {
    int rc = TT__EXIT_OK;
    for (int left = n, status = 0; left; left--) {
        pid_t ended;
        while ((ended = waitpid(-1, &status, 0)) < 0 && errno == EINTR)
            ;
        for (int i = 0; i < n; i++)
            pids[i] = pids[i] == ended ? 0 : pids[i]; /* its pid may be another process's from now on */
        if (ended > 0 && (!status || rc))
            continue;
        rc = TT__EXIT_FAILED;
        for (int i = 0; i < n; i++)
            if (pids[i])
                kill(pids[i], SIGKILL);
    }
    return rc;
}

/* Raise the limit of descriptors. Too few are an error: a store without descriptors would keep workers waiting. */
static tt_status raise_descriptors(int workers) {
    struct rlimit limit;
    rlim_t need = (rlim_t)(workers + count_in_folder("/proc/self/fd") + OWN_DESCRIPTORS);
    if (getrlimit(RLIMIT_NOFILE, &limit))
        return TT_OK;
    if (limit.rlim_max < need)
        return tt__fail(
            TT_ERR_SYSTEM,
            "--workers: the one that %d workers call needs %llu descriptors, but this process may have %llu "
            "(ulimit -Hn)",
            workers, (unsigned long long)need, (unsigned long long)limit.rlim_max);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    return TT_OK;
}

int tt__bench_rpc_workers(int workers, int64_t iterations) {
    tt_store_server *server = NULL;
    int ports[2], n = 0, rc = TT__EXIT_OK;
    if (raise_descriptors(workers)) {
        tt_report();
        return TT__EXIT_FAILED;
    }
    pid_t *pids = calloc((size_t)workers + 1, sizeof *pids);
    served.workers = workers;
    served.iterations = iterations;
    if (!pids || pipe(ports)) {
        free(pids);
        return fail_to_start("prepare the workers");
    }
    for (; n <= workers && !rc; n += !rc)
        if ((pids[n] = fork_worker(n, ports)) < 0)
            rc = fail_to_start("start all workers");
    if (!rc && tt_store_server_new(&server, NULL, 0)) {
        tt_report();
        rc = TT__EXIT_FAILED;
    }
    if (!rc)
        rc = tell_ports(ports[1], tt_store_server_port(server), n);
    close(ports[1]); /* workers that got no port end */
    int failed = wait_for_processes(pids, n);
    close(ports[0]);
    tt_store_server_free(server);
    free(pids);
    return rc ? rc : failed;
}
