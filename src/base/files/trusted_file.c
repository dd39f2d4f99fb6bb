#include "base/error.h"
#include "base/files/trusted.h"

tt_status tt__trusted_file(const char *path, char real[PATH_MAX]) {
    char why[PATH_MAX + 256];
    tt_status status = tt__trust(path, real, why, sizeof why);
    return status ? tt__fail(status, "%s", why) : TT_OK;
}
