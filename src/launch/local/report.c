#include "launch/local/report.h"

#include "base/files/fd.h"
#include "base/text/json.h"
#include "base/text/parse.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Return the signal that tutti sent the worker before it ended, if that may be why; 0: none. */
static int cause_signal(const tt__worker *w) { return w->exec_errno ? 0 : w->sent_signal; }

/* Write ", pid 7" or, of a worker that no process was made for, nothing. Returns `text`. */
static const char *pid_text(const tt__worker *w, char text[24]) {
    text[0] = '\0';
    if (w->pid)
        snprintf(text, 24, ", pid %d", (int)w->pid);
    return text;
}

/* "killed by SIGKILL (signal 9)", "exit code 3", "could not be started: ..." */
static const char *describe_end(const tt__worker *w, char *text, size_t size) {
    char name[32];
    if (w->exec_errno)
        snprintf(text, size, "could not be started: %.*s%s%s", w->message ? (int)strcspn(w->message, "\n") : 0,
                 w->message ? w->message : "", w->message ? ": " : "", strerror(w->exec_errno));
    else if (WIFSIGNALED(w->status))
        snprintf(text, size, "killed by %s (signal %d)%s", tt__signal_name(WTERMSIG(w->status), name, sizeof name),
                 WTERMSIG(w->status), WCOREDUMP(w->status) ? ", core dumped" : "");
    else
        tt__end_text(w->status, text, size);
    return text;
}

/* Print every line of `text` after `indent`, as a terminal shows it in the end: of a progress bar, which returns to the
 * beginning of its line, the last state. */
static void say_lines(tt__streams *streams, const char *indent, const char *text) {
    while (*text) {
        size_t n = strcspn(text, "\n"), end = n, begin;
        while (end && text[end - 1] == '\r')
            end--;
        for (begin = end; begin && text[begin - 1] != '\r';)
            begin--;
        tt__streams_print(streams, "%s%.*s", indent, (int)(end - begin), text + begin);
        text += n + (text[n] == '\n');
    }
}

/* Is `tail` one line that ends with `message`? tt_report() writes the same to stderr and to the error file. */
static bool says_the_same(const char *tail, const char *message) {
    size_t n = strlen(tail), m = strlen(message);
    while (n > 0 && tail[n - 1] == '\n')
        n--;
    return !memchr(tail, '\n', n) && n >= m && !memcmp(tail + n - m, message, m);
}

/* Does `tail` show that Python ended with the traceback? Its last line is enough: the tail has more frames around. */
static bool shows_traceback(const char *tail, const char *traceback) {
    size_t n = strlen(traceback), begin;
    while (n && traceback[n - 1] == '\n')
        n--;
    for (begin = n; begin && traceback[begin - 1] != '\n';)
        begin--;
    return strstr(tail, "Traceback (most recent call last):") &&
           memmem(tail, strlen(tail), traceback + begin, n - begin);
}

static void print_place(const tt__first *first, char *text, size_t size) {
    if (first->hostname)
        snprintf(text, size, "node %d (%s), ", first->node, first->hostname);
    else
        text[0] = '\0';
}

/* Print what the worker has left to say why it failed. */
static void say_reasons(tt__streams *streams, const tt__job *job, const tt__first *first) {
    const tt__worker *w = first->worker;
    if (WIFSIGNALED(w->status) && WTERMSIG(w->status) == SIGKILL && !w->sent_signal && !w->message)
        tt__streams_print(streams, "  not sent by tutti; when memory runs out the kernel sends it (see dmesg)");
    if (w->exec_errno && !w->message)
        tt__streams_print(streams, "  program: %s%s", job->file,
                          w->exec_errno == ENOENT
                              ? " (if it is there, the interpreter in its first line or its loader is missing)"
                              : "");
    if (w->message && !w->exec_errno) {
        tt__streams_print(streams, "  its message:");
        say_lines(streams, "    ", w->message);
    }
    if (w->traceback && !shows_traceback(first->tail, w->traceback)) {
        tt__streams_print(streams, "  its traceback:");
        say_lines(streams, "    ", w->traceback);
    }
    if (w->account)
        say_lines(streams, "  ", w->account);
    if (*first->tail && !(w->message && says_the_same(first->tail, w->message))) {
        tt__streams_print(streams, "  last lines of its stderr:");
        say_lines(streams, "    | ", first->tail);
    }
}

