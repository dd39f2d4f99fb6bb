/* tutti/checkpoint.h: tensors on disk, as safetensors or as PyTorch's .pt, and what a training run needs to go on from
 * there.
 *
 * Writing is atomic: a temporary file beside the target ("NAME.tmp-PID-N"), fsync, rename, fsync of the directory. A
 * kill at any moment leaves the old or the new file whole; the next save to the same path removes temporaries whose
 * writer is gone. A symbolic link stays: what it leads to is replaced. The new file has the old one's mode. Another
 * user's link or file in a directory such as /tmp is refused (TT_ERR_IO). A character device such as /dev/null is
 * written to; a directory, a FIFO or a socket is refused (TT_ERR_INVALID).
 *
 * Threads. Any thread may call these functions, several at a time, as long as no other one uses a call's module or
 * optimizer, or writes to its tensors. Several threads may read one tt_safetensors. If several threads or processes
 * save to one path at the same time, one of their files is left, whole. Calls block until the file is read or
 * written. */
#ifndef TUTTI_CHECKPOINT_H
#define TUTTI_CHECKPOINT_H

#include <tutti/amp.h>
#include <tutti/loader.h>
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

/* Read a file, or all that "NAME.safetensors.index.json" names, which must lie beside it; where index and files
 * disagree, TT_ERR_FORMAT tells all differences. Every rule of the format is checked before anything is used; duplicate
 * names are refused. U16 becomes I32, U32 and U64 become I64. TT_ERR_IO can't be read; TT_ERR_FORMAT, with the path,
 * what was found and where (a bool that is neither 0 nor 1, too); TT_ERR_UNSUPPORTED what Tutti has no tensor for
 * (names it): a complex dtype, one of 8 bits or fewer that is no integer, a U64 above I64's largest value, more than
 * TT_MAX_DIMS dimensions. */
TT_API TT_NODISCARD tt_status tt_safetensors_load_with(const tt_safetensors_load_args *args, size_t size);
#ifndef __cplusplus
#define tt_safetensors_load(out_, ...) \
    tt_safetensors_load_with(          \
        TT_ARGS(tt_safetensors_load_args, .out = TT_PLACE(tt_safetensors *, out_), .path = __VA_ARGS__))
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

/* Read a file as tt_safetensors_load() does, from memory. */
TT_API TT_NODISCARD tt_status tt_safetensors_parse_with(const tt_safetensors_parse_args *args, size_t size);
#ifndef __cplusplus
#define tt_safetensors_parse(out_, data_, size_, ...)                                                     \
    tt_safetensors_parse_with(TT_ARGS(tt_safetensors_parse_args, .out = TT_PLACE(tt_safetensors *, out_), \
                                      .data = (data_), .size = (size_), .name = __VA_ARGS__))
#endif
#define TT_SAFETENSORS_PARSE_ARGS_INIT TT_ARGS_INIT

typedef struct tt_safetensors_save_sharded_args {
    const char *path;                /* required: "NAME.safetensors.index.json" */
    const tt_named_tensors *tensors; /* required */
    TT_OPTIONS;
    uint64_t max_shard_bytes; /* the most bytes of tensors in a file, except for a single larger one; 0 = 5 GB */
    const tt_metadata *metadata;
    int64_t metadata_count;
    char tt_end; /* not an option: see base.h */
} tt_safetensors_save_sharded_args;

/* Write tensors as several files, NAME-00001-of-00003.safetensors ..., in the order of the list, then the index, as
 * Hugging Face's libraries do. Each file appears whole, the index last. A kill in between may leave new files beside
 * old ones under an index of the same number of files: they carry the number of their save as metadata ("tutti.save"),
 * and loading files of two saves is TT_ERR_FORMAT. So save to a new folder what must not be lost. Errors: as
 * tt_safetensors_save(). */
TT_API TT_NODISCARD tt_status tt_safetensors_save_sharded_with(const tt_safetensors_save_sharded_args *args,
                                                               size_t size);
#ifndef __cplusplus
#define tt_safetensors_save_sharded(path_, ...) \
    tt_safetensors_save_sharded_with(TT_ARGS(tt_safetensors_save_sharded_args, .path = (path_), .tensors = __VA_ARGS__))
#endif
#define TT_SAFETENSORS_SAVE_SHARDED_ARGS_INIT TT_ARGS_INIT

/* Return the file's tensors, sorted by name (NULL gives NULL), or the value of a metadata key, or NULL; all borrowed
 * from `file`. */
TT_API const tt_named_tensors *tt_safetensors_tensors(const tt_safetensors *file);
TT_API const char *tt_safetensors_metadata(const tt_safetensors *file, const char *key);

