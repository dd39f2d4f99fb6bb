#include "cli/data_folder.h"

#include "cli/clean_end.h"
#include "cli/cli.h"

tt_status tt__data_folder_begin(const char *dir) {
    tt_status status = tt__cli_make_folder(dir);
    if (status)
        tt__cli_error("data", "%s", tt_last_error());
    return status;
}

void tt__data_folder_end(void) { tt__cli_remove_folder(); }
