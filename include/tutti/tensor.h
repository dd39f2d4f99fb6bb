/* tutti/tensor.h: tensors, devices, scopes, threads, random numbers.
 *
 * A tensor is a dtype, a shape of at most TT_MAX_DIMS dimensions, strides, and storage on a device, which views share.
 * New ones are row-major, as PyTorch's; results of operators keep the order of memory of what they were made from,
 * whatever it is.
 *
 * Ownership. With a scope open in the thread, a tensor made by any call lives until that scope ends; tt_keep() lets it
 * live on, then the caller frees it with tt_tensor_free(). With no scope open the caller owns each tensor. Storage
 * lives as long as any tensor that uses it. Memory of ended scopes is recycled: a steady-state training step allocates
 * nothing.
 *
 * Errors in expressions. A call that returns a tensor returns NULL on failure and records an error with its own name
 * and the shapes that came. NULL as an input tensor gives NULL and records nothing, so that the first error stays: an
 * expression needs one check, at its end; tt_backward(NULL) and tt_item(NULL) return the first error of the scope (with
 * none open: the thread's last error).
 *
 * Threads. The scopes a thread is in, and its first error, are its own. A tensor may be read from several threads,
 * written from one, and kept or freed by any.
 *
 * Misuse. A tensor that was freed, or whose scope ended, is recognised where it can be (TT_ERR_STATE): always under
 * TT_DEBUG=1, which keeps what was freed, and by the address sanitizer; else until its memory is used again. A second
 * free of any object, by its own function for freeing, is such an error under TT_DEBUG=1, too. Where tensors pile up
 * outside of scopes (5,000, or some with 1 GiB, not counting those that were kept, that require a gradient, or that
 * something holds: modules, optimizers, data sets) the log warns once. */
#ifndef TUTTI_TENSOR_H
#define TUTTI_TENSOR_H

#include <tutti/base.h>

TT_BEGIN_DECLS

typedef struct tt_tensor tt_tensor;
typedef struct tt_generator tt_generator;
typedef struct tt_device tt_device;
typedef struct tt_scope tt_scope;

#define TT_MAX_DIMS 8

/* ndim 0 is a scalar (one element). */
typedef struct tt_shape {
    int ndim;
    int64_t dim[TT_MAX_DIMS];
} tt_shape;

/* TT_SHAPE(20, 10); TT_SCALAR for no dimensions. More than TT_MAX_DIMS sizes do not compile. C only. */
#ifndef __cplusplus
#define TT_SHAPE(...) \
    ((tt_shape){.ndim = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), .dim = {__VA_ARGS__}})
#define TT_SCALAR ((tt_shape){.ndim = 0})
#endif

/* Dimensions that a call is about; negative ones count from the end. TT_DIMS(0, -1); none given: all. */
typedef struct tt_dims {
    int ndim;
    int dim[TT_MAX_DIMS];
} tt_dims;
#ifndef __cplusplus
#define TT_DIMS(...) ((tt_dims){.ndim = (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)), .dim = {__VA_ARGS__}})
#endif

/* Tensors with names. A list that Tutti gives is borrowed from its object, and NULL, with the error recorded, if
 * there is no memory for it; a NULL object gives NULL. Later versions may have more fields. */
typedef struct tt_named_tensors {
    size_t size; /* sizeof(tt_named_tensors) */
    int64_t count;
    const char *const *names;
    tt_tensor *const *tensors;
} tt_named_tensors;

/* The tensor called `name`, NULL if there is none (no error is recorded) or the list is NULL. */
TT_API tt_tensor *tt_named_tensors_find(const tt_named_tensors *list, const char *name);

/* A list of the program's own, which lives to the end of the enclosing block: TT_NAMED_TENSORS(2, names, tensors).
 * In C++ fill the struct. */
#ifndef __cplusplus
#define TT_NAMED_TENSORS(count_, names_, tensors_) \
    (&(const tt_named_tensors){sizeof(tt_named_tensors), (count_), (names_), (tensors_)})
#endif

/* ---- devices ---- */

