/* tutti/checkpoint.h: tensors on disk, as safetensors, and what a training run needs to go on from there.
 *
 * Writing is atomic: a temporary file beside the target ("NAME.tmp-PID-N"), fsync, rename, fsync of the directory. A
 * kill at any moment leaves the old or the new file whole; the next save to the same path removes temporaries whose
 * writer is gone. A symbolic link stays: what it leads to is replaced. The new file has the old one's mode. Another
 * user's link or file in a directory such as /tmp is refused (TT_ERR_IO). A character device such as /dev/null is
 * written to; a directory, a FIFO or a socket is refused (TT_ERR_INVALID).
 *
 * Threads. Any thread may call these functions, several at a time, as long as no other one uses a call's module or
 * optimizer, or writes to its tensors. Several threads may read one tt_safetensors. Whoever saves to one path at the
 * same time, threads or processes, leaves one of their files, whole. Calls block until the file is read or written. */
#ifndef TUTTI_CHECKPOINT_H
#define TUTTI_CHECKPOINT_H

#include <tutti/nn.h>
#include <tutti/optim.h>

TT_BEGIN_DECLS

/* ---- safetensors files ---- */

typedef struct tt_safetensors tt_safetensors;

/* A pair of the file's "__metadata__". */
typedef struct tt_metadata {
    const char *key;
    const char *value;
} tt_metadata;

/* Write tensors (any element type, layout and device; borrowed) under their names. Order, padding and "format":"pt" as
 * the reference writer's; `metadata` (n pairs) is added.
 * Errors: TT_ERR_INVALID a duplicate name or key or one that is no UTF-8; TT_ERR_IO, with the path. */
TT_API TT_NODISCARD tt_status tt_safetensors_save(const char *path, const tt_named_tensors *tensors,
                                                  const tt_metadata *metadata, int64_t n);

typedef struct tt_safetensors_load_args {
    tt_safetensors **out; /* required: receives the file, the caller's to free */
    const char *path;     /* required */
    TT_OPTIONS;
    bool skip_unsupported; /* read what can be read; tt_safetensors_skipped() names the rest */
    char tt_end;           /* not an option: see base.h */
} tt_safetensors_load_args;

/* Read a file. Every rule of the format is checked before anything is used; duplicate names are refused. U16 becomes
 * I32, U32 and U64 become I64. TT_ERR_IO can't be read; TT_ERR_FORMAT, with the path, what was found and where (a bool
 * that is neither 0 nor 1, too); TT_ERR_UNSUPPORTED what Tutti has no tensor for (names it): a complex dtype, one of 8
 * bits or fewer that is no integer, a U64 above I64's largest value, more than TT_MAX_DIMS dimensions. */
TT_API TT_NODISCARD tt_status tt_safetensors_load_with(const tt_safetensors_load_args *args, size_t size);
#ifndef __cplusplus
#define tt_safetensors_load(out_, ...) \
    tt_safetensors_load_with(TT_ARGS(tt_safetensors_load_args, .out = (out_), .path = __VA_ARGS__))
#endif
#define TT_SAFETENSORS_LOAD_ARGS_INIT TT_ARGS_INIT

typedef struct tt_safetensors_parse_args {
    tt_safetensors **out; /* required: as above */
    const void *data;     /* required: of `size` bytes, borrowed during the call */
    size_t size;          /* required */
    const char *name;     /* required: stands for the path in errors; NULL = "safetensors" */
    TT_OPTIONS;
    bool skip_unsupported; /* as above */
    char tt_end;           /* not an option: see base.h */
} tt_safetensors_parse_args;

/* The same from memory. */
TT_API TT_NODISCARD tt_status tt_safetensors_parse_with(const tt_safetensors_parse_args *args, size_t size);
#ifndef __cplusplus
#define tt_safetensors_parse(out_, data_, size_, ...) \
    tt_safetensors_parse_with(                        \
        TT_ARGS(tt_safetensors_parse_args, .out = (out_), .data = (data_), .size = (size_), .name = __VA_ARGS__))
#endif
#define TT_SAFETENSORS_PARSE_ARGS_INIT TT_ARGS_INIT

/* Its tensors, sorted by name (NULL gives NULL), and a metadata value or NULL; all borrowed from `file`. */
TT_API const tt_named_tensors *tt_safetensors_tensors(const tt_safetensors *file);
TT_API const char *tt_safetensors_metadata(const tt_safetensors *file, const char *key);

/* The names of tensors that were left out, sorted, and their number in *count (may be NULL); borrowed from `file`. None
 * without .skip_unsupported; NULL gives NULL. */
