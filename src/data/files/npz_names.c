#include "data/files/npz.h"

#include "base/error.h"
#include "base/text/plain_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int npz_name_order(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

tt_status tt__npz_check_names(const char *who, tt_status status, const char *const *names, int64_t count) {
    if (!count)
        return TT_OK;
    const char **sorted = malloc((size_t)count * sizeof *sorted), *twice = NULL;
    if (!sorted)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory to compare %" PRId64 " names", who, count);
    memcpy(sorted, names, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, npz_name_order);
    for (int64_t i = 1; i < count && !twice; i++)
        twice = strcmp(sorted[i - 1], sorted[i]) ? NULL : sorted[i];
    free(sorted);
    return twice ? tt__fail(status, "%s: the name \"%s\" comes twice", who, tt__make_printable(twice).text) : TT_OK;
}