/* "cpu" (the default: oneDNN and vector loops), "reference" (the same memory, plain loops: slow, to compare with), or
 * "cuda:0" and so on: NVIDIA GPUs, in CUDA's order, of which CUDA_VISIBLE_DEVICES chooses; "cuda" is the first, or what
 * tt_set_device() chose in this thread. The first one that is asked for loads libtutti-cuda.so. Lives as long as the
 * process. NULL: TT_ERR_NOT_FOUND for another name, or an index that CUDA has not; TT_ERR_UNSUPPORTED where CUDA can't
 * be used, which says what is missing. Thread-safe. PyTorch: torch.device(). */
TT_API const tt_device *tt_device_get(const char *name);

/* The device of a type by its index; errors as tt_device_get(). */
TT_API const tt_device *tt_device_of(tt_device_type type, int64_t index);
#define TT_CPU tt_device_of(TT_DEVICE_CPU, 0)
#define TT_CUDA(index) tt_device_of(TT_DEVICE_CUDA, (index))

/* Count the devices of a type: 1 of TT_DEVICE_CPU; of TT_DEVICE_CUDA 0, too, where there is no GPU, no driver, or no
 * libtutti-cuda.so. Never fails, and leaves no error. Until this process uses a CUDA device, a child process is asked,
 * so that children made by fork(), as tt_spawn()'s, can use CUDA. Thread-safe. PyTorch: torch.cuda.device_count(). */
TT_API int64_t tt_device_count(tt_device_type type);

/* Wait until all work that this process has given to the device is done. On the host nothing waits. TT_ERR_SYSTEM: work
 * that failed; TT_ERR_INVALID: indices out of range. Thread-safe. PyTorch: torch.cuda.synchronize(). */
TT_API TT_NODISCARD tt_status tt_device_synchronize(const tt_device *device);

/* The queue that the device's work is put on (cudaStream_t): the .stream of a group's call on its tensors' memory, and
 * for programs that enqueue work of their own. Borrowed; lives as long as the process. NULL: the host, or `device` is
 * NULL. Thread-safe. PyTorch: torch.cuda.current_stream(). */
TT_API void *tt_device_stream(const tt_device *device);

/* "cpu", "cuda:0"; "?" for NULL. */
TT_API const char *tt_device_name(const tt_device *device);

/* ---- scopes ---- */

/* Open a scope / end it, and with it every scope begun inside it. Ending a scope that is not open does nothing. The id
 * is what begin returned. What was recorded in a scope (autograd.h) is forgotten when it ends. */
TT_API int tt_scope_begin(void);
TT_API void tt_scope_end(int id);

/* A scope as an object, for what doesn't nest: a pipeline holds a graph for each batch under way, and ends the oldest
 * first. It is the caller's; NULL: no memory.
 * enter: what this thread makes from now on belongs to it, until leave, or until a scope is opened inside. One thread
 * at a time may be in it, at once: TT_ERR_STATE otherwise. leave: from anywhere in the thread's stack of scopes;
 * TT_ERR_STATE if this thread is not in it. A block scope that ends leaves those entered inside it.
 * free: ends it, with its tensors and records, from any thread, while no other thread is in it (else an error is
 * recorded and nothing happens). NULL is allowed. */
TT_API tt_scope *tt_scope_new(void);
TT_API TT_NODISCARD tt_status tt_scope_enter(tt_scope *scope);
TT_API TT_NODISCARD tt_status tt_scope_leave(tt_scope *scope);
TT_API void tt_scope_free(tt_scope *scope);

/* Opens a scope that ends when the enclosing block is left, in whatever way. gcc and clang. */
#if defined(__GNUC__) && !defined(__cplusplus)
/* What it runs at the block's end: tt_scope_end(*id). */
TT_API void tt_scope_cleanup(const int *id);
#define TT_AUTO_SCOPE __attribute__((cleanup(tt_scope_cleanup), unused)) const int tt_auto_scope_ = tt_scope_begin()
#endif

/* Take a tensor out of its scope: it is the caller's from now on, and is meant to stay. Returns it. A loader's batch
 * (data.h) becomes the caller's, too; a tensor that belongs to a module or a data set stays theirs. NULL gives NULL. */
TT_API tt_tensor *tt_keep(tt_tensor *x);

/* Free a tensor that the caller owns (its storage goes with the last tensor that uses it). NULL is allowed. A tensor
 * that belongs to a scope, a module or a data set must not be freed: that is recorded as an error and nothing
 * happens. */
TT_API void tt_tensor_free(tt_tensor *x);