/* Return the names of the tensors that were left out, sorted, and their number in *count (may be NULL); borrowed from
 * `file`. None without .skip_unsupported; NULL gives NULL. */
TT_API const char *const *tt_safetensors_skipped(const tt_safetensors *file, int64_t *count);

/* NULL is allowed. */
TT_API void tt_safetensors_free(tt_safetensors *file);

/* ---- values: trees of numbers, texts, tensors, lists and dicts ---- */

/* What torch.save() writes of a program's state, and what a program builds to be written. A value is freed with its
 * tree: tt_value_free() of the root. Several threads may look at one tree; see tt_value_tensors(). */
typedef struct tt_value tt_value;

/* Python's None, bool, int (of 64 bits), float, str; torch.Tensor, torch.dtype; list, tuple, dict. */
typedef enum tt_value_type {
    TT_VALUE_NONE,
    TT_VALUE_BOOL,
    TT_VALUE_INT,
    TT_VALUE_FLOAT,
    TT_VALUE_STRING,
    TT_VALUE_TENSOR,
    TT_VALUE_DTYPE,
    TT_VALUE_LIST,
    TT_VALUE_TUPLE,
    TT_VALUE_DICT
} tt_value_type;

/* Make a value, the caller's to free; NULL with the error recorded. A text is UTF-8 and copied; a tensor is counted,
 * not copied: what is written to it later shows. Containers are empty. */
TT_API tt_value *tt_value_of_none(void);
TT_API tt_value *tt_value_of_bool(bool x);
TT_API tt_value *tt_value_of_int(int64_t x);
TT_API tt_value *tt_value_of_float(double x);
TT_API tt_value *tt_value_of_string(const char *text);
TT_API tt_value *tt_value_of_dtype(tt_dtype dtype);
TT_API tt_value *tt_value_of_tensor(tt_tensor *x);
TT_API tt_value *tt_value_list(void);
TT_API tt_value *tt_value_tuple(void);
TT_API tt_value *tt_value_dict(void);

/* Make a dict of a list's tensors under their names, as PyTorch's state_dict() does. */
TT_API tt_value *tt_value_of_tensors(const tt_named_tensors *tensors);

/* Make a value of an optimizer's state as PyTorch's Optimizer.state_dict() has it, so that optimizer.load_state_dict()
 * takes it there: {"state": {0: {"step": ..., "exp_avg": ...}, ...}, "param_groups": [{"lr": ..., "betas": (...),
 * "params": [0, ...]}]}. It shares the optimizer's tensors, so save it before the next step. NULL: TT_ERR_INVALID no
 * optimizer; TT_ERR_MEMORY.
 *   tt_value_set(file, "optimizer", tt_value_of_optimizer(adam)) */
TT_API tt_value *tt_value_of_optimizer(tt_optimizer *optimizer);

/* Load such a state, of PyTorch's or of Tutti's, as tt_optimizer_load_state_dict() does.
 * Options that only PyTorch has, such as "foreach", are ignored: they don't change results.
 *   tt_optimizer_load_value(adam, tt_value_find(file, "optimizer"))
 * Errors: TT_ERR_INVALID no such state (the text says where), NULL; those of tt_optimizer_load_state_dict(). */
TT_API TT_NODISCARD tt_status tt_optimizer_load_value(tt_optimizer *optimizer, const tt_value *value);

/* Append an item to a list or a tuple; set a dict's item of a new key, a name or a number. The item is taken over, also
 * on failure, so that tt_value_set(dict, "lr", tt_value_of_float(0.1)) leaks nothing; NULL is an error whose cause is
 * recorded already. A container is filled before it becomes part of another. Errors: TT_ERR_INVALID not such a
 * container, a key that is there, values nested more than 100 deep; TT_ERR_STATE either is part of another value. */
TT_API TT_NODISCARD tt_status tt_value_append(tt_value *list, tt_value *item);
TT_API TT_NODISCARD tt_status tt_value_set(tt_value *dict, const char *key, tt_value *item);
TT_API TT_NODISCARD tt_status tt_value_set_at(tt_value *dict, int64_t key, tt_value *item);

/* Return what a value is. NULL is TT_VALUE_NONE. */
TT_API tt_value_type tt_value_typeof(const tt_value *value);

/* Return how many items a list, tuple or dict has (others: 0); its item i, a dict's in the order in which they were
 * set; or a dict's key i, a string or an int. Borrowed. NULL and TT_ERR_NOT_FOUND if there is none. */
TT_API int64_t tt_value_count(const tt_value *value);
TT_API const tt_value *tt_value_at(const tt_value *value, int64_t i);
TT_API const tt_value *tt_value_key(const tt_value *dict, int64_t i);

/* Return a dict's item of a name or a number; NULL, and no error, if there is none or `dict` is NULL or no dict.
 * Borrowed. */