const char *tt__attempt_text(const tt__first *first, char *text, size_t size) {
    const tt__worker *w = first->worker;
    char how[160], place[96];
    print_place(first, place, sizeof place);
    snprintf(text, size, "rank %d (%spid %d) %s%s%s", first->rank, place, (int)w->pid,
             w->exec_errno            ? ""
             : WIFSIGNALED(w->status) ? "was "
                                      : "ended with ",
             describe_end(w, how, sizeof how),
             w->waited      ? ", while it waited for the next round"
             : w->secondary ? ", because of another rank"
                            : "");
    return text;
}

void tt__report_attempt(tt__streams *streams, const tt__job *job, const tt__first *first, bool recovers) {
    char text[TT__ATTEMPT_TEXT];
    tt__streams_alarm(streams, "tutti run: attempt %d of %lld: %s; %s", job->restarts + 1,
                      (long long)job->max_restarts + 1, tt__attempt_text(first, text, sizeof text),
                      recovers ? "replacing what is lost, the other ranks go on" : "starting again");
    say_reasons(streams, job, first);
}

void tt__report_first(tt__streams *streams, const tt__job *job, const tt__first *first, const tt__moment *started) {
    const tt__worker *w = first->worker;
    char how[160], clock[16] = "", place[96], pid[24];
    struct tm local;
    time_t when_s = (time_t)(w->when.realtime_ns / 1000000000);
    if (localtime_r(&when_s, &local))
        strftime(clock, sizeof clock, "%H:%M:%S", &local);
    print_place(first, place, sizeof place);
    /* Another node's clock may be behind: nothing ends before it began. */
    double after_s = 1e-9 * ((double)w->when.realtime_ns - (double)started->realtime_ns);
    tt__streams_alarm(streams, "tutti run: rank %d %s: %s (%slocal rank %d%s, at %s.%03d, %.1f s after the start)",
                      first->rank,
                      w->secondary    ? "failed because of another rank"
                      : first->unsure ? "failed, perhaps because of that"
                      : first->alike  ? "failed, as others did"
                                      : "failed first",
                      describe_end(w, how, sizeof how), place, first->local_rank, pid_text(w, pid), clock,
                      (int)(w->when.realtime_ns / 1000000 % 1000), after_s > 0 ? after_s : 0);
    say_reasons(streams, job, first);
}

static const char *own_words(const tt__job *job, const tt__worker *workers, int i) {
    return tt__failure_words(&workers[i], job->first_rank + i);
}

enum { MESSAGE_SIZE = 2048 };

/* Do the first lines of both messages agree to the letter? */
static bool same_letters(const tt__job *job, const tt__worker *workers, int i, int k) {
    const char *a = own_words(job, workers, i), *b = own_words(job, workers, k);
    size_t n = strcspn(a, "\n");
    return n == strcspn(b, "\n") && !memcmp(a, b, n);
}

/* Write the first line of the worker's message in the form that workers may share: to the letter, if another worker
 * says the same (all name ranks 0 and 1), else with its own rank as "this rank". Returns `text`. */
static const char *shared_words(const tt__job *job, const tt__worker *workers, int i, char text[MESSAGE_SIZE]) {
    const char *message = own_words(job, workers, i);
    int n = (int)strcspn(message, "\n");
    for (int k = 0; k < job->workers; k++)
        if (k != i && same_letters(job, workers, i, k)) {
            snprintf(text, MESSAGE_SIZE, "%.*s", n, message);
            return text;
        }
    tt__words_of_any(text, MESSAGE_SIZE, message, (size_t)n, job->first_rank + i);
    return text;
}

