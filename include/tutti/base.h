/* tutti/base.h: what every layer shares: export macro, status codes, the thread's last error, log, element types.
 *
 * Errors. A function that can fail returns `tt_status`, TT_OK (zero) for success. A failing call also leaves a text in
 * its thread ("last error"): what was expected, what came, on which rank, what to do. The library never exits, aborts
 * or prints; tt_report() is the one call that prints, and only when the program calls it (log lines: see tt_set_log()).
 *
 * Arguments. A function with options is a macro `tt_x` over a function `tt_x_with(const tt_x_args *args, size_t size)`.
 * The macro takes the required arguments by position: a call that leaves one out doesn't compile. Options follow as
 * `.name = value`; one that is left out is zero, and zero is its default. A list written in place needs parentheses of
 * its own, `((int[]){0, 1})`, as in every macro.
 *
 * Elsewhere (C++, other languages, a debugger) call `tt_x_with` itself: begin with TT_X_ARGS_INIT (all zeros), fill the
 * struct, and pass offsetof(tt_x_args, tt_end) as `size`. It tells the library which version of the struct the caller
 * has. `args` NULL stands for a struct of zeros. tutti.hpp wraps all this for C++17.
 *
 * What receives a result, `out`, is the first argument. What talks to others (groups, stores, works, reducers) is given
 * by `out`, which is NULL after a failure, and the call returns a status; what is made in this process alone is
 * returned, and is NULL after a failure.
 *
 * Counts, sizes and indices of elements are int64_t, and a negative one is TT_ERR_INVALID; numbers of bytes are size_t;
 * ranks are int. */
#ifndef TUTTI_BASE_H
#define TUTTI_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define TT_EXTERN extern "C"
#define TT_BEGIN_DECLS extern "C" {
#define TT_END_DECLS }
#else
#define TT_EXTERN extern
#define TT_BEGIN_DECLS
#define TT_END_DECLS
#endif

#if defined(__GNUC__)
#define TT_API __attribute__((visibility("default")))
#define TT_PRINTF(text, args) __attribute__((format(printf, text, args)))
#define TT_NODISCARD __attribute__((warn_unused_result))
#else
#define TT_API
#define TT_PRINTF(text, args)
#define TT_NODISCARD
#endif

#define TT_VERSION_MAJOR 0
#define TT_VERSION_MINOR 1
#define TT_VERSION_PATCH 0

/* In an args struct, behind the required arguments. A value by position would land here and not compile, so options can
 * only be given by name. Not an option itself: it stays NULL. */
#define TT_OPTIONS const struct tt_an_option_needs_its_name *tt_options

/* Zeros for any args struct: each has TT_X_ARGS_INIT, which is this. */
#ifdef __cplusplus
#define TT_ARGS_INIT \
    {}
#else
#define TT_ARGS_INIT \
    { 0 }
#endif

/* What a macro passes to its function. Every args struct ends in `char tt_end`: a designated field after the caller's
 * keeps gcc's -Wextra from warning of those left out, and marks where the options end, before any padding. */
#ifndef __cplusplus
#define TT_ARGS(type, ...) &(type){__VA_ARGS__, .tt_end = 0}, offsetof(type, tt_end)

/* The same where errors and reports name the place of the call. */
#define TT_CALL(type, ...) &(type){__VA_ARGS__, .file = __FILE__, .line = __LINE__, .tt_end = 0}, offsetof(type, tt_end)
#endif

/* Macros pass raw buffers through TT_BUFFER. It gives the pointer itself; for a pointer to a tensor, whose struct a
 * call would read or overwrite, it gives a struct instead, whose name is what the compiler then prints:
 * tt_tensor_data() gives a tensor's elements, and tutti/parallel.h has collectives on tensors. TT_BUFFERS: the same for
 * lists of buffers. */
#ifndef __cplusplus
struct tt_tensor;
struct tt_a_tensor_is_no_buffer_see_parallel_h {
    int unused;
};
#define TT_BUFFER(buffer) \
    _Generic((buffer),                                                                    \
        struct tt_tensor *: (struct tt_a_tensor_is_no_buffer_see_parallel_h){0},          \
        const struct tt_tensor *: (struct tt_a_tensor_is_no_buffer_see_parallel_h){0},    \
        default: (buffer))
#define TT_BUFFERS(buffers) \
    _Generic((buffers),                                                                   \
        struct tt_tensor **: (struct tt_a_tensor_is_no_buffer_see_parallel_h){0},         \
        struct tt_tensor *const *: (struct tt_a_tensor_is_no_buffer_see_parallel_h){0},   \
        default: (buffers))

/* The address at which a macro's call stores its result, a `type`. An address of another type does not compile: the
 * arguments are in a wrong order. */
#define TT_PLACE(type, place) _Generic((place), type * : (place), void * : (place))
#endif

TT_BEGIN_DECLS