TT_API const tt_value *tt_value_find(const tt_value *dict, const char *key);
TT_API const tt_value *tt_value_find_at(const tt_value *dict, int64_t key);

/* Get the bool, int, float or dtype that a value is; an int is also taken as a float. TT_ERR_INVALID, and *out stays,
 * if it is another thing. */
TT_API TT_NODISCARD tt_status tt_value_get_bool(bool *out, const tt_value *value);
TT_API TT_NODISCARD tt_status tt_value_get_int(int64_t *out, const tt_value *value);
TT_API TT_NODISCARD tt_status tt_value_get_float(double *out, const tt_value *value);
TT_API TT_NODISCARD tt_status tt_value_get_dtype(tt_dtype *out, const tt_value *value);

/* Return the text or the tensor that a value is, borrowed; NULL and TT_ERR_INVALID if it is another thing. */
TT_API const char *tt_value_string(const tt_value *value);
TT_API tt_tensor *tt_value_tensor(const tt_value *value);

/* Return all tensors in a tree, in its order, under dotted names: {"model": {"conv": {"weight": x}}} has
 * "model.conv.weight", and the items of lists are numbered. Borrowed from `value`; the first call for a value must not
 * overlap another one for it. The model of a checkpoint is loaded by
 *   tt_module_load_state_dict(model, tt_value_tensors(tt_value_find(file, "model")))
 * NULL gives NULL; NULL and TT_ERR_INVALID two tensors of one dotted name, a name of 1 KiB or more. */
TT_API const tt_named_tensors *tt_value_tensors(const tt_value *value);

/* Free a tree. NULL is allowed; what is part of another value is left alone (TT_ERR_STATE is recorded). */
TT_API void tt_value_free(tt_value *value);

/* ---- PyTorch's .pt files ---- */

/* Read what torch.save() wrote: state dicts, optimizers' states, dicts, lists, tuples, numbers, texts, None, tensors,
 * dtypes. No code in the file is run: anything else in it is an error that names it. Tensors that share memory in the
 * file share it here; views keep their strides; all are on the host, whatever device they were saved from, and need no
 * gradient. An OrderedDict or a Counter becomes a dict, a torch.Size a tuple, a torch.device its name, a Parameter its
 * tensor. The memory that is taken is bounded by the file's size.
 * *out: the caller's to free. Errors, with the path: TT_ERR_IO can't be read; TT_ERR_FORMAT no such file, or broken or
 * forged; TT_ERR_UNSUPPORTED what Tutti has nothing for, by name: complex, quantized and sparse tensors, unsigned and
 * 8-bit types other than u8, more than TT_MAX_DIMS dimensions, big-endian files, ints of more than 64 bits, PyTorch's
 * format before 1.6, objects of any other class; also if there is no libzip. */
TT_API TT_NODISCARD tt_status tt_torch_load(tt_value **out, const char *path);

/* Read a .pt file from memory, `size` bytes borrowed during the call; `name` stands for the path in errors (NULL:
 * "pt"). */
TT_API TT_NODISCARD tt_status tt_torch_parse(tt_value **out, const void *data, size_t size, const char *name);

/* Write a value so that torch.load() reads it, also with weights_only=True (which in PyTorch 1.13 takes no floats,
 * PyTorch's own neither). Borrowed. Tensors of any layout and device are written one element after the other, as if on
 * the CPU. Tensors that are the same memory, such as tied weights, are written once, and PyTorch shares them again.
 * Errors: TT_ERR_INVALID an argument is NULL; TT_ERR_IO, with the path; TT_ERR_MEMORY. */
TT_API TT_NODISCARD tt_status tt_torch_save(const char *path, const tt_value *value);

/* ---- training state ---- */

/* Where a run stands beside its tensors.
 *   tt_progress progress = TT_PROGRESS(.epoch = 3); */
typedef struct tt_progress {
    size_t size;   /* sizeof(tt_progress): TT_PROGRESS sets it */
    int64_t epoch; /* epochs completed since the start of training */
    uint64_t sampler_seed;
    /* a trainer's (tutti/trainer.h) */
    int64_t step;        /* optimizer steps since the start of training */
    int64_t epoch_step;  /* optimizer steps in the epoch under way */
    int64_t evaluations; /* evaluations that were made; 0: none, and no best */
    int64_t stale;       /* evaluations since the best one */
    double best;
    double loss;         /* mean of the last whole epoch; NAN: not known */
    double monitored;    /* of the last evaluation; NAN: not known */
    char monitor[64];    /* name of the metric of `best` and `monitored`, as much as fits; "": not known */
    int64_t monitor_max; /* 1: more of the metric is better */
} tt_progress;

