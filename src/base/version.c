#include <tutti/base.h>

#define STRING_(x) #x
#define STRING(x) STRING_(x)

const char *tt_version(void) {
    return STRING(TT_VERSION_MAJOR) "." STRING(TT_VERSION_MINOR) "." STRING(TT_VERSION_PATCH);
}
