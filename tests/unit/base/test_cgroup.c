/* Limits of control groups, read from files made for the test. */
#include "base/process/limits.h"

#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static char root[] = "/tmp/tutti-cgroup-XXXXXX";

static void put(const char *path, const char *text) {
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    for (char *slash = full + strlen(root) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
        *slash = '\0';
        assert_true(!mkdir(full, 0700) || errno == EEXIST);
    }
    FILE *file = fopen(full, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static int make_root(void **state) {
    (void)state;
    return !mkdtemp(root);
}

static int remove_root(void **state) {
    char command[64];
    (void)state;
    snprintf(command, sizeof command, "rm -r %s", root);
    return system(command); /* NOLINT(cert-env33-c): a fixed command */
}

static void without_files_there_is_no_limit(void **state) {
    (void)state;
    assert_true(tt__cgroup_memory_left(root) == SIZE_MAX);
}

static void the_tightest_limit_counts(void **state) {
    (void)state;
    put("/proc/self/cgroup", "0::/job/step\n");
    put("/sys/fs/cgroup/job/step/memory.max", "max\n");
    put("/sys/fs/cgroup/job/step/memory.current", "300\n");
    assert_true(tt__cgroup_memory_left(root) == SIZE_MAX);
    put("/sys/fs/cgroup/job/memory.max", "1000\n");
    put("/sys/fs/cgroup/job/memory.current", "700\n");
    assert_int_equal(tt__cgroup_memory_left(root), 300);
    put("/sys/fs/cgroup/job/memory.stat", "anon 5\ninactive_file 250\n"); /* can be dropped */
    assert_int_equal(tt__cgroup_memory_left(root), 550);
    put("/sys/fs/cgroup/job/step/memory.max", "400\n");
    assert_int_equal(tt__cgroup_memory_left(root), 100);
    put("/sys/fs/cgroup/job/step/memory.current", "500\n");
    assert_int_equal(tt__cgroup_memory_left(root), 0);
}

static void the_first_version_too(void **state) {
    (void)state;
    put("/proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/b\n");
    put("/sys/fs/cgroup/memory/b/memory.limit_in_bytes", "9000\n");
    put("/sys/fs/cgroup/memory/b/memory.usage_in_bytes", "2000\n");
    put("/sys/fs/cgroup/memory/b/memory.stat", "inactive_file 1\ntotal_inactive_file 500\n");
    assert_int_equal(tt__cgroup_memory_left(root), 7500);
}

static void kills_and_the_limit_are_read(void **state) {
    (void)state;
    put("/proc/self/cgroup", "0::/job/step\n");
    put("/sys/fs/cgroup/job/step/memory.max", "max\n");
    put("/sys/fs/cgroup/job/memory.max", "1000\n");
    put("/sys/fs/cgroup/job/memory.events", "low 0\noom 9\noom_kill 9\n");
    assert_int_equal(tt__cgroup_memory_kills(root), 0);
    put("/sys/fs/cgroup/job/step/memory.events", "low 0\noom 4\noom_kill 3\n");
    assert_int_equal(tt__cgroup_memory_kills(root), 3);
    assert_int_equal(tt__cgroup_memory_limit(root), 1000);
    put("/proc/self/cgroup", "4:memory:/b\n");
    put("/sys/fs/cgroup/memory/b/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/b/memory.limit_in_bytes", "9000\n");
    assert_int_equal(tt__cgroup_memory_kills(root), 2);
    assert_int_equal(tt__cgroup_memory_limit(root), 9000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_files_there_is_no_limit), cmocka_unit_test(the_tightest_limit_counts),
        cmocka_unit_test(the_first_version_too), cmocka_unit_test(kills_and_the_limit_are_read)};
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
