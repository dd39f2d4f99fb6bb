/* Timers of this process (tt_expires()), in memory that the launcher watches: net/job/job_socket.h. */
#include "base/args.h"
#include "base/error.h"
#include "base/files/fd.h"
#include "base/machine/clock.h"
#include "base/process/fork.h"
#include "net/job/job_socket.h"

#include <tutti/job.h>

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { TIMERS_PATIENCE_MS = 200, MOST_USES = 1 << 24 };

static struct {
    pthread_mutex_t lock;
    tt__timers *shown; /* NULL: not handed over */
    int socket;        /* to the launcher, as long as this process lives */
    int uses;          /* so far; part of a timer's number, so that each timer is ended only once */
    int numbers[TT__TIMERS];
    bool alone; /* no launcher watches */
} timers = {.lock = PTHREAD_MUTEX_INITIALIZER, .socket = -1};

/* A forked child may set timers of its own. It keeps counting `uses`, so that its parent's numbers name no timer of its
 * own. */
static void forget_timers(void) {
    pthread_mutex_init(&timers.lock, NULL);
    if (timers.shown)
        munmap(timers.shown, sizeof *timers.shown);
    if (timers.socket >= 0)
        close(timers.socket);
    timers.shown = NULL;
    timers.socket = -1;
    memset(timers.numbers, 0, sizeof timers.numbers);
}

static void timers_watch_forks(void) { pthread_atfork(NULL, NULL, forget_timers); }

/* Map new memory for timers; *memory is its descriptor. */
static tt_status make_timers(tt__timers **out, int *memory) {
    *memory = tt__sealed_memory("tutti-timers", sizeof **out);
    void *mapped = MAP_FAILED;
    if (*memory >= 0)
        mapped = mmap(NULL, sizeof **out, PROT_READ | PROT_WRITE, MAP_SHARED, *memory, 0);
    if (mapped != MAP_FAILED) {
        *out = mapped;
        return TT_OK;
    }
    int errnum = errno;
    if (*memory >= 0)
        close(*memory);
    return tt__fail_errno(TT_ERR_MEMORY, errnum, "no memory for timers");
}

/* Connect to the launcher. If that fails, the timers are not watched, which is no error. */
static bool connect_to_launcher(int *socket, const char *name) {
    tt__saved_error before;
    tt__error_save(&before);
    bool connected = tt__job_socket_connect(socket, name, TIMERS_PATIENCE_MS) == TT_OK;
    if (!connected)
        tt__log(TT_LOG_INFO, "the launcher does not watch this process's timers: %s", tt_last_error());
    tt__error_restore(&before);
    return connected;
}

/* Hand the launcher memory for this process's timers. Sets timers.alone if there is no launcher. */
static tt_status show_timers(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const char *name = getenv("TT_JOB_SOCKET");
    int socket = -1, memory;
    tt__timers *made = NULL;
    tt__job_packet packet = {0};
    pthread_once(&once, timers_watch_forks);
    timers.alone = !name || !*name;
    if (timers.alone || timers.shown)
        return TT_OK;
    timers.alone = !connect_to_launcher(&socket, name);
    if (timers.alone)
        return TT_OK;
    tt_status status = make_timers(&made, &memory);
    if (!status) {
        timers.alone = !tt__job_hand_over(socket, TT__JOB_TIMERS, &packet, memory, TIMERS_PATIENCE_MS);
        close(memory);
        if (timers.alone)
            munmap(made, sizeof *made);
    }
    if (status || timers.alone) {
        close(socket);
        return status;
    }
    tt__fork_fd_drop(socket);
    timers.socket = socket;
    timers.shown = made;
    return TT_OK;
}

static int free_timer(void) {
    for (int i = 0; i < TT__TIMERS; i++)
        if (!timers.numbers[i])
            return i;
    return -1;
}

/* Set timer `i`; returns its number. */
static int set_timer(int i, const tt_expires_args *args) {
    const char *file = args->file ? args->file : "", *slash = strrchr(file, '/');
    tt__timer_text *text = &timers.shown->texts[i];
    int64_t expires_ms = tt__deadline_ms(args->after_ms);
    *text = (tt__timer_text){.after_ms = args->after_ms, .thread = (int32_t)gettid(), .line = args->line};
    snprintf(text->name, sizeof text->name, "%s", args->name ? args->name : "");
    snprintf(text->file, sizeof text->file, "%s", slash ? slash + 1 : file);
    timers.uses = timers.uses % MOST_USES + 1;
    timers.numbers[i] = timers.uses * TT__TIMERS + i;
    atomic_store_explicit(&timers.shown->expires_ms[i], expires_ms ? expires_ms : 1, memory_order_release);
    return timers.numbers[i];
}

static tt_status timer_expires(int *timer, const tt_expires_args *args) {
    if (args->after_ms <= 0)
        return tt__fail(TT_ERR_INVALID, "tt_expires: expected a time above 0 ms, got %lld", (long long)args->after_ms);
    pthread_mutex_lock(&timers.lock);
    tt_status status = show_timers();
    int i = status || timers.alone ? -1 : free_timer();
    if (i >= 0)
        *timer = set_timer(i, args);
    else if (!status && !timers.alone)
        status =
            tt__fail(TT_ERR_UNSUPPORTED,
                     "tt_expires: %d timers of this process are set already: end some (tt_expires_end), or set one for "
                     "several parts",
                     TT__TIMERS);
    pthread_mutex_unlock(&timers.lock);
    return status;
}

tt_status tt_expires_with(const tt_expires_args *args, size_t size) {
    tt_expires_args full;
    TT__ARGS_COPY(full, args, size);
    if (!full.out)
        return tt__fail(TT_ERR_INVALID, "tt_expires: expected a place for the timer's number, got NULL");
    *full.out = 0;
    return timer_expires(full.out, &full);
}

int tt_expires_scope(const tt_expires_args *args, size_t size) {
    tt_expires_args full;
    int timer = 0;
    TT__ARGS_COPY(full, args, size);
    return timer_expires(&timer, &full) ? 0 : timer;
}

void tt_expires_end(int timer) {
    int i = timer % TT__TIMERS;
    if (timer <= 0)
        return;
    pthread_mutex_lock(&timers.lock);
    if (timers.numbers[i] == timer) {
        atomic_store_explicit(&timers.shown->expires_ms[i], 0, memory_order_release);
        timers.numbers[i] = 0;
    }
    pthread_mutex_unlock(&timers.lock);
}

void tt_expires_cleanup(const int *timer) { tt_expires_end(timer ? *timer : 0); }
