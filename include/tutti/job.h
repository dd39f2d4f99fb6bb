/* tutti/job.h: what a process tells the observers of its job (`tutti run`, `tutti top`): the progress of its training,
 * and timers for what may hang. It needs no group and no launcher. */
#ifndef TUTTI_JOB_H
#define TUTTI_JOB_H

#include <tutti/base.h>

TT_BEGIN_DECLS

/* ---- what people see of a training run */

typedef struct tt_publish_progress_args {
    int64_t step; /* required: steps done in this epoch */
    double loss;  /* required: of the last step; NAN: not known */
    TT_OPTIONS;
    int64_t steps;   /* in an epoch; 0: not known */
    int64_t epoch;   /* the current one, counted from 1; 0: none */
    int64_t epochs;  /* in all; 0: not known */
    int64_t samples; /* of this rank, since the call before; their rate is shown */
    char tt_end;
} tt_publish_progress_args;

/* Publish how far this rank's training is: `tutti top` shows it, and `tutti run` on a terminal. Call it in every step:
 * it costs some ten nanoseconds, never waits and never fails; negative numbers count as not given. It needs neither a
 * launcher nor a group; observers see it as soon as the process has a group. One thread at a time, and none while
 * another thread makes or destroys a group.
 *   tt_publish_progress(step + 1, loss, .steps = steps, .epoch = epoch + 1, .epochs = epochs, .samples =
 *   batch_size); */
TT_API void tt_publish_progress_with(const tt_publish_progress_args *args, size_t size);

/* ---- timers for what may hang */

typedef struct tt_expires_args {
    int *out;         /* required: receives the timer's number */
    int64_t after_ms; /* required: above 0 */
    TT_OPTIONS;
    const char *name; /* for the report; copied, as far as 63 bytes; NULL: none */
    const char *file; /* the call site; the macro fills it in */
    int line;
    char tt_end; /* not an option: see base.h */
} tt_expires_args;

/* Set a timer: unless tt_expires_end() comes within after_ms, `tutti run` ends this process by SIGKILL, and reports
 * the timer, with the process's stacks. For what may hang in ways that no timeout of Tutti's covers: reading data, an
 * evaluation, a library's call. The other ranks, and restarts, are as after any failure. The launcher looks a few times
 * a second. PyTorch: torch.distributed.elastic.timer.expires.
 *   tt_expires(&timer, 60000, .name = "validation")
 * Success: *out is for tt_expires_end(). Without our launcher no timer is set: *out = 0, which may be ended as well. It
 * needs no group. The first call in a process waits at most a fifth of a second; later ones cost some hundred
 * nanoseconds. Any thread may call it; timers may nest and overlap. A forked child does not have its parent's timers,
 * but may set its own. Errors, with *out = 0: TT_ERR_INVALID no `out`, or after_ms is not above 0; TT_ERR_UNSUPPORTED
 * 64 timers of this process are set already; TT_ERR_MEMORY. */
TT_API TT_NODISCARD tt_status tt_expires_with(const tt_expires_args *args, size_t size);

/* End the timer: it expires no more. From any thread. Does nothing for 0, for a timer that was ended before, and for a
 * parent's. */
TT_API void tt_expires_end(int timer);

/* TT_EXPIRES(60000, .name = "validation"); sets one for the rest of the enclosing block, however it is left. If it
 * can't be set the block runs without it, and tt_last_error() says why. gcc and clang. */
#if defined(__GNUC__) && !defined(__cplusplus)
/* For TT_EXPIRES(): set a timer and return its number, 0 after an error; end it. */
TT_API int tt_expires_scope(const tt_expires_args *args, size_t size);
TT_API void tt_expires_cleanup(const int *timer);
#define TT_EXPIRES(...)                                                          \
    __attribute__((cleanup(tt_expires_cleanup), unused)) const int tt_expires_ = \
        tt_expires_scope(TT_CALL(tt_expires_args, .after_ms = __VA_ARGS__))
#endif

#ifndef __cplusplus
#define tt_expires(out_, ...) \
    tt_expires_with(TT_CALL(tt_expires_args, .out = TT_PLACE(int, out_), .after_ms = __VA_ARGS__))
#define tt_publish_progress(step_, ...)                                                                      \
    tt_publish_progress_with(&(tt_publish_progress_args){.step = (step_), .loss = __VA_ARGS__, .tt_end = 0}, \
                             offsetof(tt_publish_progress_args, tt_end))
#endif

/* Zeros to begin with where the functions are called themselves: base.h. */
#define TT_PUBLISH_PROGRESS_ARGS_INIT TT_ARGS_INIT
#define TT_EXPIRES_ARGS_INIT TT_ARGS_INIT

TT_END_DECLS
#endif
