/* Reading .pt files: the archive, its flags, its pickle. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "checkpoint/archive.h"
#include "checkpoint/pickle.h"
#include "checkpoint/safetensors.h"

enum { HEAD = 16 };

/* Check how the file begins, to tell what it is instead of an archive. */
static tt_status check_head(const char *name, const unsigned char *head, size_t size) {
    static const unsigned char before_1_6[] = {0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46};
    if (size >= 4 && !memcmp(head, "PK\3\4", 4))
        return TT_OK;
    if (size >= sizeof before_1_6 && !memcmp(head, before_1_6, sizeof before_1_6))
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "%s: the format that torch.save() wrote before PyTorch 1.6; in Python, "
                        "torch.save(torch.load(path), path) with a newer one converts it",
                        name);
    if (size >= 9 && head[8] == '{')
        return tt__fail(TT_ERR_FORMAT, "%s: not a .pt file but safetensors: tt_safetensors_load() reads it", name);
    return tt__fail(TT_ERR_FORMAT, "%s: not a .pt file: expected a zip archive, as torch.save() makes", name);
}

/* Read a record of at most `room` bytes and end it with a NUL; *text is "" if there is none. */
static tt_status flag_read(const tt__archive *archive, const char *record, char *text, size_t room) {
    const tt__archive_record *r = tt__archive_find(archive, record);
    text[0] = 0;
    if (!r)
        return TT_OK;
    if (r->size >= room)
        return tt__fail(TT_ERR_FORMAT, "%s: expected a record %s of less than %zu bytes, got %llu", archive->name,
                        record, room, (unsigned long long)r->size);
    text[r->size] = 0;
    return tt__archive_read(archive, r, text);
}

static tt_status check_flags(const tt__archive *archive) {
    char order[16], version[16];
    TT__TRY(flag_read(archive, "byteorder", order, sizeof order));
    TT__TRY(flag_read(archive, "version", version, sizeof version));
    if (*order && strcmp(order, "little"))
        return tt__fail(TT_ERR_UNSUPPORTED, "%s: its numbers are in byte order \"%s\": only \"little\" is supported",
                        archive->name, tt__make_printable(order).text);
    long number = strtol(version, NULL, 10);
    if (number < 1 || number > 10)
        return tt__fail(number > 10 ? TT_ERR_UNSUPPORTED : TT_ERR_FORMAT,
                        "%s: expected a record \"version\" of 1 to 10, got \"%s\"", archive->name,
                        tt__make_printable(version).text);
    return TT_OK;
}

static tt_status run_pickle(tt_value **out, const tt__archive *archive) {
    const tt__archive_record *record = tt__archive_find(archive, "data.pkl");
    if (!record)
        return tt__fail(TT_ERR_FORMAT, "%s: a zip archive without a record data.pkl, so not of torch.save()",
                        archive->name);
    unsigned char *pickle = malloc(record->size + 1);
    if (!pickle)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for a pickle of %llu bytes", archive->name,
                        (unsigned long long)record->size);
    tt_status status = tt__archive_read(archive, record, pickle);
    if (!status)
        status = tt__pickle_run(out, archive, pickle, record->size);
    free(pickle);
    return status;
}

static tt_status read_archive(tt_value **out, const char *name, const void *data, int fd, uint64_t size) {
    tt__archive archive;
    TT__TRY(tt__archive_open(&archive, name, data, fd, size));
    tt_status status = check_flags(&archive);
    if (!status)
        status = run_pickle(out, &archive);
    tt__archive_close(&archive);
    return status;
}

tt_status tt_torch_parse(tt_value **out, const void *data, size_t size, const char *name) {
    if (!out || !data)
        return tt__fail(TT_ERR_INVALID, "tt_torch_parse: `%s` is NULL", out ? "data" : "out");
    *out = NULL;
    name = name ? name : "pt";
    TT__TRY(check_head(name, data, size));
    return read_archive(out, name, data, -1, size);
}

static tt_status torch_file_read(tt_value **out, const char *path, int fd, uint64_t size) {
    unsigned char head[HEAD];
    ssize_t n = pread(fd, head, sizeof head, 0);
    if (n < 0)
        return tt__fail_errno(TT_ERR_IO, errno, "%s: reading failed", path);
    TT__TRY(check_head(path, head, (size_t)n));
    return read_archive(out, path, NULL, fd, size);
}

tt_status tt_torch_load(tt_value **out, const char *path) {
    if (!out || !path)
        return tt__fail(TT_ERR_INVALID, "tt_torch_load: `%s` is NULL", out ? "path" : "out");
    *out = NULL;
    int fd = -1;
    uint64_t size = 0;
    TT__TRY(tt__checkpoint_file_open(&fd, &size, path));
    tt_status status = torch_file_read(out, path, fd, size);
    close(fd);
    return status;
}
