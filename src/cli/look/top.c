/* tutti top: the present calls of a job's ranks, also of those that hang or are dead. */
#include "base/error.h"
#include "base/machine/clock.h"
#include "base/process/waits.h"
#include "base/text/parse.h"
#include "base/text/plain_text.h"
#include "cli/cli.h"
#include "cli/look/job_view.h"
#include "cli/look/process_stacks.h"
#include "launch/local/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

typedef struct flags {
    const char *job;
    int64_t pid;
    int64_t interval_ms;
    bool once, json, stacks;
} flags;

static const tt__flag top_flags[] = {
    TT__VALUE("pid", 'p', "PID",
              "a process that \"tutti run\" did not start, and all ranks that it shares memory with"),
    TT__VALUE("interval", 'i', "SECONDS", "from one look to the next (default 1)"),
    TT__SWITCH("once", 'o', "look once"),
    TT__SWITCH(
        "stacks", 's',
        "where in the program each thread of each rank of this host is: its stack, innermost call first; looks once"),
    TT__SWITCH("json", 'j', "one line of JSON for each look"),
    {0}};

static int top_main(int argc, char **argv);

const tt__command tt__cmd_top = {
    .name = "top",
    .what = "show what the ranks of a running job do",
    .usage = "[FLAGS] [JOB]",
    .text =
        "Show what each rank of a job calls, who waits for whom and since when, how much is moved, and who comes late. "
        "Ranks that hang, are stopped or are dead are shown, too: all is read from memory that they share, without "
        "asking them.\n"
        "\n"
        "JOB is the pid of the job's \"tutti run\", or its run id (--rdzv-id). Without it, the only job there is.",
    .flags = top_flags,
    .notes =
        "On a terminal the screen is refreshed until you press q. calls/s and B/s are those of the last second, as far "
        "as the last 1024 calls reach; B counts what a rank has in its own buffer; comm is the share of the time spent "
        "in calls. epoch, step, loss and samples/s are what the program says of its training (tt_publish_progress()). "
        "gradients: how long forward, backward and averaging take in a step, and how much of the averaging runs beside "
        "backward. Ranks that are workers (tt_rpc_init()) have a line each: the calls that they make and serve, "
        "threads "
        "that run functions, bytes that wait, and references to values of theirs (owned) and of others (held).",
    .run = top_main,
};

static tt_status take_top_flag(flags *f, int letter) {
    double seconds;
    switch (letter) {
    case 'p':
        return tt__parse_i64("--pid", optarg, 1, INT32_MAX, &f->pid);
    case 'i':
        TT__TRY(tt__parse_f64("--interval", optarg, &seconds));
        if (!(seconds >= 0.05 && seconds <= 3600))
            return tt__fail(TT_ERR_INVALID, "--interval: expected seconds from 0.05 to 3600, got \"%s\"", optarg);
        f->interval_ms = (int64_t)(seconds * 1000);
        return TT_OK;
    case 'o':
        f->once = true;
        return TT_OK;
    case 's':
        f->stacks = true;
        return TT_OK;
    default:
        f->json = true;
        return TT_OK;
    }
}

/* ---- the screen */

static struct termios cooked;
static volatile sig_atomic_t resized, ended;

static void on_signal(int sig) {
    if (sig == SIGWINCH)
        resized = 1;
    else
        ended = 1;
}

/* Set up the terminal: keys come one by one without echo; the alternate screen, without cursor. */
static void screen_begin(void) {
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGWINCH, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    tcgetattr(STDIN_FILENO, &cooked);
    struct termios raw = cooked;
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    printf("\033[?1049h\033[?25l\033[?7l");
}

static void screen_end(void) {
    printf("\033[?7h\033[?25h\033[?1049l");
    fflush(stdout);
    tcsetattr(STDIN_FILENO, TCSANOW, &cooked);
}

static int screen_rows(void) {
    struct winsize window = {.ws_row = 24};
    ioctl(STDOUT_FILENO, TIOCGWINSZ, &window);
    return window.ws_row > 1 ? window.ws_row : 2;
}

