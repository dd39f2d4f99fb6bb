/* The workers' stderr: passed through line by line, the tail of each kept for the report.
 *
 * Every worker writes into a pipe of its own, or a terminal of its own where the launcher's stderr is one. Whole lines
 * go to the launcher's stderr in one piece, so that ranks don't mix inside a line; text that has no line end after
 * FLUSH_MS (a prompt, a progress bar) is passed on as it is. Lines of tt_report() are held for FLUSH_MS at most, and
 * merged where several ranks write the same (merge.h). Nothing here waits for the reader of our stderr: while it does
 * not read, the pipes fill and the workers wait, but the launcher goes on. */
#ifndef TT_LAUNCH_LOCAL_STREAMS_H
#define TT_LAUNCH_LOCAL_STREAMS_H

#include "launch/local/merge.h"

#include <tutti/base.h>

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

typedef struct tt__outlet {
    int fd;  /* to poll: `own`, or the stream's */
    int own; /* opened here; 0 = none */
    bool socket;
} tt__outlet;

enum { TT__TAIL_BYTES = 8192, TT__TAIL_LINES = 20 };

typedef struct tt__output_stream {
    int fd;             /* our end of the pipe; -1 = ended */
    int64_t pending_ms; /* since when `pending` waits for its line end */
    size_t pending;
    bool mid_line; /* what was passed on last does not end a line */
    bool hidden;   /* nothing is passed on, only the tail is kept */
    char line[4096];
    size_t written;            /* bytes ever; the last of them are in `tail`, a ring */
    char tail[TT__TAIL_BYTES]; /* allocated with the stream: untouched pages cost nothing */
} tt__output_stream;

typedef struct tt__streams {
    int n;
    tt__output_stream *of; /* (n + 1) by rank; the last is the launcher's own log */
    tt__line_merge merge;  /* held lines, which other ranks may write, too */
    int64_t merge_ms;      /* since when `merge` holds lines */
    int out_fd;            /* where lines are passed on to, through `outlet` */
    tt__outlet outlet;
    char *out; /* not yet written */
    size_t out_used, out_size;
    bool broken;   /* nobody reads any more: discard */
    bool mid_line; /* what was queued last does not end a line */
    bool status;   /* the last line on the terminal is one of tt__streams_show() */
} tt__streams;

/* Open pipes for `n` workers; write_ends[rank], the caller's to close, are theirs. On failure nothing is open. */
tt_status tt__streams_open(tt__streams *streams, int n, int out_fd, int *write_ends);
void tt__streams_close(tt__streams *streams);

/* Begin an attempt: pass on what the workers have written so far, forget their tails, and open new pipes as
 * tt__streams_open() does. Nothing changes for those that are `kept` (NULL: none is), whose write_ends become -1. On
 * failure there are no new pipes. */
tt_status tt__streams_renew(tt__streams *streams, const bool *kept, int *write_ends);

/* Open a pipe for the launcher's own log, whose lines pass through as the workers' do; threads may write to the end
 * that is returned, the caller's to close, and never wait there. -1: errno says why. */
int tt__streams_open_log(tt__streams *streams);

/* Give the workers' terminals the size of ours. False: nothing changes. */
bool tt__streams_resize(tt__streams *streams);

/* Fill in at most n+2 entries for poll(2), return how many; *timeout_ms is lowered to when tt__streams_serve() must be
 * called at the latest. */
int tt__streams_poll(const tt__streams *streams, struct pollfd *fds, int *timeout_ms);

/* Read, pass on and flush what can be without waiting. */
void tt__streams_serve(tt__streams *streams);

/* Take all that `rank` (`n`: the log) has written up to now, whether or not it can be passed on yet. */
void tt__streams_drain(tt__streams *streams, int rank);

/* Queue bytes as they are. End a line that is unfinished. Is the queue full, so that the caller should wait? */
void tt__streams_write(tt__streams *streams, const char *bytes, size_t n);
void tt__streams_begin_line(tt__streams *streams);
bool tt__streams_are_full(const tt__streams *streams);

/* Queue a line of the launcher's own, wrapped on a terminal; failures are coloured there. Of a line that is longer than
 * 3 KB the end is kept. */
void tt__streams_print(tt__streams *streams, const char *format, ...) TT_PRINTF(2, 3);
void tt__streams_alarm(tt__streams *streams, const char *format, ...) TT_PRINTF(2, 3);

/* Show `text` in the last line of the terminal until something else is written, in place of what was shown there; "":
 * remove it. Nothing happens while a line is unfinished. */
void tt__streams_show(tt__streams *streams, const char *text);

/* Write out everything, the log included, but give up on a reader that has taken nothing for stall_ms. */
void tt__streams_flush(tt__streams *streams, int64_t stall_ms);

/* Take the end of the file to which `rank` wrote its stderr, as its tail. Closes `fd`; -1: there is none. */
void tt__streams_take_tail(tt__streams *streams, int rank, int fd);

/* Copy the last TT__TAIL_LINES lines of `rank`'s stderr, as far as they were kept; `text` has TT__TAIL_BYTES + 1 bytes.
 * A NUL byte becomes '?'. Returns `text`. */
const char *tt__streams_tail(const tt__streams *streams, int rank, char *text);

#endif
