/* libzip, loaded by the first archive that is read: it brings libraries of its own, which a process that has
 * no archives need not wait for. */
#ifndef TT_ZIP_ZIP_LOAD_H
#define TT_ZIP_ZIP_LOAD_H

#include <tutti/base.h>

#include <zip.h>

/* The functions that are used. Types and constants come from its header. */
#define TT__ZIP_FUNCTIONS(X)    \
    X(zip_discard)              \
    X(zip_error_code_zip)       \
    X(zip_error_fini)           \
    X(zip_error_init)           \
    X(zip_error_set)            \
    X(zip_error_strerror)       \
    X(zip_fclose)               \
    X(zip_file_get_error)       \
    X(zip_fopen_index)          \
    X(zip_fread)                \
    X(zip_get_error)            \
    X(zip_get_num_entries)      \
    X(zip_open_from_source)     \
    X(zip_source_buffer_create) \
    X(zip_source_filep_create)  \
    X(zip_source_free)          \
    X(zip_stat_index)           \
    X(zip_stat_init)

typedef struct tt__zip {
#define TT__ZIP_FIELD(name) __typeof__(name) *name;
    TT__ZIP_FUNCTIONS(TT__ZIP_FIELD)
#undef TT__ZIP_FIELD
} tt__zip;

/* Return its functions; NULL and TT_ERR_UNSUPPORTED where there is no libzip. Cheap once it is loaded. Thread-safe. */
const tt__zip *tt__zip_get(void);

#endif
