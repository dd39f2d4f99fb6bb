/* file:///path: ranks that share a file system and no address meet in a file. A rank that finds no other there clears
 * what an earlier job left; the last rank that has joined removes the file. */
#include "base/error.h"
#include "comm/rendezvous/rendezvous.h"

#include <string.h>

#define FORM "file:///path[?rank=R&world_size=N]"

tt_status tt__meeting_from_file(tt__meeting *meeting, const char *url, int rank, int world) {
    const char *path = url + strlen("file://");
    size_t size = strcspn(path, "?");
    *meeting = (tt__meeting){0};
    if (*path != '/' || size < 2)
        return tt__fail(TT_ERR_INVALID, "%.200s: expected " FORM ", with the path from the root on", url);
    if (size >= sizeof meeting->path)
        return tt__fail(TT_ERR_INVALID, "%.200s: the path has %zu bytes, at most %zu are allowed", url, size,
                        sizeof meeting->path - 1);
    memcpy(meeting->path, path, size);
    return tt__meeting_ranks(meeting, url, FORM, rank, world);
}
