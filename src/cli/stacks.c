/* Stacks are read by a child, one for each rank: what a debugger would do, reading tables that the other process's
 * files contain, may take long or go wrong, and a process whose tracer ends goes on. */
#include "cli/stacks.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/plain_text.h"
#include "cli/dwfl_load.h"
#include "cli/top.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_FRAMES = 256, MAX_TEXT = 1 << 20 };

/* ---- in the child ---- */

typedef struct stack_writer {
    const tt__dwfl *lib;
    Dwfl *dwfl;
    pid_t pid;
    int frames; /* of this thread, so far */
    FILE *out;
} stack_writer;

static const char *last_name(const char *path) {
    const char *slash = path ? strrchr(path, '/') : NULL;
    return slash ? slash + 1 : path;
}

/* The last two parts of a source file's path say enough. */
static const char *short_source(const char *path) {
    const char *slash = strrchr(path, '/');
    while (slash && slash > path && slash[-1] != '/')
        slash--;
    return slash ? slash : path;
}

/* A return address lies behind its call: the line is that of the byte before. */
static int write_frame(Dwfl_Frame *frame, void *user) {
    stack_writer *w = user;
    Dwarf_Addr pc;
    bool is_exact;
    if (!w->lib->dwfl_frame_pc(frame, &pc, &is_exact) || w->frames == MAX_FRAMES)
        return DWARF_CB_ABORT;
    Dwarf_Addr at = is_exact ? pc : pc - 1;
    Dwfl_Module *module = w->lib->dwfl_addrmodule(w->dwfl, at);
    GElf_Off offset = 0;
    GElf_Sym symbol;
    const char *name = module ? w->lib->dwfl_module_addrinfo(module, at, &offset, &symbol, NULL, NULL, NULL) : NULL;
    const char *file = module ? w->lib->dwfl_module_info(module, NULL, NULL, NULL, NULL, NULL, NULL, NULL) : NULL;
    fprintf(w->out, "    #%-2d ", w->frames++);
    if (name)
        fprintf(w->out, "%s", name);
    else
        fprintf(w->out, "0x%" PRIx64, (uint64_t)pc);
    int line = 0;
    Dwfl_Line *source = module ? w->lib->dwfl_module_getsrc(module, at) : NULL;
    const char *path = source ? w->lib->dwfl_lineinfo(source, NULL, &line, NULL, NULL, NULL) : NULL;
    if (path)
        fprintf(w->out, " at %s:%d", short_source(path), line);
    if (file)
        fprintf(w->out, " (%s)", last_name(file));
    fputc('\n', w->out);
    return DWARF_CB_OK;
}

static int write_thread(Dwfl_Thread *thread, void *user) {
    stack_writer *w = user;
    char path[64], name[32] = "?";
    pid_t tid = w->lib->dwfl_thread_tid(thread);
    snprintf(path, sizeof path, "/proc/%d/task/%d/comm", (int)w->pid, (int)tid);
    FILE *comm = fopen(path, "re");
    if (comm && fgets(name, sizeof name, comm))
        name[strcspn(name, "\n")] = 0;
    if (comm)
        fclose(comm);
    fprintf(w->out, "  thread %d, %s:\n", (int)tid, name);
    w->frames = 0;
    if (w->lib->dwfl_thread_getframes(thread, write_frame, w) < 0 && w->frames < MAX_FRAMES)
        fprintf(w->out, "    %s: %s\n", w->frames ? "the rest can't be seen" : "can't be seen",
                w->lib->dwfl_errmsg(-1));
    return DWARF_CB_OK;
}

/* Describe process `pid` on `out`. False: nothing could be seen of it, and why stands there. */
static bool write_process(const tt__dwfl *lib, pid_t pid, FILE *out) {
    static char *paths = NULL;
    const Dwfl_Callbacks callbacks = {.find_elf = lib->dwfl_linux_proc_find_elf,
                                      .find_debuginfo = lib->dwfl_standard_find_debuginfo,
                                      .debuginfo_path = &paths};
    stack_writer w = {.lib = lib, .dwfl = lib->dwfl_begin(&callbacks), .pid = pid, .out = out};
    int failed = w.dwfl ? lib->dwfl_linux_proc_report(w.dwfl, pid) : -1;
    if (!failed)
        failed = lib->dwfl_report_end(w.dwfl, NULL, NULL);
    if (!failed)
        failed = lib->dwfl_linux_proc_attach(w.dwfl, pid, false);
    if (!failed && lib->dwfl_getthreads(w.dwfl, write_thread, &w) < 0)
        failed = -1;
    if (failed == EPERM)
        fprintf(out,
                "  its stack can't be seen: another user's, or kernel.yama.ptrace_scope allows it to root alone\n");
    else if (failed)
        fprintf(out, "  its stack can't be seen: %s\n", failed > 0 ? strerror(failed) : lib->dwfl_errmsg(-1));
    lib->dwfl_end(w.dwfl);
    return !failed;
}

