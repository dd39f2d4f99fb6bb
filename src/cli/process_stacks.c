#include "cli/process_stacks.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A handler of a signal has few frames above that of the signal. */
enum { HANDLER_FRAMES = 16, FRAME_TEXT = 512 };

typedef struct stack_writer {
    const tt__dwfl *lib;
    Dwfl *dwfl;
    pid_t pid;
    const tt__stacks_wanted *wanted;
    int skip, limit, frames; /* of this thread: not written; to write; seen so far */
    int others;              /* threads so far, but wanted->first */
    bool first_seen;
    char said[FRAME_TEXT]; /* the last frame, */
    int again;             /* and how often it was there once more */
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

static void tell_repetition(stack_writer *w) {
    if (w->again)
        fprintf(w->out, "    ... %d more of the same\n", w->again);
    w->again = 0;
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

static int write_frame(Dwfl_Frame *frame, void *user) {
    stack_writer *w = user;
    Dwarf_Addr pc;
    bool is_exact;
    char text[FRAME_TEXT];
    int number = w->frames - w->skip;
    if (!w->lib->dwfl_frame_pc(frame, &pc, &is_exact) || number == w->limit)
        return DWARF_CB_ABORT;
    w->frames++;
    if (number < 0)
        return DWARF_CB_OK;
    describe_frame(w, pc, is_exact, text);
    if (w->wanted->first && number && !strcmp(text, w->said)) {
        w->again++;
        return DWARF_CB_OK;
    }
    tell_repetition(w);
    fprintf(w->out, "    #%-2d %s\n", number, text);
    memcpy(w->said, text, sizeof text);
    return DWARF_CB_OK;
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

/* `failed`: libdw's result for the frames. */
static void end_thread(stack_writer *w, int failed) {
    tell_repetition(w);
    if (failed < 0 && w->frames - w->skip < w->limit)
        fprintf(w->out, "    %s: %s\n", w->frames > w->skip ? "the rest can't be seen" : "can't be seen",
                w->lib->dwfl_errmsg(-1));
    else if (w->wanted->first && w->frames - w->skip == w->limit)
        fprintf(w->out, "    ...\n");
}

static int write_thread(Dwfl_Thread *thread, void *user) {
    stack_writer *w = user;
    pid_t tid = w->lib->dwfl_thread_tid(thread);
    if (w->first_seen && tid == w->wanted->first)
        return DWARF_CB_OK;
    if (w->first_seen && w->others++ >= w->wanted->others)
        return DWARF_CB_OK;
    write_heading(w, tid);
    w->skip = w->frames = 0;
    w->limit = w->first_seen ? w->wanted->o_frames : w->wanted->frames;
    end_thread(w, w->lib->dwfl_thread_getframes(thread, write_frame, w));
    return DWARF_CB_OK;
}

/* ---- the thread that comes first */

/* Where wanted->pc was found. */
typedef struct pc_search {
    const stack_writer *writer;
    int frames;
    bool found;
} pc_search;

static int compare_pc(Dwfl_Frame *frame, void *user) {
    pc_search *search = user;
    Dwarf_Addr pc;
    bool is_exact;
    if (!search->writer->lib->dwfl_frame_pc(frame, &pc, &is_exact) || search->frames == HANDLER_FRAMES)
        return DWARF_CB_ABORT;
    search->found = pc == search->writer->wanted->pc;
    search->frames += !search->found;
    return search->found ? DWARF_CB_ABORT : DWARF_CB_OK;
}

static void write_first(stack_writer *w) {
    pid_t tid = w->wanted->first;
    pc_search search = {.writer = w};
    if (w->wanted->pc)
        w->lib->dwfl_getthread_frames(w->dwfl, tid, compare_pc, &search);
    w->skip = search.found ? search.frames : 0;
    w->limit = w->wanted->frames;
    write_heading(w, tid);
    end_thread(w, w->lib->dwfl_getthread_frames(w->dwfl, tid, write_frame, w));
    fflush(w->out);
    w->first_seen = true;
}

/* ---- all */

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
    int failed = w.dwfl ? lib->dwfl_linux_proc_report(w.dwfl, pid) : -1;
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
