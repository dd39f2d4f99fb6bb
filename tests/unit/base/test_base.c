/* base: errors, numbers from text, element types, descriptors and forked children. */
#include "base/error.h"
#include "base/process/fork.h"
#include "base/process/threads.h"
#include "base/setting.h"
#include "base/text/format.h"
#include "base/text/parse.h"
#include "base/text/plain_text.h"
#include "support/locales.h"
#include "support/own_folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void errors_carry_text(void **state) {
    (void)state;
    assert_int_equal(tt__fail(TT_ERR_SHAPE, "expected %d", 3), TT_ERR_SHAPE);
    assert_int_equal(tt_last_status(), TT_ERR_SHAPE);
    assert_string_equal(tt_last_error(), "expected 3");
    assert_int_equal(tt__fail_prefix("a.idx"), TT_ERR_SHAPE);
    assert_string_equal(tt_last_error(), "a.idx: expected 3");
    tt_clear_error();
    assert_int_equal(tt_last_status(), TT_OK);
    assert_string_equal(tt_status_name(TT_ERR_PEER), "TT_ERR_PEER");
    assert_string_equal(tt_status_name((tt_status)999), "TT_ERR_?");
}

/* What a program's own function said is kept; if it said nothing, the status speaks, not an older error. */
static void callbacks_errors_say_where(void **state) {
    (void)state;
    assert_int_equal(tt_fail(TT_ERR_IO, "no %s", "file"), TT_ERR_IO);
    uint64_t before = tt__error_count();
    assert_int_equal(tt__fail_callback(before, TT_ERR_SHAPE, "example %d", 3), TT_ERR_SHAPE);
    assert_string_equal(tt_last_error(), "example 3: shapes do not fit together");
    before = tt__error_count();
    assert_int_equal(tt_fail(TT_ERR_IO, "no file"), TT_ERR_IO);
    assert_int_equal(tt__fail_callback(before, TT_ERR_NET, "example %d", 4), TT_ERR_NET);
    assert_int_equal(tt_last_status(), TT_ERR_NET);
    assert_string_equal(tt_last_error(), "example 4: no file");
    tt_clear_error();
}

/* What an error quotes is anybody's, and it is cut where its room ends. */
static void errors_are_readable(void **state) {
    (void)state;
    tt__fail(TT_ERR_PEER, "rank 1 said \"%s\"\n\tand left", "\xff\033[31mcaf\xc3\xa9\xe6\x97\xc2\x9b.");
    assert_string_equal(tt_last_error(), "rank 1 said \"??[31mcaf\xc3\xa9????.\"\n\tand left");
    char text[2 * TT__ERROR_TEXT_SIZE];
    for (int before = 0; before < 3; before++) {
        size_t n = (size_t)before;
        memset(text, 'x', n);
        for (; n + 3 < sizeof text; n += 3)
            memcpy(text + n, "\xe6\x97\xa5", 4);
        tt__fail(TT_ERR_PEER, "%s", text);
        assert_true(tt__is_utf8(tt_last_error()));
        assert_null(strchr(tt_last_error(), '?'));
        assert_in_range(strlen(tt_last_error()), TT__ERROR_TEXT_SIZE - 8, TT__ERROR_TEXT_SIZE - 1);
    }
    tt__fail(TT_ERR_IO, "step 7: %s: disk full", text);
    assert_ptr_equal(strstr(tt_last_error(), "step 7: "), tt_last_error());
    assert_non_null(strstr(tt_last_error(), " [... left out ...] "));
    assert_string_equal(strrchr(tt_last_error(), ':'), ": disk full");
    tt_clear_error();
}

static void assert_left(const char *path, const char *text) {
    char found[4096] = "";
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_true(fread(found, 1, sizeof found - 1, file) > 0);
    fclose(file);
    if (!strstr(found, text) || strstr(found, "}}}\n") + 4 != found + strlen(found))
        fail_msg("expected %s alone in %s", text, found);
}

static void report(tt_status status, const char *text) {
    tt__fail(status, "%s", text);
    tt_report();
}

/* The launcher shows the error that ended the process: the last, but not what others did to it after its own, or what
 * it made of that. */
static void the_last_cause_is_left_for_the_launcher(void **state) {
    (void)state;
    char path[] = "/tmp/tutti-test-report-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    setenv("TORCHELASTIC_ERROR_FILE", path, 1);
    report(TT_ERR_IO, "no cache, going on without, which takes longer");
    assert_left(path, "TT_ERR_IO: no cache");
    report(TT_ERR_SHAPE, "fatal");
    assert_left(path, "TT_ERR_SHAPE: fatal");
    report(TT_ERR_PEER, "a consequence");
    assert_left(path, "TT_ERR_SHAPE: fatal");
    tt_clear_error();
    report(TT_ERR_PEER, "another rank");
    assert_left(path, "TT_ERR_PEER: another rank");
    report(TT_ERR_STATE, "nor can this be");
    assert_left(path, "TT_ERR_PEER: another rank");
    tt_clear_error();
    report(TT_ERR_STATE, "later");
    assert_left(path, "TT_ERR_STATE: later");
    tt_clear_error();
    unsetenv("TORCHELASTIC_ERROR_FILE");
    unlink(path);
}

