/* tutti/metrics.h: a training run's numbers on disk: TensorBoard's event files, and CSV. `tutti plot` draws both. */
#ifndef TUTTI_METRICS_H
#define TUTTI_METRICS_H

#include <tutti/base.h>

TT_BEGIN_DECLS

/* Writes scalars, texts and histograms of one run. One thread at a time; one writer a folder, which with several ranks
 * is usually rank 0's. */
typedef struct tt_summary_writer tt_summary_writer;

typedef struct tt_summary_writer_new_args {
    const char *log_dir; /* required: the run's folder, made if it is missing; its last part names the run */
    TT_OPTIONS;
    bool no_events; /* no TensorBoard file */
    bool no_csv;    /* no scalars.csv */
    char tt_end;    /* not an option: see base.h */
} tt_summary_writer_new_args;

/* Open a run's folder:
 *   events.out.tfevents.TIME.HOST.PID.N  new for each writer, as TensorBoard's own library names it
 *   scalars.csv                          "step,wall_time,tag,value", a line a scalar (RFC 4180). A run that goes on
 *                                        appends to it; a line that a killed run has left unfinished is removed.
 * When a call returns, the system has the whole scalar: a program that is killed then loses none.
 *   writer = tt_summary_writer_new("runs/first")
 * NULL on failure: TT_ERR_INVALID no folder's name, both files unwanted, or a FIFO or the like as scalars.csv;
 * TT_ERR_IO, with the path: also where another user's link or scalars.csv is in a folder such as /tmp; TT_ERR_MEMORY.
 * PyTorch: torch.utils.tensorboard.SummaryWriter. */
TT_API tt_summary_writer *tt_summary_writer_new_with(const tt_summary_writer_new_args *args, size_t size);
#ifndef __cplusplus
#define tt_summary_writer_new(...) \
    tt_summary_writer_new_with(TT_ARGS(tt_summary_writer_new_args, .log_dir = __VA_ARGS__))
#endif
#define TT_SUMMARY_WRITER_NEW_ARGS_INIT TT_ARGS_INIT

/* Write `value` of `tag` ("loss/train": what stands before a slash groups charts) at `step`, with the time of day. A
 * value may be infinite or NaN. In the event file it is rounded to f32. PyTorch: add_scalar(tag, value, step).
 * Errors: TT_ERR_INVALID NULL, a tag that is empty, no UTF-8 or has control characters, a step below 0. TT_ERR_IO, with
 * the path: the disk is full, say. What was begun is taken back, the files stay whole, and the next call tries again;
 * calls that fail again return TT_OK until one has succeeded, so that a full disk is one error. It need not end the
 * training. */
TT_API TT_NODISCARD tt_status tt_summary_writer_add_scalar(tt_summary_writer *writer, const char *tag, double value,
                                                           int64_t step);

/* Write a text, which TensorBoard shows as Markdown, to the event file alone. UTF-8. Errors as above. PyTorch:
 * add_text(tag, text, step). */
TT_API TT_NODISCARD tt_status tt_summary_writer_add_text(tt_summary_writer *writer, const char *tag, const char *text,
                                                         int64_t step);

/* Write how `count` values of TT_F32 or TT_F64 are spread, to the event file alone, in PyTorch's buckets: their limits
 * are 0 and +-1e-12 * 1.1^k, up to 1e20. PyTorch: add_histogram(tag, values, step).
 *   tt_summary_writer_add_histogram(w, "weights", tt_tensor_f32(x), tt_tensor_numel(x), TT_F32, step)
 * Errors as above; TT_ERR_DTYPE; TT_ERR_INVALID no values; TT_ERR_NAN a value that is infinite or NaN. */
TT_API TT_NODISCARD tt_status tt_summary_writer_add_histogram(tt_summary_writer *writer, const char *tag,
                                                              const void *values, int64_t count, tt_dtype dtype,
                                                              int64_t step);
#ifndef __cplusplus
#define tt_summary_writer_add_histogram(writer, tag, values, count, dtype, step) \
    (tt_summary_writer_add_histogram)(writer, tag, TT_BUFFER(values), count, dtype, step)
#endif

/* Drop what earlier runs have written here at `step` and later, for a run that resumes from a checkpoint older than the
 * last points of the run before. TensorBoard and `tutti plot` leave those points out; scalars.csv loses the lines at
 * its end that are all of such steps. tt_trainer_run() does it when it resumes. Errors as above. PyTorch:
 * SummaryWriter(purge_step = step). */
TT_API TT_NODISCARD tt_status tt_summary_writer_purge(tt_summary_writer *writer, int64_t step);

/* Wait until everything is on the disk itself, safe from a crash of the machine. Errors: TT_ERR_INVALID NULL;
 * TT_ERR_IO.
 * PyTorch: flush(). */
TT_API TT_NODISCARD tt_status tt_summary_writer_flush(tt_summary_writer *writer);

/* The folder that the writer was made with; "" for NULL. Borrowed. */
TT_API const char *tt_summary_writer_log_dir(const tt_summary_writer *writer);

/* NULL is allowed. PyTorch: close(). */
TT_API void tt_summary_writer_free(tt_summary_writer *writer);

TT_END_DECLS
#endif