/* A progress of no epoch yet; a progress with these values (not in C++). */
#define TT_PROGRESS_INIT \
    { sizeof(tt_progress), 0, 0, 0, 0, 0, 0, 0, __builtin_nan(""), __builtin_nan(""), "", 0 }
#ifndef __cplusplus
#define TT_PROGRESS(...) \
    { .size = sizeof(tt_progress), .loss = __builtin_nan(""), .monitored = __builtin_nan(""), __VA_ARGS__ }
#endif

typedef struct tt_checkpoint_save_args {
    const char *path;            /* required */
    tt_module *model;            /* required */
    tt_optimizer *optimizer;     /* required; NULL: none */
    const tt_progress *progress; /* required; NULL: none */
    TT_OPTIONS;
    tt_lr_scheduler *scheduler;   /* NULL: none */
    tt_ema *ema;                  /* NULL: none */
    tt_loader *loader;            /* NULL: none */
    tt_generator *generator;      /* NULL: none; tt_default_generator() for dropout and tt_shuffled() */
    tt_grad_scaler *scaler;       /* NULL: none */
    const tt_named_tensors *more; /* what else belongs to the run: an averager's state (local_sgd.h). NULL: nothing */
    char tt_end;                  /* not an option: see base.h */
} tt_checkpoint_save_args;

/* Save a model's state_dict under PyTorch's names, the optimizer's under "optimizer.", the scheduler's under
 * "lr_scheduler.", the averages' under "ema.", the loader's under "loader.", the generator's under "generator.", the
 * gradient scaler's under "grad_scaler.", `more` under "more.", and progress in the metadata. Options of the
 * optimizer's groups are part of its state. All are borrowed. Not collective: one rank saves, usually rank 0.
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
    tt_ema *ema;                /* NULL: its entries are ignored */
    tt_loader *loader;          /* NULL: its entries are ignored */
    tt_generator *generator;    /* NULL: its entries are ignored */
    tt_grad_scaler *scaler;     /* NULL: its entries are ignored */
    /* called last, with what was saved as `more`, borrowed; the call returns its status. NULL: it is ignored */
    tt_status (*load_more)(void *user, const tt_named_tensors *more);
    void *load_more_user; /* handed to it */
    char tt_end;          /* not an option: see base.h */
} tt_checkpoint_load_args;

/* Load a checkpoint into the model (names with or without "module."), and into what else is given. All or nothing,
 * except for a failure of .load_more. Options of the optimizer's groups become the file's, if it has them; a scheduler,
 * average or scaler needs entries of its own kind.
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

/* Read how far a checkpoint's training was, and nothing else: to make a sampler with its seed, say. `progress` must
 * have its size. Errors: TT_ERR_INVALID NULL or no size; those of tt_safetensors_load(), with the path. */
TT_API TT_NODISCARD tt_status tt_checkpoint_progress(const char *path, tt_progress *progress);

/* Saves beside training: tt_checkpoint_saver_save() copies what is to be saved, and a thread of the library writes
 * it. */
typedef struct tt_checkpoint_saver tt_checkpoint_saver;

/* Make a saver; NULL and TT_ERR_MEMORY. Freeing it waits for a write that is under way, whose error becomes the
 * thread's last one; NULL is allowed. */
TT_API tt_checkpoint_saver *tt_checkpoint_saver_new(void);
TT_API void tt_checkpoint_saver_free(tt_checkpoint_saver *saver);

/* Copy the state now and begin to write it as tt_checkpoint_save() does; when this returns, model and optimizer may go
 * on. One write is under way at a time: waits for the one before, and if that failed returns its error and begins
 * nothing. The copies take as much memory as the state, and are kept for the next call, which uses them again where
 * names, shapes and types are the same. A saver is for one thread. Errors: those of tt_checkpoint_save(), and
 * TT_ERR_SYSTEM no thread could be started.
 *   tt_checkpoint_saver_save(saver, path, model, adam, &progress, .scheduler = cosine) */
TT_API TT_NODISCARD tt_status tt_checkpoint_saver_save_with(tt_checkpoint_saver *saver,
                                                            const tt_checkpoint_save_args *args, size_t size);
#ifndef __cplusplus
#define tt_checkpoint_saver_save(saver_, path_, model_, optimizer_, ...)                                         \
    tt_checkpoint_saver_save_with((saver_), TT_ARGS(tt_checkpoint_save_args, .path = (path_), .model = (model_), \
                                                    .optimizer = (optimizer_), .progress = __VA_ARGS__))
#endif

/* Wait until the file is in place. Returns the write's error, once; TT_OK if nothing is under way. */
TT_API TT_NODISCARD tt_status tt_checkpoint_saver_wait(tt_checkpoint_saver *saver);

TT_END_DECLS
#endif
