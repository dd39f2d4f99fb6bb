/* oneDNN's library, loaded by the first call that needs it: that takes 2 ms, twice as long as a process takes to start
 * without it, and many never multiply a matrix. */
#ifndef TT_TENSOR_CPU_ONEDNN_LOAD_H
#define TT_TENSOR_CPU_ONEDNN_LOAD_H

#include <tutti/base.h>

#include <dnnl.h>

/* The functions that are used. Types and constants come from its header. */
#define TT__ONEDNN_FUNCTIONS(X) X(dnnl_sgemm)

typedef struct tt__onednn {
#define TT__ONEDNN_FIELD(name) __typeof__(name) *name;
    TT__ONEDNN_FUNCTIONS(TT__ONEDNN_FIELD)
#undef TT__ONEDNN_FIELD
} tt__onednn;

/* Return its functions; NULL and TT_ERR_UNSUPPORTED where there is no oneDNN of the version that Tutti was built for.
 * Cheap once it is loaded. Thread-safe. */
const tt__onednn *tt__onednn_get(void);

#endif
