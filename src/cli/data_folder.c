#include "cli/data_folder.h"

#include "cli/cli.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

tt_status tt__data_folder_begin(const char *dir, bool *made) {
    *made = mkdir(dir, 0777) == 0;
    if (*made || errno == EEXIST)
        return TT_OK;
    tt__cli_error("data", "can't make %s: %s", dir, strerror(errno));
    return TT_ERR_IO;
}

void tt__data_folder_end(const char *dir, bool made) {
    if (made)
        rmdir(dir); /* refused where anything is in it */
}