/* ---- making ---- */

/* Uninitialised / zeros / ones / all `value` (converted to dtype). Errors: TT_ERR_SHAPE negative size or overflow,
 * TT_ERR_DTYPE for what is no element type, TT_ERR_INVALID a value that the integer type does not hold,
 * TT_ERR_MEMORY. */
TT_API tt_tensor *tt_empty(tt_shape shape, tt_dtype dtype);
TT_API tt_tensor *tt_zeros(tt_shape shape, tt_dtype dtype);
TT_API tt_tensor *tt_ones(tt_shape shape, tt_dtype dtype);
TT_API tt_tensor *tt_full(tt_shape shape, tt_dtype dtype, double value);

/* Uninitialised, of x's shape, dtype, device and order of memory. PyTorch: empty_like. */
TT_API tt_tensor *tt_empty_like(const tt_tensor *x);

/* The same with zeros / ones / all `value`. */
TT_API tt_tensor *tt_zeros_like(const tt_tensor *x);
TT_API tt_tensor *tt_ones_like(const tt_tensor *x);
TT_API tt_tensor *tt_full_like(const tt_tensor *x, double value);

/* 0, 1, ..., n-1 as i64. PyTorch: arange(n). */
TT_API tt_tensor *tt_arange(int64_t n);

/* start, start + step, ... before `end` (PyTorch: arange(start, end, step)) / `steps` numbers from start to end, both
 * included. Each is computed in double and rounded once, or converted to an integer as tt_to() does. TT_ERR_INVALID: a
 * step that leads away from `end`, or for integers one that is not whole. */
TT_API tt_tensor *tt_arange_from(double start, double end, double step, tt_dtype dtype);
TT_API tt_tensor *tt_linspace(double start, double end, int64_t steps, tt_dtype dtype);

/* (n, m): ones on the diagonal, else zeros. */
TT_API tt_tensor *tt_eye(int64_t n, int64_t m, tt_dtype dtype);

/* A copy of `data`, shape's elements of dtype, row-major. */
TT_API tt_tensor *tt_from_data(const void *data, tt_shape shape, tt_dtype dtype);

/* A tensor over memory of the caller's, which must outlive every tensor that uses it. PyTorch: from_blob. */
TT_API tt_tensor *tt_from_blob(void *data, tt_shape shape, tt_dtype dtype);
#ifndef __cplusplus
#define tt_from_data(data, shape, dtype) (tt_from_data)(TT_BUFFER(data), shape, dtype)
#define tt_from_blob(data, shape, dtype) (tt_from_blob)(TT_BUFFER(data), shape, dtype)
#endif

/* ---- looking ---- */

/* dtype, dimensions, size of dimension d (negative counts from the end; 0 outside), elements, shape, stride in
 * elements. For NULL: 0. */
TT_API tt_dtype tt_tensor_dtype(const tt_tensor *x);
TT_API int tt_tensor_dim(const tt_tensor *x);
TT_API int64_t tt_tensor_size(const tt_tensor *x, int d);
TT_API int64_t tt_tensor_stride(const tt_tensor *x, int d);
TT_API int64_t tt_tensor_numel(const tt_tensor *x);
TT_API tt_shape tt_tensor_shape(const tt_tensor *x);
TT_API bool tt_is_contiguous(const tt_tensor *x);

/* Where it lies. NULL for NULL. */
TT_API const tt_device *tt_tensor_device(const tt_tensor *x);

/* First element; for a contiguous tensor the numel elements in row-major order. NULL for NULL. Valid while x is. NULL
 * and TT_ERR_UNSUPPORTED if x lies on a device whose memory pointers don't reach. What is written through the pointer
 * is not seen by records (autograd.h): don't overwrite what backward still needs. */
TT_API void *tt_tensor_data(const tt_tensor *x);
TT_API float *tt_tensor_f32(const tt_tensor *x);   /* NULL and an error if x is not f32 */
TT_API int64_t *tt_tensor_i64(const tt_tensor *x); /* NULL and an error if x is not i64 */

/* The one element of x as a double. x NULL: the scope's first error. TT_ERR_SHAPE if x has not exactly one element. */
TT_API TT_NODISCARD tt_status tt_item(const tt_tensor *x, double *value);

