#include "launch/local/streams.h"

#include "base/error.h"
#include "base/files/fd.h"
#include "base/machine/clock.h"
#include "base/process/waits.h"
#include "base/text/format.h"
#include "base/text/plain_text.h"
#include "launch/local/terminal.h"
#include "launch/polling.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

/* ---- outlets: streams that other processes share, such as stderr, written to without ever waiting for a reader. The
 * stream's own flags stay as they are: a pipe or terminal is opened once more, a socket has a flag for each call. Where
 * that is not possible (no /proc, another user's pipe), a write of up to PIPE_BUF bytes after poll(2) is the best there
 * is. */

static int open_again(int stream) {
    char path[40];
    snprintf(path, sizeof path, "/proc/self/fd/%d", stream);
    return tt__fd(open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

static tt__outlet outlet_open(int stream) {
    struct stat info;
    tt__outlet outlet = {.fd = stream};
    if (fstat(stream, &info))
        return outlet;
    outlet.socket = S_ISSOCK(info.st_mode);
    if (S_ISFIFO(info.st_mode) || isatty(stream))
        outlet.own = open_again(stream);
    if (outlet.own > 0)
        outlet.fd = outlet.own;
    else
        outlet.own = 0;
    return outlet;
}

static void outlet_close(tt__outlet *outlet) {
    if (outlet->own)
        close(outlet->own);
    *outlet = (tt__outlet){.fd = -1};
}

/* As write(2); EAGAIN: nothing fits now. */
static ssize_t outlet_write(const tt__outlet *outlet, const void *bytes, size_t n) {
    return outlet->socket ? send(outlet->fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL) : write(outlet->fd, bytes, n);
}

/* ---- pseudo-terminals: a worker's stderr where the launcher's is a terminal, so that programs show there what they
 * show on terminals. They only carry bytes and the window's size: no signals, no input, nothing is translated. */

/* Open the writing end, for writing only: a program that asked its user there would wait forever. TIOCGPTPEER needs
 * no path, which in a container may name another terminal. */
static int open_writer(int reader) {
    struct termios settings;
    int writer = tt__fd(ioctl(reader, TIOCGPTPEER, O_WRONLY | O_NOCTTY | O_CLOEXEC));
    if (writer < 0)
        return -1;
    if (tcgetattr(writer, &settings) == 0) {
        cfmakeraw(&settings);
        if (tcsetattr(writer, TCSANOW, &settings) == 0 && fchmod(writer, 0600) == 0) /* no write(1) by others */
            return writer;
    }
    close(writer);
    return -1;
}

/* Give the terminal behind reading end `reader` the size of `like`. False: it has that already. */
static bool pty_resize(int reader, int like) {
    struct winsize own, wanted;
    return ioctl(like, TIOCGWINSZ, &wanted) == 0 && ioctl(reader, TIOCGWINSZ, &own) == 0 &&
           memcmp(&own, &wanted, sizeof own) != 0 && ioctl(reader, TIOCSWINSZ, &wanted) == 0;
}

/* Open one with the size of terminal `like`: ends[0], non-blocking, reads what is written to ends[1]. Both are
 * close-on-exec. False: `like` is no terminal, or the system has none to give. */
static bool pty_open(int like, int ends[2]) {
    if (!isatty(like))
        return false;
    ends[0] = tt__fd(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK));
    if (ends[0] < 0)
        return false;
    ends[1] = grantpt(ends[0]) || unlockpt(ends[0]) ? -1 : open_writer(ends[0]);
    if (ends[1] < 0) {
        close(ends[0]);
        return false;
    }
    pty_resize(ends[0], like);
    return true;
}

enum { FLUSH_MS = 100, READ_BYTES = 16384, OUT_HIGH = 65536, SAID_SIZE = 3072 };

static bool open_ends(int out_fd, int ends[2]) {
    if (pty_open(out_fd, ends))
        return true;
    if (pipe2(ends, O_CLOEXEC))
        return false;
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    return true;
}

/* Open the pipes of the workers that have none; on failure none is new. */
static tt_status open_pipes(tt__streams *streams, int *write_ends) {
    for (int i = 0; i < streams->n; i++)
        write_ends[i] = -1;
    for (int i = 0, ends[2]; i < streams->n; i++) {
        if (streams->of[i].fd >= 0)
            continue;
        if (open_ends(streams->out_fd, ends)) {
            streams->of[i].fd = ends[0];
            write_ends[i] = ends[1];
            continue;
        }
        int errnum = errno;
        while (i--)
            if (write_ends[i] >= 0) {
                tt__close_fd(&write_ends[i]);
                tt__close_fd(&streams->of[i].fd);
            }
        return tt__fail_errno(TT_ERR_SYSTEM, errnum, "can't make a pipe for the stderr of %d workers (see ulimit -n)",
                              streams->n);
    }
    return TT_OK;
}

tt_status tt__streams_open(tt__streams *streams, int n, int out_fd, int *write_ends) {
    *streams = (tt__streams){.n = n, .out_fd = out_fd, .of = calloc((size_t)n + 1, sizeof *streams->of)};
    streams->outlet = outlet_open(out_fd);
    if (!streams->of) {
        tt__streams_close(streams);
        return tt__fail(TT_ERR_MEMORY, "no memory for the output of %d workers", n);
    }
    for (int i = 0; i <= n; i++)
        streams->of[i].fd = -1;
    tt_status status = open_pipes(streams, write_ends);
    if (status)
        tt__streams_close(streams);
    return status;
}

tt_status tt__streams_renew(tt__streams *streams, const bool *kept, int *write_ends) {
    for (int i = 0; i < streams->n; i++) {
        if (kept && kept[i])
            continue;
        tt__streams_drain(streams, i);
        tt__close_fd(&streams->of[i].fd);
        streams->of[i].written = 0;
        streams->of[i].mid_line = false;
    }
    return open_pipes(streams, write_ends);
}

int tt__streams_open_log(tt__streams *streams) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
        return -1;
    streams->of[streams->n].fd = ends[0];
    return ends[1];
}

