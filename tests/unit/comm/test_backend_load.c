/* Finding plug-ins, and what is refused of their tables, each thing by name. */
#include "comm/backend/plugin.h"
#include "comm/backend/plugin_load.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <stdio.h>

static void assert_text(const char *text) {
    if (!strstr(tt_last_error(), text))
        fail_msg("expected \"%s\" in \"%s\"", text, tt_last_error());
}

static tt_status open_none(void **engine, const tt_backend_member *member) {
    (void)engine, (void)member;
    return TT_OK;
}
static void close_none(void *engine) { (void)engine; }
static tt_status begin_none(void *engine, const tt_call *call, void **request) {
    (void)engine, (void)call, (void)request;
    return TT_OK;
}
static tt_status test_none(void *engine, void *request, bool *done, int *source) {
    (void)engine, (void)request, (void)done, (void)source;
    return TT_OK;
}

static tt_status fail_test(void *engine, void *request, bool *done, int *source) {
    (void)engine, (void)request, (void)done, (void)source;
    return TT_ERR_NET;
}

static tt_status window_none(void *engine, size_t bytes, int64_t timeout_ms,
                             tt_status (*agree)(void *user, int mine, int *least), void *user, void **memory) {
    (void)engine, (void)bytes, (void)timeout_ms, (void)agree, (void)user;
    *memory = NULL;
    return TT_OK;
}

static tt_status mark_none(void *engine, const tt_call *call, void **mark) {
    (void)engine, (void)call, (void)mark;
    return TT_OK;
}

static const tt_backend whole = {.abi = TT_BACKEND_ABI,
                                 .size = sizeof(tt_backend),
                                 .name = "none",
                                 .open = open_none,
                                 .close = close_none,
                                 .begin = {[TT_OP_BARRIER] = begin_none, [TT_OP_ALL_REDUCE] = begin_none},
                                 .test = test_none};

static void refuse(tt_backend table, const char *what) {
    tt_backend copy;
    assert_int_equal(tt__plugin_check(&copy, &table, "x.so"), TT_ERR_UNSUPPORTED);
    assert_text("x.so");
    assert_text(what);
}

/* Built with a header whose table was shorter. */
static void what_an_older_table_lacks_is_zero(void **state) {
    (void)state;
    tt_backend table = whole, copy;
    table.size = offsetof(tt_backend, devices);
    table.devices = 99;
    table.serial = true;
    assert_int_equal(tt__plugin_check(&copy, &table, "x.so"), TT_OK);
    assert_ptr_equal(copy.begin[TT_OP_BARRIER], begin_none);
    assert_int_equal(copy.devices, 0);
    assert_false(copy.serial);
}

static void every_mandatory_slot_is_asked_for(void **state) {
    (void)state;
    tt_backend copy;
    assert_int_equal(tt__plugin_check(&copy, &whole, "x.so"), TT_OK);
    tt_backend table = whole;
    table.abi = TT_BACKEND_ABI + 1;
    refuse(table, "version");
    table.abi = 1; /* whose second field was the name */
    refuse(table, "was built for version 1 of tutti/backend.h, this library has version 2: build it again");
    table = whole;
    table.size = 16;
    refuse(table, "16 bytes");
    table = whole;
    table.name = NULL;
    refuse(table, "no name");
    table = whole;
    table.open = NULL;
    refuse(table, "no open");
    table = whole;
    table.close = NULL;
    refuse(table, "no close");
    table = whole;
    table.test = NULL;
    refuse(table, "no test");
    table = whole;
    table.begin[TT_OP_BARRIER] = NULL;
    refuse(table, "no begin[TT_OP_BARRIER]");
    table = whole;
    table.begin[TT_OP_ALL_REDUCE] = NULL;
    refuse(table, "no begin[TT_OP_ALL_REDUCE]");
    table = whole;
    table.finds_ranks = true;
    refuse(table, "no ranks");
    table = whole;
    table.devices = TT_DEVICE_BIT(TT_DEVICE_CUDA);
    refuse(table, "no stream_mark");
    table.stream_mark = mark_none;
    refuse(table, "no stream_wait");
    table = whole;
    table.window_make = window_none;
    refuse(table, "no window_free");
}

