/* Reading a run: a file, or all files of a folder. */
#include "metrics/scalar_log.h"

#include "base/bytes.h"
#include "base/error.h"
#include "base/files/fd.h"
#include "base/text/parse.h"
#include "metrics/event_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

bool tt__log_is_event_name(const char *name) { return strstr(name, "tfevents"); }

/* ---- a file ---- */

static tt_status read_all(tt__bytes *content, int fd, const char *path) {
    uint8_t block[16384];
    for (ssize_t n; (n = read(fd, block, sizeof block)) != 0;) {
        if (n < 0 && errno != EINTR)
            return tt__fail_errno(TT_ERR_IO, errno, "can't read %s", path);
        if (n > 0)
            tt__bytes_put(content, block, (size_t)n);
        if (content->failed)
            return tt__fail(TT_ERR_MEMORY, "%s: no memory to read it", path);
    }
    return TT_OK;
}

static tt_status read_content(tt__bytes *content, const char *path) {
    struct stat info;
    int fd = tt__fd(open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    if (fd < 0)
        return tt__fail_errno(TT_ERR_IO, errno, "can't open %s", path);
    tt_status status = TT_OK;
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
        status = tt__fail(TT_ERR_IO, "can't read %s: expected a file", path);
    if (!status)
        status = read_all(content, fd, path);
    close(fd);
    return status;
}

tt_status tt__log_read_file(tt__scalar_log *log, const char *path) {
    tt__bytes content = {0};
    tt_status status = read_content(&content, path);
    bool events = tt__log_is_event_name(path) || tt__events_recognise(content.data, content.size);
    if (!status && !content.size)
        tt__scalar_log_note(log, "%s is empty", path);
    else if (!status && events)
        status = tt__events_decode(log, content.data, content.size, path);
    else if (!status)
        status = tt__csv_decode(log, content.data, content.size, path);
    tt__bytes_free(&content);
    return status;
}

/* ---- a folder ---- */

static int only_events(const struct dirent *entry) { return tt__log_is_event_name(entry->d_name); }
static int only_csv(const struct dirent *entry) { return tt__ends_with(entry->d_name, ".csv"); }

static tt_status read_log_entry(tt__scalar_log *log, const char *folder, const char *name) {
    size_t size = strlen(folder) + strlen(name) + 2;
    char *path = malloc(size);
    if (!path)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for a path in it", folder);
    snprintf(path, size, "%s/%s", folder, name);
    tt_status status = tt__log_read_file(log, path);
    free(path);
    return status;
}

/* Read the files that `wanted` chooses; *found: there are some. */
static tt_status read_chosen(tt__scalar_log *log, const char *path, int (*wanted)(const struct dirent *), bool *found) {
    struct dirent **entries;
    int n = scandir(path, &entries, wanted, alphasort);
    if (n < 0)
        return tt__fail_errno(TT_ERR_IO, errno, "can't read the folder %s", path);
    tt_status status = TT_OK;
    for (int i = 0; i < n; i++) {
        if (!status)
            status = read_log_entry(log, path, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    *found = n > 0;
    return status;
}

tt_status tt__log_read_folder(tt__scalar_log *log, const char *path) {
    bool found = false;
    TT__TRY(read_chosen(log, path, only_events, &found));
    if (!found)
        TT__TRY(read_chosen(log, path, only_csv, &found));
    if (!found)
        return tt__fail(TT_ERR_NOT_FOUND,
                        "%s: expected event files (*tfevents*) or CSV files (*.csv) in it, found none", path);
    return TT_OK;
}