static bool same_words(const tt__job *job, const tt__worker *workers, int i, int k) {
    char a[MESSAGE_SIZE], b[MESSAGE_SIZE];
    return same_letters(job, workers, i, k) ||
           !strcmp(shared_words(job, workers, i, a), shared_words(job, workers, k, b));
}

/* Can one line report both workers? */
static bool ended_alike(const tt__job *job, const tt__worker *workers, int i, int k) {
    const tt__worker *a = &workers[i], *b = &workers[k];
    return a->ended == b->ended && a->status == b->status && a->exec_errno == b->exec_errno &&
           cause_signal(a) == cause_signal(b) && a->secondary == b->secondary && same_words(job, workers, i, k);
}

/* List the ranks from `rank` on that ended like it, except `first`, as "1, 3-7" or, without room for all, as "1, 3-7
 * and 90 more". Returns how many. */
static int list_alike(const tt__job *job, const tt__worker *workers, int rank, int first, char *text, size_t size) {
    enum { LONGEST = sizeof ", 1000-1001 and 1000000 more" };
    int n = job->workers, count = 0, listed = 0;
    size_t used = 0;
    for (int r = rank, last; r < n; r = last + 1) {
        last = r;
        if (r == first || !ended_alike(job, workers, r, rank))
            continue;
        while (last + 1 < n && last + 1 != first && ended_alike(job, workers, last + 1, rank))
            last++;
        count += last - r + 1;
        if (used + LONGEST > size)
            continue;
        used += (size_t)snprintf(text + used, size - used, last > r ? "%s%d-%d" : "%s%d", listed ? ", " : "",
                                 job->first_rank + r, job->first_rank + last);
        listed = count;
    }
    if (listed < count)
        snprintf(text + used, size - used, " and %d more", count - listed);
    return count;
}

static void report_alike(tt__streams *streams, const tt__job *job, const tt__worker *workers, int rank, int first) {
    const tt__worker *w = &workers[rank];
    char how[160], name[32], why[64] = "", ranks[512];
    if (!w->ended)
        snprintf(how, sizeof how, "end unknown");
    else
        describe_end(w, how, sizeof how);
    if (cause_signal(w) && w->status)
        snprintf(why, sizeof why, ", after tutti sent %s", tt__signal_name(w->sent_signal, name, sizeof name));
    else if (w->secondary)
        snprintf(why, sizeof why, ", because of another rank");
    int count = list_alike(job, workers, rank, first, ranks, sizeof ranks);
    char words[MESSAGE_SIZE];
    const char *message = count > 1 ? shared_words(job, workers, rank, words) : own_words(job, workers, rank);
    if (*message && first >= 0 && same_words(job, workers, rank, first))
        message = "the same message";
    tt__streams_print(streams, "tutti run: rank%s %s: %s%s%s%.*s", count > 1 ? "s" : "", ranks, how, why,
                      *message ? ": " : "", (int)strcspn(message, "\n"), message);
}

static bool is_reported(const tt__job *job, const tt__worker *workers, int rank, int first) {
    for (int r = 0; r < rank; r++)
        if (r != first && ended_alike(job, workers, r, rank))
            return true;
    return false;
}

void tt__report_others(tt__streams *streams, const tt__job *job, const tt__worker *workers, int first) {
    for (int rank = 0; rank < job->workers; rank++)
        if (rank != first && !is_reported(job, workers, rank, first))
            report_alike(streams, job, workers, rank, first);
}

void tt__report_idle(tt__streams *streams, const tt__job *job, const tt__worker *workers) {
    for (int i = 0; i < job->workers; i++) {
        if (!workers[i].idle)
            continue;
        tt__streams_print(streams, "tutti run: rank %d made no call while others waited for it:", job->first_rank + i);
        say_lines(streams, "  ", workers[i].idle);
    }
}