/* An error without a text fails the call, like one with a text. */
static void a_status_alone_fails_the_call(void **state) {
    (void)state;
    tt_backend table = whole;
    tt_group *group = NULL;
    table.test = fail_test;
    assert_int_equal(tt__plugin_join(&group, &table, &(tt__member){.world = 1, .timeout_ms = 10000}, false), TT_OK);
    tt_clear_error();
    assert_int_equal(tt_barrier(group), TT_ERR_NET);
    assert_text("back end none: a network operation failed");
    tt_destroy_process_group(group);
}

/* A folder with a file in it that says it is a back end. */
static char folder[] = "/tmp/tutti-test-XXXXXX";
static char file[64];

static int make_folder(void **state) {
    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/libtutti-backend-broken.so", folder);
    FILE *stream = fopen(file, "w");
    assert_non_null(stream);
    fputs("no shared object", stream);
    fclose(stream);
    return setenv("TT_BACKEND_PATH", folder, 1);
}

static int remove_folder(void **state) {
    (void)state;
    return unlink(file) || rmdir(folder);
}

static void an_unknown_name_lists_those_there_are(void **state) {
    (void)state;
    const tt_backend *table = NULL;
    assert_int_equal(tt__plugin_load(&table, "smoke-signals"), TT_ERR_UNSUPPORTED);
    assert_text("no back end \"smoke-signals\"");
    assert_text("native, broken");
    assert_text(folder);
}

static void what_is_no_back_end_is_refused(void **state) {
    (void)state;
    const tt_backend *table = NULL;
    assert_int_equal(tt__plugin_load(&table, "broken"), TT_ERR_UNSUPPORTED);
    assert_text(file);
    assert_int_equal(tt__plugin_load(&table, "/nowhere/at-all.so"), TT_ERR_UNSUPPORTED);
    assert_text("/nowhere/at-all.so");
    assert_int_equal(tt__plugin_load(&table, "../relative"), TT_ERR_UNSUPPORTED);
}

/* A relative folder would be another one after a chdir(). */
static void a_relative_folder_is_passed_over(void **state) {
    (void)state;
    const tt_backend *table = NULL;
    char before[4096];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir("/tmp"), 0);
    assert_int_equal(setenv("TT_BACKEND_PATH", strrchr(folder, '/') + 1, 1), 0);
    assert_int_equal(tt__plugin_load(&table, "broken"), TT_ERR_UNSUPPORTED);
    assert_text("no back end \"broken\"");
    assert_int_equal(setenv("TT_BACKEND_PATH", folder, 1) || chdir(before), 0);
}

/* Whoever may write to a plug-in, or exchange it, could run as we do. */
static void what_others_may_write_is_not_loaded(void **state) {
    (void)state;
    const tt_backend *table = NULL;
    assert_int_equal(chmod(file, 0666), 0);
    assert_int_equal(tt__plugin_load(&table, "broken"), TT_ERR_AUTH);
    assert_text(file);
    assert_text("can be written by everybody");
    assert_int_equal(chmod(file, 0644) || chmod(folder, 0777), 0);
    assert_int_equal(tt__plugin_load(&table, "broken"), TT_ERR_AUTH);
    assert_int_equal(tt__plugin_load(&table, file), TT_ERR_AUTH);
    assert_int_equal(chmod(folder, 01777), 0); /* as /tmp */
    assert_int_equal(tt__plugin_load(&table, "broken"), TT_ERR_UNSUPPORTED);
    assert_text("file too short");
    assert_int_equal(chmod(folder, 0700), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_mandatory_slot_is_asked_for),   cmocka_unit_test(what_an_older_table_lacks_is_zero),
        cmocka_unit_test(a_status_alone_fails_the_call),       cmocka_unit_test(an_unknown_name_lists_those_there_are),
        cmocka_unit_test(what_is_no_back_end_is_refused),      cmocka_unit_test(a_relative_folder_is_passed_over),
        cmocka_unit_test(what_others_may_write_is_not_loaded),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