TT_API const char *const *tt_safetensors_skipped(const tt_safetensors *file, int64_t *count);

/* NULL is allowed. */
TT_API void tt_safetensors_free(tt_safetensors *file);

/* ---- training state ---- */

/* Where a run stands beside its tensors.
 *   tt_progress progress = TT_PROGRESS(.epoch = 3); */
typedef struct tt_progress {
    size_t size;   /* sizeof(tt_progress): TT_PROGRESS sets it */
    int64_t epoch; /* epochs completed since the start of training */
    uint64_t sampler_seed;
} tt_progress;

/* No epoch yet / with these values (not in C++). */
#define TT_PROGRESS_INIT \
    { sizeof(tt_progress), 0, 0 }
#ifndef __cplusplus
#define TT_PROGRESS(...) \
    { .size = sizeof(tt_progress), __VA_ARGS__ }
#endif

typedef struct tt_checkpoint_save_args {
    const char *path;            /* required */
    tt_module *model;            /* required */
    tt_optimizer *optimizer;     /* required; NULL: none */
    const tt_progress *progress; /* required; NULL: none */
    TT_OPTIONS;
    tt_lr_scheduler *scheduler; /* NULL: none */
    tt_ema *ema;                /* NULL: none */
    char tt_end;                /* not an option: see base.h */
} tt_checkpoint_save_args;

/* Save a model's state_dict under PyTorch's names, the optimizer's under "optimizer.", the scheduler's under
 * "lr_scheduler.", the averages' under "ema.", and progress in the metadata. Options of the optimizer's groups are part
 * of its state. All are borrowed. Not collective: one rank saves, usually rank 0.
 *   tt_checkpoint_save(path, model, adam, &progress, .scheduler = cosine)
 * Errors: TT_ERR_INVALID no path or model, a progress without size, a parameter's name that reads as an entry of
 * another part; TT_ERR_IO; TT_ERR_MEMORY. All name the path. */
TT_API TT_NODISCARD tt_status tt_checkpoint_save_with(const tt_checkpoint_save_args *args, size_t size);
#ifndef __cplusplus
#define tt_checkpoint_save(path_, model_, optimizer_, ...)                                       \
    tt_checkpoint_save_with(TT_ARGS(tt_checkpoint_save_args, .path = (path_), .model = (model_), \
                                    .optimizer = (optimizer_), .progress = __VA_ARGS__))
#endif
#define TT_CHECKPOINT_SAVE_ARGS_INIT TT_ARGS_INIT

/* Check that a checkpoint can be saved at `path`, before training rather than after it. Leaves nothing. Errors:
 * TT_ERR_IO, TT_ERR_INVALID it is a directory, a FIFO or the like; both with the path. */
TT_API TT_NODISCARD tt_status tt_checkpoint_can_save(const char *path);

typedef struct tt_checkpoint_load_args {
    const char *path;        /* required */
    tt_module *model;        /* required */
    tt_optimizer *optimizer; /* required; NULL: its entries are ignored */
    tt_progress *progress;   /* required: receives what the file has, else zeros; its size must be set. NULL: ignored */
    TT_OPTIONS;
    tt_lr_scheduler *scheduler; /* NULL: its entries are ignored */
    tt_ema *ema;                /* likewise */
    char tt_end;                /* not an option: see base.h */
} tt_checkpoint_load_args;

/* Load it: into the model (names with or without "module."), and into what else is given. All or nothing. Options of
 * the optimizer's groups become the file's, if it has them; a scheduler or average needs entries of its own kind.
 * Nothing is converted: an entry of another element type than the model's tensor is TT_ERR_DTYPE; tt_module_to() before
 * loading makes them agree. Errors: those of tt_safetensors_load() and of all load_state_dict() calls, with the path;
 * TT_ERR_INVALID a progress without size. Not collective: every rank may load, or rank 0 before wrapping. */
TT_API TT_NODISCARD tt_status tt_checkpoint_load_with(const tt_checkpoint_load_args *args, size_t size);
#ifndef __cplusplus
#define tt_checkpoint_load(path_, model_, optimizer_, ...)                                       \
    tt_checkpoint_load_with(TT_ARGS(tt_checkpoint_load_args, .path = (path_), .model = (model_), \
                                    .optimizer = (optimizer_), .progress = __VA_ARGS__))
#endif
#define TT_CHECKPOINT_LOAD_ARGS_INIT TT_ARGS_INIT

TT_END_DECLS
#endif
