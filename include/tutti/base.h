/* tutti/base.h: what every layer shares: calls with options, status codes, the thread's last error, log, element types.
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
 * The place that receives a result, `out`, is the first argument. A call that makes an object which talks to others
 * (groups, stores, works, reducers) returns a status and stores the object in `out`, or NULL after a failure. An object
 * of this process alone is returned, or NULL after a failure.
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

/* A field after the required arguments of an args struct. A value without a name would be meant for this field and not
 * compile, so options can only be given by name. It is no option: it stays NULL. */
#define TT_OPTIONS const struct tt_an_option_needs_its_name *tt_options

/* Zeros for any args struct. Each has a TT_X_ARGS_INIT, which is this. */
#ifdef __cplusplus
#define TT_ARGS_INIT \
    {}
#else
#define TT_ARGS_INIT \
    { 0 }
#endif

/* What a macro passes to its function. Every args struct ends in `char tt_end`. Setting it after the caller's options
 * keeps gcc's -Wextra from warning of those left out, and its offset is the end of the options, without padding. */
#ifndef __cplusplus
#define TT_ARGS(type, ...) &(type){__VA_ARGS__, .tt_end = 0}, offsetof(type, tt_end)

/* TT_ARGS() for calls whose place errors and reports name. */
#define TT_CALL(type, ...) &(type){__VA_ARGS__, .file = __FILE__, .line = __LINE__, .tt_end = 0}, offsetof(type, tt_end)
#endif

/* Macros pass raw buffers through TT_BUFFER, which gives the pointer itself. A pointer to a tensor is a mistake: the
 * call would read or overwrite the struct. For it TT_BUFFER gives another struct, whose name the compiler prints. Use
 * tt_tensor_data(), which gives a tensor's elements, or the collectives on tensors in tutti/parallel.h. TT_BUFFERS: the
 * same for lists of buffers. */
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

/* The address at which a macro's call stores its result, a `type`. An address of another type does not compile, which
 * finds arguments in a wrong order. */
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

/* The compiler warns if a returned status is not used (TT_NODISCARD). This call says that a failure doesn't matter. */
static inline void tt_ignore(tt_status status) { (void)status; }

/* Return a status's name, "TT_ERR_TIMEOUT", and its text of one line. Never NULL: an unknown number gives "TT_ERR_?"
 * and "unknown status". Thread-safe. */
TT_API const char *tt_status_name(tt_status status);
TT_API const char *tt_status_text(tt_status status);

/* Return the calling thread's last error: its status (TT_OK if none) and full text ("" if none). The text is UTF-8, and
 * has no control characters except line ends and tabs, whatever it quotes. It is valid until the thread's next failing
 * call. Successful calls don't change it. */
TT_API tt_status tt_last_status(void);
TT_API const char *tt_last_error(void);

/* Forget the calling thread's last error. */
TT_API void tt_clear_error(void);

/* Record an error of the program's own as the thread's last one and return `status`. For functions that Tutti calls (a
 * data set's get, a hook): the caller adds where it happened.
 *   return tt_fail(TT_ERR_IO, "can't open %s", path);
 * `status` is not TT_OK. The text says what was expected and what came; of a text above 2 KB the beginning and the end
 * are kept. */
TT_API TT_NODISCARD tt_status tt_fail(tt_status status, const char *format, ...) TT_PRINTF(2, 3);

/* Print the thread's last error on stderr, in one line, "tutti: [rank R: ]STATUS: text"; nothing if there is none. Also
 * write it, as JSON like torchelastic's, to the file that TORCHELASTIC_ERROR_FILE names, so that the launcher can show
 * it; a report there is kept unless this error tells more about why the process ends. An error that every rank finds by
 * itself before the ranks meet, as a missing job secret, is printed by rank 0 alone. Apart from log lines that TT_LOG
 * asks for, this is the only function of the library that prints. */
TT_API void tt_report(void);

/* How much a log line matters, in rising order. */
typedef enum tt_log_level { TT_LOG_DEBUG, TT_LOG_INFO, TT_LOG_WARNING } tt_log_level;

/* A function that takes a log line, without its line end. */
typedef void (*tt_log_fn)(tt_log_level level, const char *line, void *user);

/* Send log lines to `write` (NULL, the default: nowhere), which gets `user` and may be called from any thread. Call
 * this before any other function: it is not synchronised with running calls. In any case, if the environment variable
 * TT_LOG names a level (debug, info, warning; read with the first line), lines of that level and above go to stderr,
 * with the time and the rank. */
TT_API void tt_set_log(tt_log_fn write, void *user);

/* Element types. Names are PyTorch's in short form. A bool is one byte, 0 or 1. */
typedef enum tt_dtype { TT_F32, TT_F64, TT_I32, TT_I64, TT_U8, TT_F16, TT_BF16, TT_I8, TT_I16, TT_BOOL } tt_dtype;

/* Return the bytes of one element, and the type's name, "f32"; 0 and "?" for a value outside the enum. Thread-safe. */
TT_API size_t tt_dtype_size(tt_dtype dtype);
TT_API const char *tt_dtype_name(tt_dtype dtype);

/* Whose memory it is: the host's, or a device's, which the host can't access by pointers. PyTorch: torch.device's
 * type. */
typedef enum tt_device_type { TT_DEVICE_CPU, TT_DEVICE_CUDA } tt_device_type;

/* Return the type's name, "cpu"; "?" for a value outside the enum. Thread-safe. */
TT_API const char *tt_device_type_name(tt_device_type type);

/* Return the version of the library at run time, "0.1.0". */
TT_API const char *tt_version(void);

/* Default of every timeout: 30 minutes, as torch.distributed's. */
#define TT_DEFAULT_TIMEOUT_MS INT64_C(1800000)

TT_END_DECLS
#endif
