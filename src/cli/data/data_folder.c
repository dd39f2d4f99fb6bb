#include "cli/data/data_folder.h"

#include "base/error.h"
#include "base/planted.h"
#include "cli/clean_end.h"
#include "cli/cli.h"

#include <errno.h>
#include <stdlib.h>

tt_status tt__data_folder_begin(const char *dir) {
    tt_status status = tt__cli_make_folder(dir);
    char *whole = status ? NULL : realpath(dir, NULL);
    if (!status)
        status = whole ? tt__check_folder(whole) : tt__fail_errno(TT_ERR_IO, errno, "can't find the folder %s", dir);
    free(whole);
    if (!status)
        return TT_OK;
    tt__cli_remove_folder();
    tt__cli_error("data", "%s", tt_last_error());
    return status;
}

void tt__data_folder_end(void) { tt__cli_remove_folder(); }
