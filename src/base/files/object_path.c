#include "base/files/object_path.h"

#include "base/error.h"
#include "base/files/trusted.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef TT__LIBDIR /* CMAKE_INSTALL_LIBDIR */
#define TT__LIBDIR "lib"
#endif

/* Is `dir` (its first `n` bytes) a folder of a build tree, such as build/tests/unit? */
static bool is_build_tree(const char *dir, int n) {
    char path[PATH_MAX], real[PATH_MAX];
    int length = snprintf(path, sizeof path, "%.*s/../../CMakeCache.txt", n, dir);
    tt__saved_error before;
    tt__error_save(&before);
    bool is = length > 0 && (size_t)length < sizeof path && !access(path, F_OK) && !tt__trusted_file(path, real);
    tt__error_restore(&before);
    return is;
}

char *tt__object_folders_list(void) {
    static const char *const beside[] = {"/tutti", "/../" TT__LIBDIR "/tutti", "/../../lib/tutti"};
    const char *given = secure_getenv("TT_BACKEND_PATH"), *own = tt__own_file(), *slash = strrchr(own, '/');
    int dir = slash ? (int)(slash - own) : 0;
    size_t count = !slash ? 0 : is_build_tree(own, dir) ? 3 : 2, room = (given ? strlen(given) : 0) + 1;
    for (size_t i = 0; i < count; i++)
        room += 1 + (size_t)dir + strlen(beside[i]);
    char *text = malloc(room);
    if (!text)
        return NULL;
    size_t n = (size_t)snprintf(text, room, "%s", given ? given : "");
    for (size_t i = 0; i < count; i++)
        n += (size_t)snprintf(text + n, room - n, "%s%.*s%s", n ? ":" : "", dir, own, beside[i]);
    return text;
}

bool tt__object_folder_next(const char **list, char *folder, size_t size) {
    for (size_t n; **list; *list += n) {
        *list += strspn(*list, ":");
        n = strcspn(*list, ":");
        if (**list != '/' || n >= size)
            continue;
        snprintf(folder, size, "%.*s", (int)n, *list);
        *list += n;
        return true;
    }
    return false;
}

bool tt__object_find(const char *file, char *path, size_t size) {
    char folder[PATH_MAX], *list = tt__object_folders_list();
    bool found = false;
    for (const char *at = list; at && !found && tt__object_folder_next(&at, folder, sizeof folder);) {
        int n = snprintf(path, size, "%s/%s", folder, file);
        found = n > 0 && (size_t)n < size && !access(path, R_OK);
    }
    free(list);
    return found;
}

tt_status tt__trusted_file(const char *path, char real[PATH_MAX]) {
    char why[PATH_MAX + 256];
    tt_status status = tt__trust(path, real, why, sizeof why);
    return status ? tt__fail(status, "%s", why) : TT_OK;
}
