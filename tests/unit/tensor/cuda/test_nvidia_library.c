/* Where NVIDIA's libraries are looked for, and what is said where there is none: folders with small libraries of the
 * fake under the real ones' names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/files/nvidia_library.h"

static const tt__nvidia_library library = {
    "cuTest", {"libtutti-test.so.13", "libtutti-test.so.12"}, "test", "nvidia-test-cu13"};
static char root[64], text[2048];

/* Make a folder below the root, and `file` in it: a library, or (`is_text`) what is none. A copy each, since the loader
 * knows a file that it has loaded under another name. */
static const char *put(const char *folder, const char *file, bool is_text) {
    static char path[128];
    char command[1024];
    snprintf(path, sizeof path, "%s/%s", root, folder);
    snprintf(command, sizeof command, "mkdir -p %s && cp %s%s %s/%s", path, is_text ? "" : getenv("TT_BUILD"),
             is_text ? "/etc/passwd" : "/tests/fake_cuda/libcuda.so.1", path, file);
    assert_int_equal(system(command), 0);
    return path;
}

static int begin(void **state) {
    (void)state;
    snprintf(root, sizeof root, "/tmp/tutti-nvidia-XXXXXX");
    static const char *const names[] = {"TT_CUDA_PATH", "CUDA_HOME", "VIRTUAL_ENV", "CONDA_PREFIX"};
    for (size_t i = 0; i < 4; i++)
        unsetenv(names[i]);
    return mkdtemp(root) ? 0 : -1;
}

static int end(void **state) {
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", root);
    return system(command);
}

static void expect_from(const char *part) {
    assert_non_null(tt__nvidia_open(&library, text, sizeof text));
    assert_non_null(strstr(text, part));
}

static void a_missing_one_is_an_error_that_says_all(void **state) {
    (void)state;
    assert_null(tt__nvidia_open(&library, text, sizeof text));
    static const char *const parts[] = {"cuTest was not found", "libtutti-test.so.13 or libtutti-test.so.12",
                                        "TT_CUDA_PATH", "/usr/local/cuda/lib64",
                                        "install PyPI's nvidia-test-cu13 into"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        assert_non_null(strstr(text, parts[i]));
}

static void what_is_no_library_is_named(void **state) {
    (void)state;
    setenv("TT_CUDA_PATH", put("bad", "libtutti-test.so.12", true), 1);
    assert_null(tt__nvidia_open(&library, text, sizeof text));
    assert_non_null(strstr(text, "bad/libtutti-test.so.12"));
}

static void relative_folders_are_passed_over(void **state) {
    (void)state;
    put("here", "libtutti-test.so.13", false);
    char before[4096];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(root), 0);
    setenv("TT_CUDA_PATH", "here:./here", 1);
    void *found = tt__nvidia_open(&library, text, sizeof text);
    assert_int_equal(chdir(before), 0);
    assert_null(found);
}

static void it_is_found_in_a_wheel(void **state) {
    (void)state;
    put("v/lib/python3.13/site-packages/nvidia/test/lib", "libtutti-test.so.12", false);
    char environment[128];
    snprintf(environment, sizeof environment, "%s/v", root);
    setenv("VIRTUAL_ENV", environment, 1);
    expect_from("nvidia/test/lib/libtutti-test.so.12");
    put("v/lib/python3.13/site-packages/nvidia/cu13/lib", "libtutti-test.so.13", false);
    expect_from("nvidia/cu13/lib/libtutti-test.so.13");
}

static void an_earlier_folder_of_the_list_comes_first(void **state) {
    (void)state;
    char list[1200];
    int n = snprintf(list, sizeof list, "/nonexistent::%s", put("one", "libtutti-test.so.13", false));
    snprintf(list + n, sizeof list - (size_t)n, ":%s", put("two", "libtutti-test.so.13", true));
    setenv("TT_CUDA_PATH", list, 1);
    expect_from("one/libtutti-test.so.13");
}

static void expect_refused(const char *variable, const char *value, const char *why) {
    setenv(variable, value, 1);
    assert_null(tt__nvidia_open(&library, text, sizeof text));
    assert_non_null(strstr(text, why));
    unsetenv(variable);
}

/* Each variable may name a folder where somebody else has put a library that is none of NVIDIA's. */
static void what_others_can_write_is_not_loaded(void **state) {
    (void)state;
    char folder[128], home[128];
    snprintf(home, sizeof home, "%s/home", root);
    snprintf(folder, sizeof folder, "%s", put("home/lib64", "libtutti-test.so.13", false));
    assert_int_equal(chmod(folder, 0777), 0);
    expect_refused("TT_CUDA_PATH", folder, "home/lib64 can be written by everybody: code is loaded only");
    expect_refused("CUDA_HOME", home, "home/lib64 can be written by everybody: code is loaded only");
    assert_int_equal(chmod(folder, 01777), 0);
    expect_refused("TT_CUDA_PATH", folder, "home/lib64 can be written by everybody, who could put parts of");
    assert_int_equal(chmod(folder, 0755), 0);
    put("home/lib/python3.13/site-packages/nvidia/cu13/lib", "libtutti-test.so.13", false);
    char python[128];
    snprintf(python, sizeof python, "%s/lib/python3.13", home);
    assert_int_equal(chmod(python, 0777), 0);
    expect_refused("VIRTUAL_ENV", home, "home/lib/python3.13 can be written by everybody");
    expect_refused("CONDA_PREFIX", home, "home/lib/python3.13 can be written by everybody");
    setenv("CUDA_HOME", home, 1);
    expect_from("home/lib64/libtutti-test.so.13");
}

static void what_belongs_to_another_user_is_not_loaded(void **state) {
    (void)state;
    char folder[128], file[256];
    if (geteuid())
        skip();
    snprintf(folder, sizeof folder, "%s", put("his", "libtutti-test.so.13", false));
    snprintf(file, sizeof file, "%s/libtutti-test.so.13", folder);
    assert_int_equal(chown(file, 61234, 61234), 0);
    expect_refused("TT_CUDA_PATH", folder, "libtutti-test.so.13 belongs to user 61234");
    assert_int_equal(chown(file, 0, 0), 0);
    assert_int_equal(chown(folder, 61234, 61234), 0);
    expect_refused("TT_CUDA_PATH", folder, "his belongs to user 61234");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_missing_one_is_an_error_that_says_all, begin, end),
        cmocka_unit_test_setup_teardown(what_is_no_library_is_named, begin, end),
        cmocka_unit_test_setup_teardown(relative_folders_are_passed_over, begin, end),
        cmocka_unit_test_setup_teardown(it_is_found_in_a_wheel, begin, end),
        cmocka_unit_test_setup_teardown(what_others_can_write_is_not_loaded, begin, end),
        cmocka_unit_test_setup_teardown(what_belongs_to_another_user_is_not_loaded, begin, end),
        cmocka_unit_test_setup_teardown(an_earlier_folder_of_the_list_comes_first, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