/* "f32 (20, 10)" into `out` (at most `size` bytes with the NUL); returns out. For messages. */
TT_API const char *tt_tensor_describe(const tt_tensor *x, char *out, size_t size);

/* x with its elements as PyTorch prints it, "tensor([1., 2.])", into `out` (at most `size` bytes with the NUL; NULL
 * with 0: nowhere). Returns the length of the whole text without the NUL, as snprintf() does; 0, with an error, if the
 * elements can't be read, and for NULL. What an operator made is said to require a gradient, but not which operator. */
TT_API size_t tt_tensor_text(const tt_tensor *x, char *out, size_t size);

/* ---- views and copies: same elements; gradients are recorded for floats ---- */

/* Same storage, other shape; one size may be -1. view needs a layout that allows it (TT_ERR_SHAPE otherwise), reshape
 * copies if it must. */
TT_API tt_tensor *tt_view(tt_tensor *x, tt_shape shape);
TT_API tt_tensor *tt_reshape(tt_tensor *x, tt_shape shape);

/* (d0, ..., dk) -> dimensions from start_dim to the last one joined. PyTorch: flatten(x, start_dim). */
TT_API tt_tensor *tt_flatten(tt_tensor *x, int start_dim);

/* Dimensions a and b exchanged; a view. */
TT_API tt_tensor *tt_transpose(tt_tensor *x, int a, int b);

/* Dimensions in another order, TT_SHAPE(0, 2, 3, 1): number k of the result is dims.dim[k] of x, each once / one
 * dimension moved, the others in their order; views. */
TT_API tt_tensor *tt_permute(tt_tensor *x, tt_shape dims);
TT_API tt_tensor *tt_movedim(tt_tensor *x, int source, int destination);

/* x repeated to `shape`: along new dimensions, which come first, and along those of size 1; a size of -1 stays as it
 * is. A view, whose repeated elements are one place in memory: calls that would write to it fail. PyTorch: expand,
 * broadcast_to. */
TT_API tt_tensor *tt_expand(tt_tensor *x, tt_shape shape);

/* Without dimension `dim`, if its size is 1, else as it is / without all dimensions of size 1 / with a new one of size
 * 1 at place `dim` of the result; views. */
TT_API tt_tensor *tt_squeeze(tt_tensor *x, int dim);
TT_API tt_tensor *tt_squeeze_all(tt_tensor *x);
TT_API tt_tensor *tt_unsqueeze(tt_tensor *x, int dim);

/* `length` entries of dimension `dim` from `start`; a view. */
TT_API tt_tensor *tt_narrow(tt_tensor *x, int dim, int64_t start, int64_t length);

/* Entries start, start + step, ... before `end` of dimension `dim`; a view. As in x[start:end:step], negative places
 * count from the end and those outside are brought inside; INT64_MAX as `end` is the end. TT_ERR_INVALID a step below
 * 1. */
TT_API tt_tensor *tt_slice(tt_tensor *x, int dim, int64_t start, int64_t end, int64_t step);

/* Entry `index` (negative: from the end) of dimension `dim`, which the result lacks; a view. TT_ERR_INVALID outside. */
TT_API tt_tensor *tt_select(tt_tensor *x, int dim, int64_t index);

/* x cut along dimension `dim` into out[0..count-1], views that are owned as any new tensor: parts of split_size, the
 * last one smaller if it must / `chunks` parts of PyTorch's sizes / each entry, without the dimension. `out` is written
 * only when all are made.
 * Errors: TT_ERR_SHAPE, with the number that there would be, if it is not the one given; x NULL: as tt_item(). */
TT_API TT_NODISCARD tt_status tt_split(tt_tensor **out, int64_t count, tt_tensor *x, int64_t split_size, int dim);
TT_API TT_NODISCARD tt_status tt_chunk(tt_tensor **out, int64_t chunks, tt_tensor *x, int dim);
TT_API TT_NODISCARD tt_status tt_unbind(tt_tensor **out, int64_t count, tt_tensor *x, int dim);

/* x itself if contiguous (there is no second tensor to free then), else a contiguous copy. */
TT_API tt_tensor *tt_contiguous(tt_tensor *x);

/* x with its dimensions in another order of memory: contiguous (NCHW) or channels last (N, H, W, C in memory; 4
 * dimensions). x itself where it lies so already, and its strides say so: those of one channel, (N,1,H,W), need not.
 * PyTorch: to(memory_format=). */
