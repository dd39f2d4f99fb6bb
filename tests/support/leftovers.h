/* What a process holds of the system, by which tests see that nothing is left behind. */
#ifndef TESTS_SUPPORT_LEFTOVERS_H
#define TESTS_SUPPORT_LEFTOVERS_H

#include "support/ranks.h"

#include "base/machine/clock.h"

#include <dirent.h>
#include <pthread.h>

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

typedef struct holdings {
    int descriptors, mappings, threads;
} holdings;

static inline holdings look_at_holdings(void) {
    return (holdings){count_names("/proc/self/fd", ""), count_shared_mappings(), count_names("/proc/self/task", "")};
}

static inline void *no_work(void *arg) { return arg; }

/* With a process's first thread the thread sanitizer starts one of its own, which stays. Call this before the first
 * look. */
static inline void start_first_thread(void) {
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, no_work, NULL) && !pthread_join(thread, NULL));
}

/* Append to `text` what each descriptor is. */
static inline void tell_descriptors(char *text, size_t size) {
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        char target[120] = "";
        ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1);
        size_t at = strlen(text);
        if (length > 0)
            snprintf(text + at, size - at, "; %s: %s", entry->d_name, target);
    }
    closedir(folder);
}

static inline bool holds_more(const holdings *now, const holdings *before) {
    return now->descriptors > before->descriptors || now->mappings > before->mappings || now->threads > before->threads;
}

/* Write into `text` what the process holds more of than `before`; "" if nothing. Looks again for a while, as a thread
 * that was joined, and descriptors that it had open, may still be seen for a moment. */
static inline void compare_holdings(const holdings *before, char *text, size_t size) {
    holdings after = look_at_holdings();
    for (int64_t until = tt__deadline_ms(PATIENCE_MS / 6); holds_more(&after, before) && tt__left_ms(until);)
        after = look_at_holdings();
    *text = '\0';
    bool descriptors = after.descriptors != before->descriptors;
    if (descriptors || after.mappings != before->mappings || after.threads != before->threads)
        snprintf(text, size, "left behind: descriptors %d -> %d, mappings %d -> %d, threads %d -> %d",
                 before->descriptors, after.descriptors, before->mappings, after.mappings, before->threads,
                 after.threads);
    if (descriptors)
        tell_descriptors(text, size);
}

#endif