/* Every status: name, one line of text. */
#define TT_STATUS_LIST(X)                                                                \
    X(OK, "success")                                                                     \
    X(ERR_INVALID, "an argument, flag or environment variable is not what was expected") \
    X(ERR_SHAPE, "shapes do not fit together")                                           \
    X(ERR_DTYPE, "element types do not fit together")                                    \
    X(ERR_MEMORY, "out of memory")                                                       \
    X(ERR_IO, "a file could not be read or written")                                     \
    X(ERR_NET, "a network operation failed")                                             \
    X(ERR_FORMAT, "a file is not in the expected format")                                \
    X(ERR_PROTOCOL, "a peer broke the protocol")                                         \
    X(ERR_NOT_FOUND, "no such thing")                                                    \
    X(ERR_TIMEOUT, "a deadline passed")                                                  \
    X(ERR_PEER, "another rank died, froze or left")                                      \
    X(ERR_MISMATCH, "ranks made different calls")                                        \
    X(ERR_STATE, "the call is not allowed in this state")                                \
    X(ERR_UNSUPPORTED, "not supported here")                                             \
    X(ERR_SYSTEM, "the operating system refused")                                        \
    X(ERR_ABORTED, "the group was aborted")                                              \
    X(ERR_AUTH, "a peer did not prove that it belongs to the job")                       \
    X(ERR_NAN, "a result is not a number")                                               \
    X(ERR_PROCESS, "a started process failed")                                           \
    X(ERR_EXISTS, "the name is taken")

typedef enum tt_status {
#define TT_STATUS_ENUM(name, text) TT_##name,
    TT_STATUS_LIST(TT_STATUS_ENUM)
#undef TT_STATUS_ENUM
} tt_status;

/* Every function that returns a status warns where its result is not used (TT_NODISCARD). This says that a failure
 * doesn't matter here. */
static inline void tt_ignore(tt_status status) { (void)status; }

/* "TT_ERR_TIMEOUT" and the one-line text of a status. Never NULL; an unknown number gives "TT_ERR_?". Thread-safe. */
TT_API const char *tt_status_name(tt_status status);
TT_API const char *tt_status_text(tt_status status);

/* The calling thread's last error: its status (TT_OK if none) and full text ("" if none), in UTF-8, without control
 * characters but line ends and tabs, whatever it quotes. The text is valid until the thread's next failing call.
 * Successful calls leave it alone. */
TT_API tt_status tt_last_status(void);
TT_API const char *tt_last_error(void);

/* Forget the calling thread's last error. */
TT_API void tt_clear_error(void);

/* Record an error of the program's own as the thread's last one and return `status`: for functions that Tutti calls (a
 * data set's get, a hook), whose caller adds where it happened. `status` is not TT_OK; the text says what was expected
 * and what came: return tt_fail(TT_ERR_IO, "can't open %s", path); Of texts above 2 KB the beginning and the end are
 * kept. */
TT_API TT_NODISCARD tt_status tt_fail(tt_status status, const char *format, ...) TT_PRINTF(2, 3);

/* Print the thread's last error on stderr, one line, "tutti: [rank R: ]STATUS: text" (nothing if there is none), and,
 * when TORCHELASTIC_ERROR_FILE is set and no report stands there yet, leave it there in torchelastic's JSON form, so
 * that the launcher can show it. What all ranks find alike before they could meet, as that several hosts have no job
 * secret, is printed by rank 0 alone. The only function of the library that prints, but for log lines that TT_LOG asks
 * for. */
TT_API void tt_report(void);

/* How much a log line matters, in rising order. */
typedef enum tt_log_level { TT_LOG_DEBUG, TT_LOG_INFO, TT_LOG_WARNING } tt_log_level;

/* Takes a log line, without its line end. */
typedef void (*tt_log_fn)(tt_log_level level, const char *line, void *user);

/* Log lines go to `write` (NULL: nowhere, the default), which may be called from any thread; `user` is handed back.
 * Set it before the first other call; it is not synchronised with running ones.
 * Whatever the program does with them, the environment variable TT_LOG (debug, info, warning; read with the first line)
 * writes lines from that level on to stderr, with the time and the rank. */
TT_API void tt_set_log(tt_log_fn write, void *user);

/* Element types. Names are PyTorch's in short form. A bool is one byte, 0 or 1. */
typedef enum tt_dtype { TT_F32, TT_F64, TT_I32, TT_I64, TT_U8, TT_F16, TT_BF16, TT_I8, TT_I16, TT_BOOL } tt_dtype;

/* Bytes of one element and "f32"; 0 and "?" for a value outside the enum. Thread-safe. */
TT_API size_t tt_dtype_size(tt_dtype dtype);
TT_API const char *tt_dtype_name(tt_dtype dtype);

/* Where memory lies: the host's, or a device's, which plain pointers don't reach. PyTorch: torch.device's type. */
typedef enum tt_device_type { TT_DEVICE_CPU, TT_DEVICE_CUDA } tt_device_type;

/* "cpu"; "?" for a value outside the enum. Thread-safe. */
TT_API const char *tt_device_type_name(tt_device_type type);

/* "0.1.0", the version of the library at run time. */
TT_API const char *tt_version(void);

/* Default of every timeout: 30 minutes, as torch.distributed's. */
#define TT_DEFAULT_TIMEOUT_MS INT64_C(1800000)

TT_END_DECLS
#endif