/* Texts of files, as errors show them: UTF-8 stays, what is none or moves a terminal does not. */
static void texts_of_files_are_made_printable(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"\"caf\xc3\xa9\" \xe2\x82\xac \xf0\x9f\x98\x80", "\"caf\xc3\xa9\" \xe2\x82\xac \xf0\x9f\x98\x80"},
        {"a\x1b[31m\nb\x7f", "a?[31m?b?"},
        {"\x80,)", "?,)"},
        {"\xff\xfe\xc3", "???"},
        {"\xc2\x9b"
         "31m",
         "?31m"},                /* a terminal's control sequence as U+009B */
        {"\xed\xa0\x80", "???"}, /* a surrogate */
        {"", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(tt__make_printable(cases[i][0]).text, cases[i][1]);
    char text[200];
    memset(text, 'x', sizeof text);
    memcpy(text + 99, "\xc3\xa9", 3); /* 101 bytes: no half of a character */
    assert_int_equal(strlen(tt__make_printable(text).text), 102);
    assert_string_equal(tt__make_printable(text).text + 98, "x...");
    text[99] = 'x', text[100] = '\0';
    assert_string_equal(tt__make_printable(text).text, text);
}

static void numbers_are_strict(void **state) {
    (void)state;
    static const char *const bad[] = {NULL, "", " 1", "1 ", "x", "1x", "0x10", "99999999999999999999", "-1", "65536"};
    int64_t n = 7;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(tt__parse_i64("MASTER_PORT", bad[i], 0, 65535, &n), TT_ERR_INVALID);
        assert_non_null(strstr(tt_last_error(), "MASTER_PORT"));
        assert_int_equal(n, 7);
    }
    assert_int_equal(tt__parse_i64("MASTER_PORT", "65535", 0, 65535, &n), TT_OK);
    assert_int_equal(n, 65535);
    double x = 0;
    assert_int_equal(tt__parse_f64("--lr", "1e-3", &x), TT_OK);
    assert_true(x == 1e-3);
    assert_int_equal(tt__parse_f64("--lr", "nan", &x), TT_ERR_INVALID);
}

/* Whatever the locale, and every double comes back. */
static void numbers_are_those_of_the_c_locale(void **state) {
    (void)state;
    static const double numbers[] = {1.5, -0.1, 1e300, 5e-324, 1.0 / 3, 0, 16777217};
    for (int i = -1; i < DECIMAL_POINTS; i++) {
        if (i >= 0 && !use_decimal_point(i))
            skip(); /* no localedef */
        char text[64];
        double x;
        tt__format(text, sizeof text, "%.2f %s", 1234.5, "m");
        assert_string_equal(text, "1234.50 m");
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
            tt__format_shortest(text, sizeof text, 9, numbers[k]);
            assert_int_equal(strspn(text, "0123456789.e+-"), strlen(text));
            assert_true(tt__read_f64(text, &x) && x == numbers[k]);
        }
        assert_int_equal(tt__parse_f64("--lr", "1.5", &x), TT_OK);
        assert_true(x == 1.5);
        assert_int_equal(tt__parse_f64("--lr", "1,5", &x), TT_ERR_INVALID);
        tt_clear_error();
        setenv("TT_WAIT_NOTICE", "1.5", 1);
        assert_true(tt__setting_seconds(TT__WAIT_NOTICE) == 1.5);
        unsetenv("TT_WAIT_NOTICE");
    }
    use_c_locale();
}

static char logged[256];
static int log_lines;

static void keep_line(tt_log_level level, const char *text, void *user) {
    (void)user;
    log_lines += level == TT_LOG_WARNING;
    snprintf(logged, sizeof logged, "%s", text);
}

/* No value of a variable is ignored in silence. */
static void settings_are_strict(void **state) {
    (void)state;
    static const struct {
        const char *variable, *value, *text;
    } bad[] = {
        {"TT_WAIT_NOTICE", "abc", "TT_WAIT_NOTICE: expected seconds from 0 to 86400, got \"abc\""},
        {"TT_WAIT_NOTICE", "1,5", "TT_WAIT_NOTICE: expected seconds from 0 to 86400, got \"1,5\""},
        {"TT_CRASH_STACKS", "-1", "TT_CRASH_STACKS: expected seconds from 0 to 86400, got \"-1\""},
        {"TT_CRASH_STACKS", "nan", "TT_CRASH_STACKS: expected seconds from 0 to 86400, got \"nan\""},
        {"TT_DEBUG", "yes", "TT_DEBUG: expected 1 or 0, got \"yes\""},
        {"TT_BACKEND_CHECK", "off", "TT_BACKEND_CHECK: expected 1 or 0, got \"off\""},
    };
    assert_int_equal(tt__settings_check(), TT_OK);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        setenv(bad[i].variable, bad[i].value, 1);
        assert_int_equal(tt__settings_check(), TT_ERR_INVALID);
        assert_string_equal(tt_last_error(), bad[i].text);
        unsetenv(bad[i].variable);
    }
    assert_int_equal(tt_fail(TT_ERR_IO, "before"), TT_ERR_IO);
    tt_set_log(keep_line, NULL);
    setenv("TT_CRASH_STACKS", "soon", 1);
    for (int i = 0; i < 2; i++)
        assert_true(tt__setting_seconds(TT__CRASH_STACKS) == 1);
    unsetenv("TT_CRASH_STACKS");
    tt_set_log(NULL, NULL);
    assert_int_equal(log_lines, 1);
    assert_string_equal(logged, "TT_CRASH_STACKS: expected seconds from 0 to 86400, got \"soon\"; the default holds");
    assert_string_equal(tt_last_error(), "before");
    tt_clear_error();
}

