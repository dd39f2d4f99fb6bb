/* tutti/base.h: what every layer shares: export macro, status codes, the thread's last error, log, element types.
 *
 * Errors. A function that can fail returns `tt_status`, TT_OK (zero) for success. A failing call also leaves a text in
 * its thread ("last error"): what was expected, what came, on which rank, what to do. The library never exits, aborts or
 * prints; tt_report() is the one call that prints, and only when the program calls it (log lines: see tt_set_log()).
 *
 * Options. A function with optional arguments is a macro over a function `NAME_with(const NAME_args *args, size_t size)`;
 * the macro's arguments initialise the struct: the required ones first, by position, then `.name = value` for any option.
 * A field left out is zero, and zero is its default. `size` is that of the caller's version of the struct without its last field, so that later
 * ones can have more. In C++ the macros don't exist: zero the struct, fill it, and pass offsetof(NAME_args, tt_end). */
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
#else
#define TT_API
#define TT_PRINTF(text, args)
#endif

#define TT_VERSION_MAJOR 0
#define TT_VERSION_MINOR 1
#define TT_VERSION_PATCH 0

/* What a macro with options passes to its function. Every options struct ends in `char tt_end`: a designated field after the caller's keeps
 * gcc -Wextra from warning of those left out, and marks where the options end, before any padding. */
#ifndef __cplusplus
#define TT_ARGS(type, ...) &(type){__VA_ARGS__, .tt_end = 0}, offsetof(type, tt_end)
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
    X(ERR_AUTH, "a peer did not prove that it belongs to the job")

typedef enum tt_status {
#define TT_STATUS_ENUM(name, text) TT_##name,
    TT_STATUS_LIST(TT_STATUS_ENUM)
#undef TT_STATUS_ENUM
} tt_status;

/* "TT_ERR_TIMEOUT" and the one-line text of a status. Never NULL; an unknown number gives "TT_ERR_?". Thread-safe. */
TT_API const char *tt_status_name(tt_status status);
TT_API const char *tt_status_text(tt_status status);

/* The calling thread's last error: its status (TT_OK if none) and full text ("" if none). The text is valid until the
 * thread's next failing call. Successful calls leave it alone. */
TT_API tt_status tt_last_status(void);
TT_API const char *tt_last_error(void);
TT_API void tt_clear_error(void);

/* Print the thread's last error on stderr, one line, "tutti: [rank R: ]STATUS: text" (nothing if there is none), and, when
 * TORCHELASTIC_ERROR_FILE is set and no report stands there yet, leave it there in torchelastic's JSON form, so that the
 * launcher can show it. The only function of the library that prints, but for log lines that TT_LOG asks for. */
TT_API void tt_report(void);

/* Log lines go to `write` (NULL: nowhere, the default), which may be called from any thread; `user` is handed back.
 * Set it before the first other call; it is not synchronised with running ones.
 * Whatever the program does with them, the environment variable TT_LOG (debug, info, warning; read with the first line)
 * writes lines from that level on to stderr, with the time and the rank. */
typedef enum tt_log_level { TT_LOG_DEBUG, TT_LOG_INFO, TT_LOG_WARNING } tt_log_level;
typedef void (*tt_log_fn)(tt_log_level level, const char *line, void *user);
TT_API void tt_set_log(tt_log_fn write, void *user);

/* Element types. Names are PyTorch's in short form. A bool is one byte, 0 or 1. Tensors know the first five, collectives all. */
typedef enum tt_dtype { TT_F32, TT_F64, TT_I32, TT_I64, TT_U8, TT_F16, TT_BF16, TT_I8, TT_I16, TT_BOOL } tt_dtype;

/* Bytes of one element and "f32"; 0 and "?" for a value outside the enum. Thread-safe. */
TT_API size_t tt_dtype_size(tt_dtype dtype);
TT_API const char *tt_dtype_name(tt_dtype dtype);

/* "0.1.0", the version of the library at run time. */
TT_API const char *tt_version(void);

/* Default of every timeout: 30 minutes, as torch.distributed's. */
#define TT_DEFAULT_TIMEOUT_MS INT64_C(1800000)

TT_END_DECLS
#endif
