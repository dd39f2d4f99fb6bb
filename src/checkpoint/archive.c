/* Reading the zip archive of a .pt file. */
#include "checkpoint/archive.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text/plain_text.h"

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

/* Add record i to the list. *total: the bytes of all records so far; if they are more than the file has, records
 * overlap. */
static tt_status record_look(tt__archive *archive, uint64_t i, const char **first, uint64_t *total, uint64_t size) {
    tt__zip_record stat;
    TT__TRY(tt__zip_look(&archive->zip, i, &stat));
    *first = *first ? *first : stat.name;
    const char *name = name_in_folder(stat.name, *first);
    if (!name)
        return tt__fail(TT_ERR_FORMAT, "%s: expected records below one folder, got the name \"%s\"", archive->name,
                        tt__make_printable(stat.name).text);
    if (!stat.stored)
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "%s: record \"%s\" is compressed or encrypted, which torch.save() never does: write it again",
                        archive->name, tt__make_printable(stat.name).text);
    if (stat.size > size - *total)
        return tt__fail(TT_ERR_FORMAT, "%s: its records have more bytes than the file's %llu: they overlap",
                        archive->name, (unsigned long long)size);
    *total += stat.size;
    archive->records[archive->count++] = (tt__archive_record){.name = name, .index = i, .size = stat.size};
    return TT_OK;
}

static int by_record_name(const void *a, const void *b) {
    return strcmp(((const tt__archive_record *)a)->name, ((const tt__archive_record *)b)->name);
}

static tt_status list_records(tt__archive *archive, uint64_t size) {
    archive->records = calloc((size_t)archive->zip.count, sizeof *archive->records);
    if (!archive->records)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory to list %llu records", archive->name,
                        (unsigned long long)archive->zip.count);
    const char *first = NULL;
    uint64_t total = 0;
    for (uint64_t i = 0; i < archive->zip.count; i++)
        TT__TRY(record_look(archive, i, &first, &total, size));
    qsort(archive->records, archive->count, sizeof *archive->records, by_record_name);
    for (size_t i = 1; i < archive->count; i++)
        if (!strcmp(archive->records[i - 1].name, archive->records[i].name))
            return tt__fail(TT_ERR_FORMAT, "%s: the record \"%s\" comes twice", archive->name,
                            tt__make_printable(archive->records[i].name).text);
    return TT_OK;
}

tt_status tt__archive_open(tt__archive *archive, const char *name, const void *data, int fd, uint64_t size) {
    *archive = (tt__archive){.name = name};
    tt_status status = tt__zip_open(&archive->zip, name, data, fd, size);
    if (!status)
        status = list_records(archive, size);
    if (status)
        tt__archive_close(archive);
    return status;
}

const tt__archive_record *tt__archive_find(const tt__archive *archive, const char *record) {
    const tt__archive_record key = {.name = record};
    return bsearch(&key, archive->records, archive->count, sizeof key, by_record_name);
}

tt_status tt__archive_read(const tt__archive *archive, const tt__archive_record *record, void *to) {
    return tt__zip_read(&archive->zip, record->index, record->name, to, record->size);
}

void tt__archive_close(tt__archive *archive) {
    tt__zip_close(&archive->zip);
    free(archive->records);
    *archive = (tt__archive){0};
}