/* Become the child that describes `pid`. A file that debuginfod would fetch is none that a hanging job waits for. */
static void stacks_child(const tt__dwfl *lib, pid_t pid, int to) {
    FILE *out = fdopen(to, "w");
    unsetenv("DEBUGINFOD_URLS");
    bool seen = out && write_process(lib, pid, out);
    _exit(out && fclose(out) == 0 && seen ? 0 : 1);
}

/* ---- in the command ---- */

/* Read what the child writes until it ends its output; false: it takes too long. */
static bool read_stacks(int from, char *text, int64_t patience_ms) {
    int64_t deadline = tt__deadline_ms(patience_ms);
    size_t size = 0;
    for (ssize_t n = 1; n && size < MAX_TEXT;) {
        struct pollfd ready = {.fd = from, .events = POLLIN};
        int left = tt__left_ms(deadline);
        if (left <= 0)
            break;
        if (poll(&ready, 1, left) <= 0)
            continue;
        n = read(from, text + size, MAX_TEXT - size);
        if (n <= 0 && errno != EINTR) {
            text[size] = 0;
            return true;
        }
        size += n > 0 ? (size_t)n : 0;
    }
    text[size] = 0;
    return size == MAX_TEXT;
}

static tt_status write_rank_stacks(const tt__dwfl *lib, pid_t pid, int64_t patience_ms, char *text, FILE *out,
                                   int *seen) {
    int ends[2], status = 0;
    fflush(out);
    if (pipe2(ends, O_CLOEXEC))
        return tt__fail_errno(TT_ERR_SYSTEM, errno, "no pipe for a stack");
    pid_t child = fork();
    if (!child) {
        close(ends[0]);
        stacks_child(lib, pid, ends[1]);
    }
    int errnum = errno;
    close(ends[1]);
    bool in_time = child > 0 && read_stacks(ends[0], text, patience_ms);
    close(ends[0]);
    if (child < 0)
        return tt__fail_errno(TT_ERR_SYSTEM, errnum, "no process to look at a stack");
    if (!in_time)
        kill(child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    fputs(tt__make_plain(text), out); /* names come out of another process's files */
    if (!in_time)
        fprintf(out, "  it took longer than %.1f s to see more\n", (double)patience_ms / 1000);
    else if (WIFSIGNALED(status))
        fprintf(out, "  looking at it failed: %s\n", strsignal(WTERMSIG(status)));
    *seen += in_time && WIFEXITED(status) && !WEXITSTATUS(status);
    return TT_OK;
}

tt_status tt__stacks_write(const tt__view *view, int64_t patience_ms, FILE *out, int *seen) {
    const tt__job_info *job = &view->snapshot.info;
    const tt__dwfl *lib = tt__dwfl_get();
    char *text = lib ? malloc(MAX_TEXT + 1) : NULL, state[64], doing[1024];
    tt_status status = !lib ? tt_last_status() : !text ? tt__fail(TT_ERR_MEMORY, "no memory for stacks") : TT_OK;
    *seen = 0;
    for (int i = 0; !status && i < view->n; i++) {
        const tt__view_rank *r = &view->ranks[i];
        fprintf(out, "%srank %d, pid %lld, %s, %s\n", i ? "\n" : "", r->rank.rank, (long long)r->rank.pid,
                tt__view_state_text(r, state, sizeof state), tt__top_doing_text(r, doing, sizeof doing));
        if (r->rank.node != job->node)
            fprintf(out, "  on host %s: run `tutti top --stacks` there\n", r->rank.hostname);
        else if (r->state == TT__VIEW_RUNS || r->state == TT__VIEW_STOPPED)
            status = write_rank_stacks(lib, (pid_t)r->rank.pid, patience_ms, text, out, seen);
    }
    free(text);
    return status;
}
