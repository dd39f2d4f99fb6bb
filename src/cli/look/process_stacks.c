#include "cli/look/process_stacks.h"

#include "base/error.h"
#include "base/process/proc_state.h"

#include <dlfcn.h>
#include <elfutils/libdwfl.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- libdw */

/* The functions that are used. Types and constants come from its header. */
#define TT__DWFL_FUNCTIONS(X)       \
    X(dwfl_addrmodule)              \
    X(dwfl_begin)                   \
    X(dwfl_end)                     \
    X(dwfl_errmsg)                  \
    X(dwfl_frame_pc)                \
    X(dwfl_getthread_frames)        \
    X(dwfl_getthreads)              \
    X(dwfl_lineinfo)                \
    X(dwfl_linux_proc_attach)       \
    X(dwfl_linux_proc_find_elf)     \
    X(dwfl_linux_proc_report)       \
    X(dwfl_module_addrinfo)         \
    X(dwfl_module_getsrc)           \
    X(dwfl_module_info)             \
    X(dwfl_report_end)              \
    X(dwfl_standard_find_debuginfo) \
    X(dwfl_thread_getframes)        \
    X(dwfl_thread_tid)

#define TT__LIBDW "libdw.so.1" /* its only ABI so far */

struct tt__dwfl {
#define TT__DWFL_FIELD(name) __typeof__(name) *name;
    TT__DWFL_FUNCTIONS(TT__DWFL_FIELD)
#undef TT__DWFL_FIELD
};

