/* What a process holds of the system, by which tests see that nothing is left behind. */
#ifndef TESTS_SUPPORT_LEFTOVERS_H
#define TESTS_SUPPORT_LEFTOVERS_H

#include "support/ranks.h"

#include <dirent.h>

/* How many names in a folder hold `text`. */
static inline int count_names(const char *path, const char *text) {
    DIR *folder = opendir(path);
    int n = 0;
    CHECK(folder);
    for (struct dirent *entry; (entry = readdir(folder));)
        n += strstr(entry->d_name, text) != NULL;
    closedir(folder);
    return n;
}

/* Mappings of this process that are shared memory of ours. */
static inline int count_shared_mappings(void) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    int n = 0;
    CHECK(maps);
    while (fgets(line, sizeof line, maps))
        n += strstr(line, "memfd:tutti") != NULL;
    fclose(maps);
    return n;
}

#endif