bool tt__streams_resize(tt__streams *streams) {
    bool changed = false;
    for (int i = 0; i < streams->n; i++)
        if (streams->of[i].fd >= 0)
            changed = pty_resize(streams->of[i].fd, streams->out_fd) || changed;
    return changed;
}

void tt__streams_close(tt__streams *streams) {
    for (int i = 0; streams->of && i <= streams->n; i++)
        tt__close_fd(&streams->of[i].fd);
    tt__merge_free(&streams->merge);
    outlet_close(&streams->outlet);
    free(streams->of);
    free(streams->out);
    *streams = (tt__streams){0};
}

/* Queue bytes. Without memory they are lost, which is better than ending the job. */
static void streams_append(tt__streams *streams, const char *bytes, size_t n) {
    if (streams->out_used + n > streams->out_size) {
        size_t size = 2 * (streams->out_used + n);
        char *out = realloc(streams->out, size);
        if (!out)
            return;
        streams->out = out;
        streams->out_size = size;
    }
    memcpy(streams->out + streams->out_used, bytes, n);
    streams->out_used += n;
}

static const char erase_line[] = "\r\033[K";

static void streams_queue(tt__streams *streams, const char *bytes, size_t n) {
    if (streams->broken || !n)
        return;
    if (streams->status)
        streams_append(streams, erase_line, strlen(erase_line));
    streams->status = false;
    streams_append(streams, bytes, n);
    streams->mid_line = bytes[n - 1] != '\n' && bytes[n - 1] != '\r';
}

/* Count the bytes up to and with the last line end. A progress bar ends its lines with \r. */
static size_t whole_lines(const char *bytes, size_t n) {
    while (n && bytes[n - 1] != '\n' && bytes[n - 1] != '\r')
        n--;
    return n;
}

static void queue_merged(tt__streams *streams) {
    size_t n;
    for (char *line; (line = tt__merge_take(&streams->merge, &n)); free(line))
        streams_queue(streams, line, n);
}

/* Queue whole lines of writer `s`. */
static void queue_lines(tt__streams *streams, const tt__output_stream *s, const char *bytes, size_t n) {
    int from = (int)(s - streams->of);
    for (size_t part; n; bytes += part, n -= part) {
        const char *end = memchr(bytes, '\n', n);
        bool held = tt__merge_holds_any(&streams->merge);
        part = end ? (size_t)(end + 1 - bytes) : n;
        if (!s->mid_line && tt__merge_hold(&streams->merge, from, bytes, part)) {
            if (!held)
                streams->merge_ms = tt__now_ms();
            continue;
        }
        if (tt__merge_holds(&streams->merge, from))
            queue_merged(streams);
        streams_queue(streams, bytes, part);
    }
    if (tt__merge_complete(&streams->merge, streams->n))
        queue_merged(streams);
}

static void queue_pending(tt__streams *streams, tt__output_stream *s) {
    if (s->pending && tt__merge_holds(&streams->merge, (int)(s - streams->of)))
        queue_merged(streams);
    streams_queue(streams, s->line, s->pending);
    if (s->pending)
        s->mid_line = whole_lines(s->line, s->pending) != s->pending;
    s->pending = 0;
}

static void keep_tail(tt__output_stream *s, const char *bytes, size_t n) {
    for (size_t i = 0; i < n; i++)
        s->tail[s->written++ % TT__TAIL_BYTES] = bytes[i];
}

