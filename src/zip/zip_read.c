#include "zip/zip.h"

#include "base/error.h"
#include "base/files/fd.h"
#include "base/text/plain_text.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
#include <zip.h>

/* ---- libzip */

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

struct tt__zip {
#define TT__ZIP_FIELD(name) __typeof__(name) *name;
    TT__ZIP_FUNCTIONS(TT__ZIP_FIELD)
#undef TT__ZIP_FIELD
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static tt__zip functions;
static char why_not_zip[512]; /* "": it is there */

static void load_zip(void) {
    void *library = dlopen(TT__LIBZIP, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
#define FIND(name) (*(void **)&functions.name = dlsym(library, #name)) &&
    if (library && TT__ZIP_FUNCTIONS(FIND) true)
        return;
#undef FIND
    const char *why = dlerror();
    snprintf(why_not_zip, sizeof why_not_zip, "%s", why ? why : "no reason given");
}

const tt__zip *tt__zip_get(void) {
    pthread_once(&once, load_zip);
    if (*why_not_zip)
        return tt__fail_null(
            TT_ERR_UNSUPPORTED,
            "zip archives (.pt, .npz) need libzip, which can't be loaded: %s. Tutti was built for " TT__LIBZIP,
            why_not_zip);
    return &functions;
}

/* ---- archives */

static tt_status status_of_zip(int code) {
    return code == ZIP_ER_MEMORY                        ? TT_ERR_MEMORY
           : code == ZIP_ER_READ || code == ZIP_ER_SEEK ? TT_ERR_IO
                                                        : TT_ERR_FORMAT;
}

/* Record libzip's error of an archive. Releases `error`. */
static tt_status fail_zip(const char *name, const tt__zip *lib, zip_error_t *error) {
    int code = lib->zip_error_code_zip(error);
    tt_status status = tt__fail(status_of_zip(code), "%s: not a whole zip archive (cut short?): %s", name,
                                code == ZIP_ER_EXISTS ? "a record comes twice" : lib->zip_error_strerror(error));
    lib->zip_error_fini(error);
    return status;
}

static zip_source_t *open_source(const tt__zip *lib, const void *data, int fd, uint64_t size, zip_error_t *error) {
    if (data)
        return lib->zip_source_buffer_create(data, size, 0, error);
    int copy = tt__fd(fcntl(fd, F_DUPFD_CLOEXEC, 3));
    FILE *file = copy >= 0 ? fdopen(copy, "rb") : NULL;
    zip_source_t *source = file ? lib->zip_source_filep_create(file, 0, -1, error) : NULL;
    if (!file)
        lib->zip_error_set(error, ZIP_ER_MEMORY, 0);
    if (!source && file)
        fclose(file);
    else if (!file && copy >= 0)
        close(copy);
    return source;
}

static tt_status open_zip(tt__zip_reader *reader, const void *data, int fd, uint64_t size) {
    zip_error_t error;
    reader->lib->zip_error_init(&error);
    zip_source_t *source = open_source(reader->lib, data, fd, size, &error);
    if (source)
        reader->zip = reader->lib->zip_open_from_source(source, ZIP_RDONLY | ZIP_CHECKCONS, &error);
    if (source && !reader->zip)
        reader->lib->zip_source_free(source);
    if (!reader->zip)
        return fail_zip(reader->name, reader->lib, &error);
    reader->lib->zip_error_fini(&error);
    return TT_OK;
}

tt_status tt__zip_open(tt__zip_reader *reader, const char *name, const void *data, int fd, uint64_t size) {
    *reader = (tt__zip_reader){.name = name, .lib = tt__zip_get()};
    if (!reader->lib)
        return tt__fail_prefix("%s", name);
    TT__TRY(open_zip(reader, data, fd, size));
    zip_int64_t count = reader->lib->zip_get_num_entries(reader->zip, 0);
    if (count <= 0) {
        tt__zip_close(reader);
        return tt__fail(TT_ERR_FORMAT, "%s: a zip archive without records", name);
    }
    reader->count = (uint64_t)count;
    return TT_OK;
}

void tt__zip_close(tt__zip_reader *reader) {
    if (reader->zip)
        reader->lib->zip_discard(reader->zip);
    *reader = (tt__zip_reader){0};
}

tt_status tt__zip_look(const tt__zip_reader *reader, uint64_t index, tt__zip_record *record) {
    static const zip_uint64_t needed =
        ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
    zip_stat_t stat;
    reader->lib->zip_stat_init(&stat);
    if (reader->lib->zip_stat_index(reader->zip, index, ZIP_FL_ENC_RAW, &stat) || (stat.valid & needed) != needed)
        return tt__fail(TT_ERR_FORMAT, "%s: record %llu of the archive is damaged", reader->name,
                        (unsigned long long)index);
    bool plain = stat.encryption_method == ZIP_EM_NONE;
    *record = (tt__zip_record){.name = stat.name,
                               .size = stat.size,
                               .packed_size = stat.comp_size,
                               .stored = plain && stat.comp_method == ZIP_CM_STORE && stat.size == stat.comp_size,
                               .deflated = plain && stat.comp_method == ZIP_CM_DEFLATE};
    return TT_OK;
}

/* ---- records */

static tt_status fail_record(const tt__zip_stream *stream) {
    const tt__zip_reader *r = stream->reader;
    zip_error_t *why = stream->file ? r->lib->zip_file_get_error(stream->file) : r->lib->zip_get_error(r->zip);
    int code = r->lib->zip_error_code_zip(why);
    return tt__fail(status_of_zip(code), "%s: record \"%s\": %s", r->name, tt__make_printable(stream->record).text,
                    code ? r->lib->zip_error_strerror(why) : "it ends too early");
}

tt_status tt__zip_stream_open(tt__zip_stream *stream, const tt__zip_reader *reader, uint64_t index,
                              const char *record) {
    *stream = (tt__zip_stream){.reader = reader, .record = record};
    stream->file = reader->lib->zip_fopen_index(reader->zip, index, 0);
    return stream->file ? TT_OK : fail_record(stream);
}

tt_status tt__zip_stream_read(tt__zip_stream *stream, void *to, uint64_t size, uint64_t *got) {
    static const uint64_t most = (uint64_t)1 << 30;
    char *at = to;
    *got = 0;
    while (*got < size) {
        zip_int64_t n =
            stream->reader->lib->zip_fread(stream->file, at + *got, size - *got < most ? size - *got : most);
        if (n < 0)
            return fail_record(stream);
        if (n == 0)
            return TT_OK;
        *got += (uint64_t)n;
    }
    return TT_OK;
}

void tt__zip_stream_close(tt__zip_stream *stream) {
    if (stream->file)
        stream->reader->lib->zip_fclose(stream->file);
    *stream = (tt__zip_stream){0};
}

/* Read to the end, where libzip compares the checksum. */
static tt_status read_to_checksum(tt__zip_stream *stream, void *to, uint64_t size) {
    char beyond;
    uint64_t got = 0, more = 0;
    TT__TRY(tt__zip_stream_read(stream, to, size, &got));
    TT__TRY(tt__zip_stream_read(stream, &beyond, 1, &more));
    return got == size && !more ? TT_OK : fail_record(stream);
}

tt_status tt__zip_read(const tt__zip_reader *reader, uint64_t index, const char *record, void *to, uint64_t size) {
    tt__zip_stream stream;
    TT__TRY(tt__zip_stream_open(&stream, reader, index, record));
    tt_status status = read_to_checksum(&stream, to, size);
    tt__zip_stream_close(&stream);
    return status;
}
