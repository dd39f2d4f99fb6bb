/* Runs a fuzz target once on every file of the folder named on the command line, and on no bytes at all. Stands in for
 * libFuzzer's main in ordinary builds. Finding no file is a failure: a test that tried nothing must not pass. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The whole file in memory of exactly its size, so that a sanitizer sees the first byte read beyond it. */
static int replay(const char *folder, const char *name) {
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return -1;
    FILE *file = fopen(path, "rb");
    if (!file || fseek(file, 0, SEEK_END))
        return perror(path), file ? fclose(file) : 0, -1;
    long size = ftell(file);
    rewind(file);
    uint8_t *data = size > 0 ? malloc((size_t)size) : NULL;
    int ok = size == 0 || (data && fread(data, 1, (size_t)size, file) == (size_t)size);
    fclose(file);
    if (ok)
        LLVMFuzzerTestOneInput(data, (size_t)size);
    free(data);
    return ok ? 0 : -1;
}

int main(int argc, char **argv) {
    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
    if (!folder) {
        fprintf(stderr, "usage: %s FOLDER (one that exists): runs the target on each of its files\n", argv[0]);
        return 2;
    }
    int files = 0, failed = 0;
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (entry->d_name[0] == '.')
            continue;
        files++;
        failed += replay(argv[1], entry->d_name) != 0;
    }
    closedir(folder);
    LLVMFuzzerTestOneInput(NULL, 0);
    printf("%d files replayed, %d could not be read\n", files, failed);
    return files == 0 || failed ? 1 : 0;
}