/* Feed bytes of a writer. A line whose beginning came before is joined again, if it fits. */
static void feed_lines(tt__streams *streams, tt__output_stream *s, const char *bytes, size_t n) {
    const char *end = memchr(bytes, '\n', n);
    size_t first = end ? (size_t)(end + 1 - bytes) : n;
    if (s->pending && s->pending + first <= sizeof s->line) {
        memcpy(s->line + s->pending, bytes, first);
        queue_lines(streams, s, s->line, s->pending + first);
        s->pending = 0;
        s->mid_line = false;
        bytes += first;
        n -= first;
    }
    queue_pending(streams, s);
    if (n)
        queue_lines(streams, s, bytes, n);
    s->mid_line = false;
}

static void stream_feed(tt__streams *streams, tt__output_stream *s, const char *bytes, size_t n) {
    keep_tail(s, bytes, n);
    if (s->hidden)
        return;
    size_t whole = whole_lines(bytes, n);
    if (whole)
        feed_lines(streams, s, bytes, whole);
    for (size_t rest = n - whole; rest;) {
        size_t part = sizeof s->line - s->pending < rest ? sizeof s->line - s->pending : rest;
        if (!s->pending)
            s->pending_ms = tt__now_ms();
        memcpy(s->line + s->pending, bytes + n - rest, part);
        s->pending += part;
        rest -= part;
        if (s->pending == sizeof s->line)
            queue_pending(streams, s);
    }
}

/* Read once; false when there is nothing more at the moment. */
static bool read_some(tt__streams *streams, tt__output_stream *s) {
    char bytes[READ_BYTES];
    if (s->fd < 0)
        return false;
    ssize_t n = read(s->fd, bytes, sizeof bytes);
    if (n > 0) {
        stream_feed(streams, s, bytes, (size_t)n);
        return true;
    }
    if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        queue_pending(streams, s);
        tt__close_fd(&s->fd);
    }
    return false;
}