/* Show the lines of `text`, which is made for the window, unless that became smaller meanwhile. */
static void screen_show(const char *text) {
    int lines = 0, rows = screen_rows();
    for (const char *c = text; *c; c++)
        lines += *c == '\n';
    int shown = lines < rows ? lines : rows - 2;
    printf("\033[H");
    for (int i = 0; i < shown; i++) {
        int n = (int)strcspn(text, "\n");
        printf("%.*s\033[K\n", n, text);
        text += n + 1;
    }
    if (shown < lines)
        printf("... %d more lines\033[K", lines - shown);
    printf("\033[J");
    fflush(stdout);
}

/* Wait for the next look; false: the user wants to end. */
static bool screen_wait(int64_t ms) {
    int64_t deadline = tt__deadline_ms(ms);
    while (!ended && !resized && tt__left_ms(deadline) > 0) {
        struct pollfd keys = {.fd = STDIN_FILENO, .events = POLLIN};
        char key;
        if (poll(&keys, 1, tt__left_ms(deadline)) <= 0)
            continue;
        if (read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q')
            return false;
        if (key == ' ')
            break;
    }
    resized = 0;
    return !ended;
}

/* ---- stacks */

/* Each rank's stacks are read by a child: see process_stacks.h. */
enum { STACK_PATIENCE_MS = 10000, MAX_FRAMES = 256, MAX_TEXT = 1 << 20 };

/* In the child: write the stacks of `pid` to `to`. */
static void stacks_child(const tt__dwfl *lib, pid_t pid, int to) {
    FILE *out = fdopen(to, "w");
    bool seen = out && tt__process_stacks(lib, pid, &(tt__stacks_wanted){.frames = MAX_FRAMES}, out);
    _exit(out && fclose(out) == 0 && seen ? 0 : 1);
}

/* Read what the child writes until it ends its output. False: it took too long. */
static bool read_stacks(int from, char *text) {
    int64_t deadline = tt__deadline_ms(STACK_PATIENCE_MS);
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

static tt_status write_rank_stacks(const tt__dwfl *lib, pid_t pid, char *text, int *seen) {
    int ends[2], status = 0;
    fflush(stdout);
    if (pipe2(ends, O_CLOEXEC))
        return tt__fail_errno(TT_ERR_SYSTEM, errno, "no pipe for a stack");
    pid_t child = fork();
    if (!child) {
        close(ends[0]);
        stacks_child(lib, pid, ends[1]);
    }
    int errnum = errno;
    close(ends[1]);
    bool in_time = child > 0 && read_stacks(ends[0], text);
    close(ends[0]);
    if (child < 0)
        return tt__fail_errno(TT_ERR_SYSTEM, errnum, "no process to look at a stack");
    if (!in_time)
        kill(child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    fputs(tt__make_plain(text), stdout); /* names come out of another process's files */
    if (!in_time)
        printf("  the rest is missing: it took longer than %d.0 s to read\n", STACK_PATIENCE_MS / 1000);
    else if (WIFSIGNALED(status))
        printf("  looking at it failed: %s\n", strsignal(WTERMSIG(status)));
    *seen += in_time && WIFEXITED(status) && !WEXITSTATUS(status);
    return TT_OK;
}

/* Write the stack of each thread of each rank of this host, innermost call first. Processes are stopped meanwhile, and
 * go on even if this one ends (those that were stopped stay so). Ranks that can't be seen get the reason in their
 * place. Waits at most 10 s for a rank. *seen := how many were seen. Errors: TT_ERR_UNSUPPORTED there is no libdw;
 * TT_ERR_SYSTEM no process or pipe. */
static tt_status write_stacks(const tt__view *view, int *seen) {
    const tt__job_info *job = &view->snapshot.info;
    const tt__dwfl *lib = tt__dwfl_get();
    char *text = lib ? malloc(MAX_TEXT + 1) : NULL, state[64], doing[1024];
    tt_status status = !lib ? tt_last_status() : !text ? tt__fail(TT_ERR_MEMORY, "no memory for stacks") : TT_OK;
    *seen = 0;
    for (int i = 0; !status && i < view->n; i++) {
        const tt__view_rank *r = &view->ranks[i];
        printf("%srank %d, pid %lld, %s, %s\n", i ? "\n" : "", r->rank.rank, (long long)r->rank.pid,
               tt__view_state_text(r, state, sizeof state), tt__top_doing_text(r, doing, sizeof doing));
        if (r->rank.node != job->node)
            printf("  on host %s: run `tutti top --stacks` there\n", r->rank.hostname);
        else if (r->state == TT__VIEW_RUNS || r->state == TT__VIEW_STOPPED)
            status = write_rank_stacks(lib, (pid_t)r->rank.pid, text, seen);
    }
    free(text);
    return status;
}

static tt_status show_stacks(const tt__view_source *source) {
    tt__view view;
    int seen;
    TT__TRY(tt__view_take(&view, source));
    tt_status status = write_stacks(&view, &seen);
    if (!status && !seen)
        status = tt__fail(TT_ERR_NOT_FOUND, "no rank's stack could be seen");
    tt__view_free(&view);
    return status;
}

/* ---- looks */

/* Take one look as text, for a screen of so many rows (0: none); the caller frees it. */
static tt_status top_look(const flags *f, const tt__view_source *source, int rows, char **text) {
    tt__view view;
    size_t size;
    const tt__top_page page = {tt__terminal_columns(STDOUT_FILENO), rows, tt__terminal_colours(STDOUT_FILENO)};
    *text = NULL;
    TT__TRY(tt__view_take(&view, source));
    FILE *out = open_memstream(text, &size);
    tt_status status = !out      ? tt__fail(TT_ERR_MEMORY, "no memory for what %d ranks do", view.n)
                       : f->json ? tt__top_json(&view, out)
                                 : tt__top_text(&view, &page, out);
    if (out)
        fclose(out);
    tt__view_free(&view);
    return status;
}

static bool next_look(const flags *f, bool screen) {
    if (screen)
        return screen_wait(f->interval_ms);
    tt__sleep_ms((int)f->interval_ms);
    return true;
}

/* Show the job until it ends or the user quits. */
static tt_status top_watch(const flags *f, const tt__view_source *source) {
    bool screen = !f->once && !f->json && isatty(STDOUT_FILENO) && isatty(STDIN_FILENO);
    tt_status status;
    char *text;
    int looks = 0;
    if (screen)
        screen_begin();
    while (!(status = top_look(f, source, screen ? screen_rows() : 0, &text))) {
        if (screen)
            screen_show(text);
        else
            printf("%s%s", looks && !f->json ? "\n" : "", text);
        free(text);
        looks++;
        if (f->once || fflush(stdout) || !next_look(f, screen))
            break;
    }
    if (status)
        free(text);
    if (screen)
        screen_end();
    if (!status || !looks || (status != TT_ERR_NOT_FOUND && status != TT_ERR_NET))
        return status;
    if (!f->json)
        printf("the job ended\n");
    return TT_OK;
}

static int top_main(int argc, char **argv) {
    flags f = {.interval_ms = 1000};
    tt__view_source source;
    int letter;
    f.job = tt__cli_take_word(&tt__cmd_top, &argc, argv);
    while ((letter = tt__cli_next_flag(&tt__cmd_top, argc, argv, NULL)) != -1) {
        if (letter == 'h' || letter == '?')
            return letter == 'h' ? TT__EXIT_OK : TT__EXIT_USAGE;
        if (take_top_flag(&f, letter))
            return tt__cli_usage_error("top", "%s", tt_last_error());
    }
    if (f.job && f.pid)
        return tt__cli_usage_error("top", "a job and --pid were given: expected one of them");
    if (f.stacks && f.json)
        return tt__cli_usage_error("top", "--stacks and --json were given: stacks are text");
    tt_status status = tt__view_find(&source, f.job, (pid_t)f.pid);
    if (!status)
        status = f.stacks ? show_stacks(&source) : top_watch(&f, &source);
    if (status)
        tt__cli_error("top", "%s", tt_last_error());
    return status ? TT__EXIT_FAILED : TT__EXIT_OK;
}
