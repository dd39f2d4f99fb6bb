#include "base/machine/host_name.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

void tt__host_name(char *name, size_t size) {
    bool known = gethostname(name, size - 1) == 0 || errno == ENAMETOOLONG;
    name[size - 1] = '\0';
    if (!known || !name[0])
        snprintf(name, size, "?");
}