/* Write what fits: no more than PIPE_BUF bytes, which a pipe that poll(2) calls writable takes in any case. */
static bool write_some(tt__streams *streams) {
    size_t n = streams->out_used < PIPE_BUF ? streams->out_used : PIPE_BUF;
    ssize_t wrote = outlet_write(&streams->outlet, streams->out, n);
    if (wrote < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (wrote < 0) {
        streams->broken = true;
        streams->out_used = 0;
        return false;
    }
    streams->out_used -= (size_t)wrote;
    memmove(streams->out, streams->out + wrote, streams->out_used);
    return true;
}

static bool is_writable(const tt__streams *streams, int timeout_ms) {
    struct pollfd fd = {.fd = streams->outlet.fd, .events = POLLOUT};
    return poll(&fd, 1, timeout_ms) > 0;
}

int tt__streams_poll(const tt__streams *streams, struct pollfd *fds, int *timeout_ms) {
    int n = 0;
    if (tt__merge_holds_any(&streams->merge))
        tt__lower_timeout(timeout_ms, streams->merge_ms + FLUSH_MS);
    if (streams->out_used)
        fds[n++] = (struct pollfd){.fd = streams->outlet.fd, .events = POLLOUT};
    for (int rank = 0; rank <= streams->n; rank++) {
        const tt__output_stream *s = &streams->of[rank];
        if (s->fd >= 0 && streams->out_used < OUT_HIGH)
            fds[n++] = (struct pollfd){.fd = s->fd, .events = POLLIN};
        if (s->pending)
            tt__lower_timeout(timeout_ms, s->pending_ms + FLUSH_MS);
    }
    return n;
}

void tt__streams_serve(tt__streams *streams) {
    for (int rank = 0; rank <= streams->n; rank++) {
        tt__output_stream *s = &streams->of[rank];
        if (streams->out_used < OUT_HIGH)
            read_some(streams, s);
        if (s->pending && !tt__left_ms(s->pending_ms + FLUSH_MS))
            queue_pending(streams, s);
    }
    if (tt__merge_holds_any(&streams->merge) && !tt__left_ms(streams->merge_ms + FLUSH_MS))
        queue_merged(streams);
    while (streams->out_used && is_writable(streams, 0) && write_some(streams))
        ;
}

void tt__streams_drain(tt__streams *streams, int rank) {
    /* A pipe holds at most 1 MiB (pipe-max-size); other writers are not waited for. */
    for (int reads = 0; reads < (1 << 20) / READ_BYTES && read_some(streams, &streams->of[rank]); reads++)
        ;
    queue_pending(streams, &streams->of[rank]);
}

void tt__streams_write(tt__streams *streams, const char *bytes, size_t n) { streams_queue(streams, bytes, n); }

void tt__streams_begin_line(tt__streams *streams) {
    queue_merged(streams);
    if (streams->mid_line)
        streams_queue(streams, "\n", 1);
}

bool tt__streams_are_full(const tt__streams *streams) { return streams->out_used >= OUT_HIGH; }

/* Print a line. On a terminal it is wrapped, unless it begins with spaces and quotes a rank; the part before the first
 * colon is coloured. */
static void say_line(tt__streams *streams, tt__colour colour, const char *text) {
    char line[2 * SAID_SIZE];
    const char *begin = tt__terminal_colour(streams->out_fd, colour);
    size_t head = *text == ' ' || colour == TT__PLAIN || !*begin ? 0 : strcspn(text, ":");
    size_t n = tt__wrap(line, sizeof line - 1, text, *text == ' ' ? 0 : tt__terminal_columns(streams->out_fd), 0, 2);
    line[n++] = '\n';
    tt__streams_begin_line(streams);
    if (head)
        streams_queue(streams, begin, strlen(begin));
    streams_queue(streams, line, head);
    begin = head ? tt__terminal_colour(streams->out_fd, TT__PLAIN) : "";
    streams_queue(streams, begin, strlen(begin));
    streams_queue(streams, line + head, n - head);
}

void tt__streams_print(tt__streams *streams, const char *format, ...) {
    char text[SAID_SIZE];
    va_list args;
    va_start(args, format);
    tt__format_short(text, sizeof text, format, args);
    va_end(args);
    say_line(streams, TT__PLAIN, tt__make_plain(text));
}

void tt__streams_alarm(tt__streams *streams, const char *format, ...) {
    char text[SAID_SIZE];
    va_list args;
    va_start(args, format);
    tt__format_short(text, sizeof text, format, args);
    va_end(args);
    say_line(streams, TT__RED, tt__make_plain(text));
}

void tt__streams_show(tt__streams *streams, const char *text) {
    char line[256];
    int columns = tt__terminal_columns(streams->out_fd), n = (int)strlen(text);
    if (streams->broken || streams->mid_line || (!n && !streams->status))
        return;
    if (n > columns - 1)
        n = columns > 1 ? columns - 1 : 0;
    snprintf(line, sizeof line, "%s%.*s", erase_line, n, text);
    streams_append(streams, line, strlen(line));
    streams->status = n > 0;
}

void tt__streams_flush(tt__streams *streams, int64_t stall_ms) {
    if (streams->of)
        tt__streams_drain(streams, streams->n);
    queue_merged(streams);
    for (int64_t deadline = tt__deadline_ms(stall_ms); streams->out_used && tt__left_ms(deadline);) {
        if (!is_writable(streams, tt__left_ms(deadline)))
            continue;
        if (write_some(streams))
            deadline = tt__deadline_ms(stall_ms);
        else
            tt__sleep_ms(1);
    }
}

void tt__streams_take_tail(tt__streams *streams, int rank, int fd) {
    tt__output_stream *s = &streams->of[rank];
    char bytes[TT__TAIL_BYTES];
    off_t size = fd < 0 ? 0 : lseek(fd, 0, SEEK_END);
    off_t from = size > (off_t)sizeof bytes ? size - (off_t)sizeof bytes : 0;
    ssize_t n = size > 0 ? pread(fd, bytes, sizeof bytes, from) : 0;
    if (n > 0) {
        s->written = (size_t)from;
        keep_tail(s, bytes, (size_t)n);
    }
    tt__close_fd(&fd);
}

/* Return the start of the last `lines` lines of text (n bytes). */
static size_t last_lines(const char *text, size_t n, int lines) {
    size_t i = n && text[n - 1] == '\n' ? n - 1 : n;
    for (; i > 0; i--)
        if (text[i - 1] == '\n' && --lines == 0)
            break;
    return i;
}

const char *tt__streams_tail(const tt__streams *streams, int rank, char *text) {
    const tt__output_stream *s = &streams->of[rank];
    size_t n = s->written < TT__TAIL_BYTES ? s->written : TT__TAIL_BYTES;
    for (size_t i = 0; i < n; i++) {
        char c = s->tail[(s->written - n + i) % TT__TAIL_BYTES];
        text[i] = c ? c : '?';
    }
    text[n] = '\0';
    size_t start = last_lines(text, n, TT__TAIL_LINES);
    if (start == 0 && s->written > n) { /* the first line kept is cut */
        const char *end = memchr(text, '\n', n);
        start = end && end + 1 < text + n ? (size_t)(end + 1 - text) : 0;
    }
    memmove(text, text + start, n - start + 1);
    return text;
}
