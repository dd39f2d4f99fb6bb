/* A folder of a target's own, for readers that take paths; gone at the program's end. */
#ifndef TESTS_FUZZ_FOLDER_H
#define TESTS_FUZZ_FOLDER_H

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char fuzz_folder[] = "/tmp/tutti-fuzz-XXXXXX";

/* The path of a file in it; the last four stay. */
static inline const char *fuzz_path(const char *name) {
    static char paths[4][512];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof *paths, "%s/%s", fuzz_folder, name);
    return path;
}

static inline void fuzz_folder_remove(void) {
    DIR *all = opendir(fuzz_folder);
    for (struct dirent *entry; all && (entry = readdir(all));)
        if (entry->d_name[0] != '.')
            unlink(fuzz_path(entry->d_name));
    if (all)
        closedir(all);
    if (rmdir(fuzz_folder))
        perror(fuzz_folder);
}

static inline void fuzz_folder_make(void) {
    if (!mkdtemp(fuzz_folder) || atexit(fuzz_folder_remove)) {
        perror(fuzz_folder);
        abort();
    }
}

static inline void fuzz_write(const char *path, const uint8_t *data, size_t size) {
    FILE *file = fopen(path, "wb");
    if (!file || (size && fwrite(data, 1, size, file) != size) || fclose(file)) {
        perror(path);
        abort();
    }
}

/* Write a file of the folder, which the first call makes. Returns its path. */
static inline const char *fuzz_file(const char *name, const void *data, size_t size) {
    static int made;
    if (!made++)
        fuzz_folder_make();
    const char *path = fuzz_path(name);
    fuzz_write(path, data, size);
    return path;
}

#endif