typedef enum tt_memory_format { TT_CONTIGUOUS, TT_CHANNELS_LAST } tt_memory_format;
TT_API tt_tensor *tt_to_memory_format(tt_tensor *x, tt_memory_format format);

/* A copy, in x's order of memory / one converted to dtype / one on another device, or x itself if it is there.
 * Conversions of floats to integers cut; those out of range give the ends of the range, and NaN gives 0. Between
 * integers they wrap. */
TT_API tt_tensor *tt_clone(tt_tensor *x);
TT_API tt_tensor *tt_to(tt_tensor *x, tt_dtype dtype);
TT_API tt_tensor *tt_to_device(tt_tensor *x, const tt_device *device);

/* dst's elements := src's (same shape, same dtype, any devices), in place, not recorded. Both may be views of one
 * storage. Backward over a record that needs what stood in dst is an error (TT_ERR_STATE). TT_ERR_INVALID dst repeats
 * elements in memory (tt_expand()). NULL: as tt_item(). */
TT_API TT_NODISCARD tt_status tt_copy(tt_tensor *dst, const tt_tensor *src);

/* Equal dtype, shape and bits. */
TT_API bool tt_equal(const tt_tensor *a, const tt_tensor *b);

/* Index of the largest element along dim, as i64, the first of equals; NaN counts as largest. PyTorch: argmax(x,
 * dim). */
TT_API tt_tensor *tt_argmax(tt_tensor *x, int dim);

/* i64 x (...) in 0..num_classes-1 -> i64 (..., num_classes): 1 at x's place, else 0. TT_ERR_INVALID names the first
 * that is out of range. PyTorch: one_hot. */
TT_API tt_tensor *tt_one_hot(const tt_tensor *x, int64_t num_classes);

typedef struct tt_any_args {
    tt_tensor *x; /* required; any dtype */
    TT_OPTIONS;
    tt_dims dim;  /* what is reduced; none: all dimensions */
    bool keepdim; /* these stay, with size 1 */
    char tt_end;  /* not an option: see base.h */
} tt_any_args;

/* Is any / is each element along these dimensions not 0? Bools; of no elements: no / yes.
 *   tt_any(x)     tt_all(x, .dim = TT_DIMS(-1))
 * Errors: TT_ERR_SHAPE a dimension that x lacks, or that comes twice. */
TT_API tt_tensor *tt_any_with(const tt_any_args *args, size_t size);
TT_API tt_tensor *tt_all_with(const tt_any_args *args, size_t size);
#define TT_ANY_ARGS_INIT TT_ARGS_INIT
#ifndef __cplusplus
#define tt_any(...) tt_any_with(TT_ARGS(tt_any_args, .x = __VA_ARGS__))
#define tt_all(...) tt_all_with(TT_ARGS(tt_any_args, .x = __VA_ARGS__))
#endif

/* ---- comparisons, element by element, with PyTorch's broadcasting; bools ---- */

/* a == b, a != b, a < b. Both of one dtype, whatever it is, on one device (TT_ERR_DTYPE, TT_ERR_INVALID). */
TT_API tt_tensor *tt_eq(tt_tensor *a, tt_tensor *b);
TT_API tt_tensor *tt_ne(tt_tensor *a, tt_tensor *b);
TT_API tt_tensor *tt_lt(tt_tensor *a, tt_tensor *b);

/* a <= b, a > b, a >= b; errors as above. */
TT_API tt_tensor *tt_le(tt_tensor *a, tt_tensor *b);
TT_API tt_tensor *tt_gt(tt_tensor *a, tt_tensor *b);
TT_API tt_tensor *tt_ge(tt_tensor *a, tt_tensor *b);

/* x == number, x != number, x < number. TT_ERR_INVALID a number that x's integer type does not hold. */
TT_API tt_tensor *tt_eq_scalar(tt_tensor *x, double number);
TT_API tt_tensor *tt_ne_scalar(tt_tensor *x, double number);
TT_API tt_tensor *tt_lt_scalar(tt_tensor *x, double number);

/* x <= number, x > number, x >= number; errors as above. */
TT_API tt_tensor *tt_le_scalar(tt_tensor *x, double number);
TT_API tt_tensor *tt_gt_scalar(tt_tensor *x, double number);
TT_API tt_tensor *tt_ge_scalar(tt_tensor *x, double number);

