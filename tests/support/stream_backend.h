/* A back end for tests, with a device of its own: memory whose addresses the host can't access, and streams that run
 * their work in order, beside the host. It is a shared object, $TT_BUILD/tests/support/libstream.so, loaded by
 * tt_init_process_group() as any plug-in; tests find these functions in it by dlsym().
 *
 * It sums f32, f64 and i64 on the host and on the device, no more, by the back end "star" of examples/backend_plugin.
 * STREAM_ONLY=1: it takes the device's memory alone. */
#ifndef TESTS_SUPPORT_STREAM_BACKEND_H
#define TESTS_SUPPORT_STREAM_BACKEND_H

#include <stdbool.h>
#include <stddef.h>

typedef struct lane lane; /* what a program passes as .stream */

/* What the back end was asked for last. */
typedef struct seen_call {
    int op, device, device_index, calls;
    void *stream;
    const void *send;
} seen_call;

typedef struct stream_device {
    /* Memory of the device; reading or writing it ends the process. Copies are the host's and wait for no stream. */
    void *(*alloc)(size_t bytes);
    void (*to_device)(void *to, const void *host, size_t bytes);
    void (*to_host)(void *host, const void *from, size_t bytes);

    /* Make a stream; let it call fn(arg) after its earlier work; has it done all its work? */
    lane *(*lane_new)(void);
    void (*put)(lane *on, void (*fn)(void *arg), void *arg);
    bool (*is_empty)(lane *of);

    seen_call (*seen)(void);
} stream_device;

typedef const stream_device *stream_device_fn(void); /* "stream_device_functions" */

#endif