const tt__dwfl *tt__dwfl_get(void) {
    static tt__dwfl functions;
    static bool loaded;
    void *library = loaded ? NULL : dlopen(TT__LIBDW, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
#define FIND(name) (*(void **)&functions.name = dlsym(library, #name)) &&
    loaded = loaded || (library && TT__DWFL_FUNCTIONS(FIND) true);
#undef FIND
    const char *why = loaded ? NULL : dlerror();
    if (loaded)
        return &functions;
    return tt__fail_null(TT_ERR_UNSUPPORTED,
                         "stacks need libdw, which can't be loaded: %s. Debian's package is libdw1; Tutti was built "
                         "for " TT__LIBDW,
                         why ? why : "no reason given");
}

/* ---- one thread */

/* A signal's handler has few frames above that of the signal. */
enum { HANDLER_FRAMES = 16, MOST_FRAMES = 512, FRAME_TEXT = 512 };

/* A thread's frames, as many as are wanted. They are read once: the thread goes on between two looks. */
typedef struct frame_list {
    const tt__dwfl *lib;
    int n, limit;
    Dwarf_Addr pc[MOST_FRAMES];
    bool is_exact[MOST_FRAMES];
} frame_list;

typedef struct stack_writer {
    const tt__dwfl *lib;
    Dwfl *dwfl;
    pid_t pid;
    const tt__stacks_wanted *wanted;
    int others; /* threads so far, without wanted->first */
    bool first_seen;
    frame_list frames;
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

/* Write what is at `pc`. A return address lies behind its call: the line is that of the byte before. */
static void describe_frame(const stack_writer *w, Dwarf_Addr pc, bool is_exact, char text[FRAME_TEXT]) {
    Dwarf_Addr at = is_exact ? pc : pc - 1;
    Dwfl_Module *module = w->lib->dwfl_addrmodule(w->dwfl, at);
    GElf_Off offset = 0;
    GElf_Sym symbol;
    const char *name = module ? w->lib->dwfl_module_addrinfo(module, at, &offset, &symbol, NULL, NULL, NULL) : NULL;
    const char *file = module ? w->lib->dwfl_module_info(module, NULL, NULL, NULL, NULL, NULL, NULL, NULL) : NULL;
    char address[24], place[160] = "", object[96] = "";
    snprintf(address, sizeof address, "0x%" PRIx64, (uint64_t)pc);
    int line = 0;
    Dwfl_Line *source = module ? w->lib->dwfl_module_getsrc(module, at) : NULL;
    const char *path = source ? w->lib->dwfl_lineinfo(source, NULL, &line, NULL, NULL, NULL) : NULL;
    if (path)
        snprintf(place, sizeof place, " at %s:%d", short_source(path), line);
    if (file)
        snprintf(object, sizeof object, " (%s)", last_name(file));
    snprintf(text, FRAME_TEXT, "%.240s%s%s", name ? name : address, place, object);
}

static int keep_frame(Dwfl_Frame *frame, void *user) {
    frame_list *list = user;
    if (list->n == list->limit || !list->lib->dwfl_frame_pc(frame, &list->pc[list->n], &list->is_exact[list->n]))
        return DWARF_CB_ABORT;
    list->n++;
    return DWARF_CB_OK;
}

static int min_int(int a, int b) { return a < b ? a : b; }

/* Write the frames from number `begin` on, at most `limit` of them. */
static void write_frames(const stack_writer *w, int begin, int limit) {
    char said[FRAME_TEXT] = "", text[FRAME_TEXT];
    int end = min_int(w->frames.n, begin + limit), again = 0;
    for (int i = begin; i < end; i++) {
        describe_frame(w, w->frames.pc[i], w->frames.is_exact[i], text);
        bool same = w->wanted->first && i > begin && !strcmp(text, said);
        again += same;
        if (again && (!same || i + 1 == end)) {
            fprintf(w->out, "    ... %d more of the same\n", again);
            again = 0;
        }
        if (!same)
            fprintf(w->out, "    #%-2d %s\n", i - begin, text);
        memcpy(said, text, sizeof text);
    }
}

static void write_heading(const stack_writer *w, pid_t tid) {
    char path[64], name[32] = "?";
    snprintf(path, sizeof path, "/proc/%d/task/%d/comm", (int)w->pid, (int)tid);
    FILE *comm = fopen(path, "re");
    if (comm && fgets(name, sizeof name, comm))
        name[strcspn(name, "\n")] = 0;
    if (comm)
        fclose(comm);
    fprintf(w->out, "  thread %d, %s:\n", (int)tid, name);
}

/* Return the number of the frame from which on the stack is wanted. */
static int first_frame(const stack_writer *w, uint64_t pc) {
    for (int i = 0; pc && i < min_int(w->frames.n, HANDLER_FRAMES); i++)
        if (w->frames.pc[i] == pc)
            return i;
    return 0;
}

/* Get ready for a thread's frames, of which `limit` are to be written. */
static frame_list *begin_frames(stack_writer *w, int limit) {
    w->frames.lib = w->lib;
    w->frames.n = 0;
    w->frames.limit = min_int(limit + HANDLER_FRAMES, MOST_FRAMES);
    return &w->frames;
}

/* Write the frames that were kept of a thread. `failed`: libdw's result for them. */
static void write_stack(const stack_writer *w, pid_t tid, int failed, uint64_t pc, int limit) {
    int begin = first_frame(w, pc);
    write_heading(w, tid);
    write_frames(w, begin, limit);
    if (w->frames.n - begin > limit)
        fprintf(w->out, "    ...\n");
    else if (failed < 0 && tid == w->pid && tt__proc_main_ended(tid))
        fprintf(w->out, "    has ended\n");
    else if (failed < 0)
        fprintf(w->out, "    %s: %s\n", w->frames.n ? "the rest can't be seen" : "can't be seen",
                w->lib->dwfl_errmsg(-1));
}

static int write_thread(Dwfl_Thread *thread, void *user) {
    stack_writer *w = user;
    pid_t tid = w->lib->dwfl_thread_tid(thread);
    int limit = w->first_seen ? w->wanted->o_frames : w->wanted->frames;
    if (w->first_seen && (tid == w->wanted->first || w->others++ >= w->wanted->others))
        return DWARF_CB_OK;
    int failed = w->lib->dwfl_thread_getframes(thread, keep_frame, begin_frames(w, limit));
    write_stack(w, tid, failed, 0, limit);
    return DWARF_CB_OK;
}

static void write_first(stack_writer *w) {
    pid_t tid = w->wanted->first;
    int limit = w->wanted->frames;
    int failed = w->lib->dwfl_getthread_frames(w->dwfl, tid, keep_frame, begin_frames(w, limit));
    write_stack(w, tid, failed, w->wanted->pc, limit);
    fflush(w->out);
    w->first_seen = true;
}

/* ---- all threads */

static void tell_failure(const stack_writer *w, int failed) {
    if (failed == EPERM)
        fprintf(w->out,
                "  its stack can't be seen: another user's, or kernel.yama.ptrace_scope allows it to root alone\n");
    else
        fprintf(w->out, "  its stack can't be seen: %s\n", failed > 0 ? strerror(failed) : w->lib->dwfl_errmsg(-1));
}

static bool is_thread_of(pid_t pid, pid_t tid) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task/%d", (int)pid, (int)tid);
    return tid > 0 && !access(path, F_OK);
}

bool tt__process_stacks(const tt__dwfl *lib, pid_t pid, const tt__stacks_wanted *wanted, FILE *out) {
    static char *paths = NULL;
    const Dwfl_Callbacks callbacks = {.find_elf = lib->dwfl_linux_proc_find_elf,
                                      .find_debuginfo = lib->dwfl_standard_find_debuginfo,
                                      .debuginfo_path = &paths};
    unsetenv("DEBUGINFOD_URLS");
    stack_writer w = {.lib = lib, .dwfl = lib->dwfl_begin(&callbacks), .pid = pid, .wanted = wanted, .out = out};
    pid_t living = tt__proc_living_thread(pid); /* the kernel shows no memory of a main thread that has ended */
    int failed = w.dwfl ? lib->dwfl_linux_proc_report(w.dwfl, living ? living : pid) : -1;
    if (!failed)
        failed = lib->dwfl_report_end(w.dwfl, NULL, NULL);
    if (!failed)
        failed = lib->dwfl_linux_proc_attach(w.dwfl, pid, false);
    if (!failed && is_thread_of(pid, wanted->first))
        write_first(&w);
    if (!failed && lib->dwfl_getthreads(w.dwfl, write_thread, &w) < 0)
        failed = -1;
    if (failed && !w.first_seen)
        tell_failure(&w, failed);
    else if (w.first_seen && w.others > wanted->others)
        fprintf(out, "  %d more threads\n", w.others - wanted->others);
    lib->dwfl_end(w.dwfl);
    return !failed;
}