/* ---- threads ---- */

/* How many threads one operator of this process may use, oneDNN's included; 0 = the default: OMP_NUM_THREADS, or else
 * the CPUs this process may use; CPUs that other ranks of its group on the same host may use, too, are divided among
 * them. Our own kernels give the same bits for any number. TT_ERR_INVALID below 0. OpenMP's threads don't survive a
 * fork: in a forked child it is 1, and more is TT_ERR_STATE; children of tt_spawn() (spawn.h) may have more. Where
 * threads can't be started (ulimit -u) it becomes 1, with a warning in the log (tt_set_log()). Signals go to the
 * program's own threads, and to those that compute only between products and convolutions. PyTorch:
 * torch.set_num_threads. Thread-safe. */
TT_API TT_NODISCARD tt_status tt_set_num_threads(int threads);

/* How many threads an operator may use now. PyTorch: torch.get_num_threads. Thread-safe. */
TT_API int tt_get_num_threads(void);

/* ---- random numbers: PyTorch's CPU generator (mt19937), the same bits for the same seed as torch on an AVX2 machine
 * ---- */

/* The thread's default generator. Without a seed it starts from the operating system's entropy. */
TT_API tt_generator *tt_default_generator(void);

/* Seed the thread's default generator. PyTorch: torch.manual_seed. */
TT_API void tt_manual_seed(uint64_t seed);

/* A generator of one's own, for one thread at a time; the caller's to free. NULL: no memory. */
TT_API tt_generator *tt_generator_new(uint64_t seed);

/* NULL is allowed. */
TT_API void tt_generator_free(tt_generator *generator);

/* Start again from a seed; NULL: the thread's default generator. PyTorch: Generator.manual_seed. */
TT_API void tt_generator_seed(tt_generator *generator, uint64_t seed);

/* The next raw output, of 32 bits / of 64, which is two of 32. NULL: of the thread's default generator. */
TT_API uint32_t tt_generator_random(tt_generator *generator);
TT_API uint64_t tt_generator_random64(tt_generator *generator);

/* A generator's state as a new tensor (i64, of a length that only this library has) / set it: the generator goes on as
 * the one did that the state was taken from. NULL is the thread's default generator. TT_ERR_DTYPE, TT_ERR_SHAPE,
 * TT_ERR_INVALID: not such a state; then nothing has changed. PyTorch: Generator.get_state, set_state, whose layout is
 * another. */
TT_API tt_tensor *tt_generator_get_state(tt_generator *generator);
TT_API TT_NODISCARD tt_status tt_generator_set_state(tt_generator *generator, const tt_tensor *state);

/* Fill x (f32 or f64) in place with numbers from [low, high), all equally likely. `generator` NULL: the thread's
 * default one. Not recorded. PyTorch: Tensor.uniform_.
 * Errors: TT_ERR_DTYPE another type; TT_ERR_INVALID low > high, a difference that the type doesn't hold, or x repeats
 * elements in memory; TT_ERR_MEMORY on a device other than the host; x NULL: as tt_item(). */
TT_API TT_NODISCARD tt_status tt_uniform_(tt_tensor *x, double low, double high, tt_generator *generator);

/* Fill x (f32 or f64) in place with normally distributed numbers of this mean and standard deviation. `generator` and
 * errors as for tt_uniform_(); TT_ERR_INVALID std below 0. PyTorch: Tensor.normal_. */
TT_API TT_NODISCARD tt_status tt_normal_(tt_tensor *x, double mean, double std, tt_generator *generator);

/* f32 of uniform [0,1) / standard normal. PyTorch: rand, randn. */
TT_API tt_tensor *tt_rand(tt_shape shape, tt_generator *generator);
TT_API tt_tensor *tt_randn(tt_shape shape, tt_generator *generator);

/* i64 in [low, high). PyTorch: randint. */
TT_API tt_tensor *tt_randint(int64_t low, int64_t high, tt_shape shape, tt_generator *generator);

/* A permutation of 0..n-1 into `out` (n). PyTorch: randperm. */
TT_API void tt_randperm(int64_t *out, int64_t n, tt_generator *generator);

TT_END_DECLS
#endif
