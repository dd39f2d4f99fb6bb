/* file:///path: ranks that share a file system and no address meet in a file. What an earlier job left in it is
 * forgotten by whoever finds nobody else there; the last of the ranks to have joined removes it. */
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
