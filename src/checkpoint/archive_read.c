#include "checkpoint/archive.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "base/fd.h"
#include "checkpoint/safetensors.h"

/* Record what libzip says of an archive. Releases `error`. */
static tt_status fail_zip(const char *name, const char *what, const tt__zip *lib, zip_error_t *error) {
    int code = lib->zip_error_code_zip(error);
    tt_status status = code == ZIP_ER_MEMORY                        ? TT_ERR_MEMORY
                       : code == ZIP_ER_READ || code == ZIP_ER_SEEK ? TT_ERR_IO
                                                                    : TT_ERR_FORMAT;
    tt__fail(status, "%s: %s: %s", name, what,
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

static tt_status open_zip(tt__archive *archive, const void *data, int fd, uint64_t size) {
    zip_error_t error;
    archive->lib->zip_error_init(&error);
    zip_source_t *source = open_source(archive->lib, data, fd, size, &error);
    if (source)
        archive->zip = archive->lib->zip_open_from_source(source, ZIP_RDONLY | ZIP_CHECKCONS, &error);
    if (source && !archive->zip)
        archive->lib->zip_source_free(source);
    if (!archive->zip)
        return fail_zip(archive->name, "not a whole zip archive (cut short?)", archive->lib, &error);
    archive->lib->zip_error_fini(&error);
    return TT_OK;
}

/* Return a record's name without the folder that the archive's first record lies in; NULL: it is in another, or the
 * name would lead elsewhere if it were a path. */
static const char *name_in_folder(const char *name, const char *first) {
    size_t folder = strcspn(first, "/");
    if (folder == 0 || first[folder] != '/' || strncmp(name, first, folder + 1) || strchr(name, '\\'))
        return NULL;
    for (const char *part = name; part; part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL) {
        size_t length = strcspn(part, "/");
        if (length == 0 || (length == 1 && part[0] == '.') || (length == 2 && !strncmp(part, "..", 2)))
            return NULL;
    }
    return name + folder + 1;
}

/* Look at record i. *total: bytes of all so far, none of which may lie over another. */
static tt_status record_look(tt__archive *archive, uint64_t i, const char **first, uint64_t *total, uint64_t size) {
    static const zip_uint64_t needed = ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD;
    zip_stat_t stat;
    archive->lib->zip_stat_init(&stat);
    if (archive->lib->zip_stat_index(archive->zip, i, ZIP_FL_ENC_RAW, &stat) || (stat.valid & needed) != needed)
        return tt__fail(TT_ERR_FORMAT, "%s: record %llu of the archive is damaged", archive->name,
                        (unsigned long long)i);
    *first = *first ? *first : stat.name;
    const char *name = name_in_folder(stat.name, *first);
    if (!name)
        return tt__fail(TT_ERR_FORMAT, "%s: expected records below one folder, got the name \"%s\"", archive->name,
                        tt__safetensors_printable(stat.name).text);
    if (stat.comp_method != ZIP_CM_STORE || stat.size != stat.comp_size)
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "%s: record \"%s\" is compressed or encrypted, which torch.save() never does: write it again",
                        archive->name, tt__safetensors_printable(stat.name).text);
    if (stat.size > size - *total)
        return tt__fail(TT_ERR_FORMAT, "%s: its records have more bytes than the file's %llu: they overlap",
                        archive->name, (unsigned long long)size);
    *total += stat.size;
    archive->records[archive->count++] = (tt__record){.name = name, .index = i, .size = stat.size};
    return TT_OK;
}

static int by_record_name(const void *a, const void *b) {
    return strcmp(((const tt__record *)a)->name, ((const tt__record *)b)->name);
}

static tt_status list_records(tt__archive *archive, uint64_t size) {
    zip_int64_t count = archive->lib->zip_get_num_entries(archive->zip, 0);
    if (count <= 0)
        return tt__fail(TT_ERR_FORMAT, "%s: a zip archive without records", archive->name);
    archive->records = calloc((size_t)count, sizeof *archive->records);
    if (!archive->records)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory to list %lld records", archive->name, (long long)count);
    const char *first = NULL;
    uint64_t total = 0;
    for (zip_int64_t i = 0; i < count; i++)
        TT__TRY(record_look(archive, (uint64_t)i, &first, &total, size));
    qsort(archive->records, archive->count, sizeof *archive->records, by_record_name);
    for (size_t i = 1; i < archive->count; i++)
        if (!strcmp(archive->records[i - 1].name, archive->records[i].name))
            return tt__fail(TT_ERR_FORMAT, "%s: the record \"%s\" comes twice", archive->name,
                            tt__safetensors_printable(archive->records[i].name).text);
    return TT_OK;
}

tt_status tt__archive_open(tt__archive *archive, const char *name, const void *data, int fd, uint64_t size) {
    *archive = (tt__archive){.name = name, .lib = tt__zip_get()};
    if (!archive->lib)
        return tt__fail_prefix("%s", name);
    tt_status status = open_zip(archive, data, fd, size);
    if (!status)
        status = list_records(archive, size);
    if (status)
        tt__archive_close(archive);
    return status;
}

const tt__record *tt__archive_find(const tt__archive *archive, const char *record) {
    const tt__record key = {.name = record};
    return bsearch(&key, archive->records, archive->count, sizeof key, by_record_name);
}

/* Read to the end, where libzip compares the checksum. */
static bool read_to_checksum(const tt__zip *lib, zip_file_t *file, char *to, uint64_t size) {
    while (size > 0) {
        zip_int64_t n = lib->zip_fread(file, to, size < (uint64_t)1 << 30 ? size : (uint64_t)1 << 30);
        if (n <= 0)
            return false;
        to += n;
        size -= (uint64_t)n;
    }
    char beyond;
    return lib->zip_fread(file, &beyond, 1) == 0;
}

tt_status tt__archive_read(const tt__archive *archive, const tt__record *record, void *to) {
    const tt__zip *lib = archive->lib;
    zip_file_t *file = lib->zip_fopen_index(archive->zip, record->index, 0);
    zip_error_t *why = file ? lib->zip_file_get_error(file) : lib->zip_get_error(archive->zip);
    bool whole = file && read_to_checksum(lib, file, to, record->size);
    tt_status status = TT_OK;
    if (!whole) {
        int code = lib->zip_error_code_zip(why);
        status = tt__fail(code == ZIP_ER_MEMORY ? TT_ERR_MEMORY
                          : code == ZIP_ER_READ ? TT_ERR_IO
                                                : TT_ERR_FORMAT,
                          "%s: record \"%s\": %s", archive->name, tt__safetensors_printable(record->name).text,
                          code ? lib->zip_error_strerror(why) : "it ends too early");
    }
    if (file)
        lib->zip_fclose(file);
    return status;
}

void tt__archive_close(tt__archive *archive) {
    if (archive->zip)
        archive->lib->zip_discard(archive->zip);
    free(archive->records);
    *archive = (tt__archive){0};
}