static void dtypes_have_sizes(void **state) {
    (void)state;
    assert_int_equal(tt_dtype_size(TT_F64), 8);
    assert_string_equal(tt_dtype_name(TT_U8), "u8");
    assert_int_equal(tt_dtype_size(TT_BF16), 2);
    assert_string_equal(tt_dtype_name(TT_BOOL), "bool");
    assert_int_equal(tt_dtype_size((tt_dtype)99), 0);
}

static bool is_socket(int fd) {
    struct stat info;
    return !fstat(fd, &info) && S_ISSOCK(info.st_mode);
}

static bool is_open(int fd) {
    struct stat info;
    return !fstat(fd, &info);
}

/* A child gets something else in place of the marked ones, also where it may have no more descriptors. */
static void children_keep_no_marked_descriptors(void **state) {
    (void)state;
    for (int full = 0; full < 2; full++) {
        int pairs[3][2], ended = 0;
        struct rlimit limit;
        for (int i = 0; i < 3; i++)
            assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pairs[i]), 0);
        tt__fork_fd_drop(pairs[0][0]);
        tt__fork_fd_drop(pairs[1][0]);
        tt__fork_fd_drop(pairs[2][0]);
        tt__fork_fd_forget(pairs[2][0]);
        tt__fork_fd_forget(-1);
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
        const struct rlimit used = {full ? (rlim_t)pairs[2][1] + 1 : limit.rlim_cur, limit.rlim_max};
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &used), 0);
        pid_t child = fork();
        if (!child) {
            bool dropped =
                is_open(pairs[0][0]) && is_open(pairs[1][0]) && !is_socket(pairs[0][0]) && !is_socket(pairs[1][0]);
            _exit(dropped && is_socket(pairs[0][1]) && is_socket(pairs[2][0]) ? 0 : 1);
        }
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
        assert_int_equal(waitpid(child, &ended, 0), child);
        assert_int_equal(ended, 0);
        for (int i = 0; i < 3; i++) {
            assert_true(is_socket(pairs[i][0]));
            tt__fork_fd_forget(pairs[i][0]);
            close(pairs[i][0]);
            close(pairs[i][1]);
        }
    }
}

/* ---- threads ---- */

static void *stack_of_thread(void *size) {
    pthread_attr_t attr;
    void *low;
    assert_int_equal(pthread_getattr_np(pthread_self(), &attr), 0);
    assert_int_equal(pthread_attr_getstack(&attr, &low, size), 0);
    pthread_attr_destroy(&attr);
    return NULL;
}

static void threads_have_room_under_a_small_limit(void **state) {
    (void)state;
    pthread_attr_t attr;
    pthread_t thread;
    size_t before, size = 0;
    pthread_attr_init(&attr);
    assert_int_equal(pthread_getattr_default_np(&attr), 0);
    pthread_attr_getstacksize(&attr, &before);
    pthread_attr_setstacksize(&attr, 64 << 10); /* as `ulimit -s 64` */
    assert_int_equal(pthread_setattr_default_np(&attr), 0);
    assert_int_equal(tt__thread_create(&thread, stack_of_thread, &size, "a test's thread"), TT_OK);
    pthread_join(thread, NULL);
    assert_true(size >= 512 << 10);
    pthread_attr_setstacksize(&attr, before);
    assert_int_equal(pthread_setattr_default_np(&attr), 0);
    pthread_attr_destroy(&attr);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_carry_text),
        cmocka_unit_test(callbacks_errors_say_where),
        cmocka_unit_test(errors_are_readable),
        cmocka_unit_test(the_last_cause_is_left_for_the_launcher),
        cmocka_unit_test(texts_of_files_are_made_printable),
        cmocka_unit_test(numbers_are_strict),
        cmocka_unit_test(numbers_are_those_of_the_c_locale),
        cmocka_unit_test(settings_are_strict),
        cmocka_unit_test(dtypes_have_sizes),
        cmocka_unit_test(children_keep_no_marked_descriptors),
        cmocka_unit_test(threads_have_room_under_a_small_limit),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
