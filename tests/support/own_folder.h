/* A folder of a test's own, in which it runs: setup and teardown of its group. */
#ifndef TESTS_SUPPORT_OWN_FOLDER_H
#define TESTS_SUPPORT_OWN_FOLDER_H

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/tutti-test-XXXXXX";

static inline int make_folder(void **state) {
    (void)state;
    return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static inline int remove_entry(const char *path, const struct stat *s, int flag, struct FTW *level) {
    (void)s;
    (void)flag;
    (void)level;
    return remove(path);
}

static inline int remove_folder(void **state) {
    (void)state;
    return chdir("/") == 0 ? nftw(folder, remove_entry, 8, FTW_DEPTH | FTW_PHYS) : -1;
}

/* A whole file's bytes; the caller's to free. */
static inline unsigned char *slurp(const char *path, size_t *size) {
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    unsigned char *bytes = malloc(1 << 20);
    *size = fread(bytes, 1, 1 << 20, f);
    fclose(f);
    return bytes;
}

#endif
