/* Log lines: who gets them, and what TT_LOG writes to stderr. Each case is a process of its own, since TT_LOG is read
 * once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/text/plain_text.h"

#include <regex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void log_all(void) {
    tt__log(TT_LOG_DEBUG, "detail %d", 1);
    tt__log(TT_LOG_INFO, "news %s", "two");
    tt__log(TT_LOG_WARNING, "trouble");
}

/* What `body` writes to stderr with TT_LOG=level (NULL: unset). */
static const char *stderr_of(const char *level, void (*body)(void)) {
    static char text[8192];
    int ends[2], status;
    size_t n = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (!pid) {
        dup2(ends[1], STDERR_FILENO);
        if (level)
            setenv("TT_LOG", level, 1);
        else
            unsetenv("TT_LOG");
        body();
        _exit(0);
    }
    close(ends[1]);
    for (ssize_t got; (got = read(ends[0], text + n, sizeof text - 1 - n)) > 0;)
        n += (size_t)got;
    close(ends[0]);
    text[n] = '\0';
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    return text;
}

static void assert_matches(const char *text, const char *pattern) {
    regex_t regex;
    assert_int_equal(regcomp(&regex, pattern, REG_EXTENDED | REG_NOSUB), 0);
    if (regexec(&regex, text, 0, NULL, 0))
        fail_msg("expected /%s/, got \"%s\"", pattern, text);
    regfree(&regex);
}

#define CLOCK "[0-9][0-9]:[0-9][0-9]:[0-9][0-9]\\.[0-9]{3}"

static void test_silent_unless_asked(void **state) {
    (void)state;
    assert_string_equal(stderr_of(NULL, log_all), "");
    assert_string_equal(stderr_of("", log_all), "");
}

static void log_as_rank(void) {
    tt__set_report_rank(3);
    log_all();
}

static void test_levels(void **state) {
    (void)state;
    assert_matches(stderr_of("warning", log_all), "^tutti: " CLOCK " warning: trouble\n$");
    assert_matches(stderr_of("info", log_as_rank),
                   "^tutti: " CLOCK " rank 3: info: news two\ntutti: " CLOCK " rank 3: warning: trouble\n$");
    assert_matches(stderr_of("debug", log_all), "^tutti: " CLOCK " debug: detail 1\n.*news two\n.*trouble\n$");
    assert_matches(stderr_of("loud", log_all),
                   "^.*TT_LOG: expected debug, info or warning, got \"loud\"\n.*trouble\n$");
}

static void print_line(tt_log_level level, const char *line, void *user) {
    dprintf(STDERR_FILENO, "%s %d %s\n", (const char *)user, (int)level, line);
}

static void log_to_callback(void) {
    static char user[] = "mine";
    tt_set_log(print_line, user);
    log_all();
}

static void test_the_program_gets_all(void **state) {
    (void)state;
    assert_string_equal(stderr_of(NULL, log_to_callback), "mine 0 detail 1\nmine 1 news two\nmine 2 trouble\n");
    assert_matches(stderr_of("warning", log_to_callback),
                   "^mine 0 detail 1\nmine 1 news two\nmine 2 trouble\ntutti: " CLOCK " warning: trouble\n$");
}

static void log_as_command(void) {
    tt__log_to_stderr("tutti test", TT_LOG_WARNING);
    log_all();
}

static void test_commands(void **state) {
    (void)state;
    assert_string_equal(stderr_of(NULL, log_as_command), "tutti test: trouble\n");
    assert_matches(stderr_of("info", log_as_command), "^tutti test: " CLOCK " info: news two\n.*trouble\n$");
}

static void log_long(void) {
    char text[4000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    tt__log(TT_LOG_WARNING, "%s", text);
}

static void test_long_lines_are_cut(void **state) {
    (void)state;
    const char *text = stderr_of("debug", log_long);
    assert_in_range(strlen(text), 1000, 1200);
    assert_int_equal(text[strlen(text) - 1], '\n');
}

static void check_wanted(void) {
    if (tt__log_wanted(TT_LOG_DEBUG) || !tt__log_wanted(TT_LOG_INFO))
        dprintf(STDERR_FILENO, "wrong");
}

static void test_wanted(void **state) {
    (void)state;
    assert_string_equal(stderr_of("info", check_wanted), "");
}

static void log_quote(void) {
    tt__log(TT_LOG_WARNING, "it said \"%s\"",
            "\033[31;1mred\033[0m\033]0;title\a, \r\b\x7f\xc2\x9b"
            "2J caf\xc3\xa9\t\xff\ntutti: forged");
}

/* What others wrote does nothing to a terminal, and is no line of its own. */
static void test_quotes_are_plain(void **state) {
    (void)state;
    assert_non_null(strstr(stderr_of("warning", log_quote), "it said \"red, 2J caf\xc3\xa9\t? tutti: forged\"\n"));
}

static void test_names_stay_in_their_line(void **state) {
    (void)state;
    char name[] = "train\n0  4711 running\t\033[2Jfine";
    assert_string_equal(tt__make_plain_name(name), "train 0  4711 running fine");
}

static void log_to_nobody(void) {
    int ends[2];
    signal(SIGPIPE, SIG_DFL);
    if (pipe(ends) || dup2(ends[1], STDERR_FILENO) < 0 || close(ends[0]))
        _exit(1);
    log_all();
}

static void log_to_a_full_file(void) {
    FILE *file = tmpfile();
    signal(SIGXFSZ, SIG_DFL);
    if (!file || setrlimit(RLIMIT_FSIZE, &(struct rlimit){16, 16}) || dup2(fileno(file), STDERR_FILENO) < 0)
        _exit(1);
    log_all();
    log_all();
}

/* The kernel sends a signal with such an error, which is no reason to end. One that was on its way before stays. */
static void log_with_a_signal_on_its_way(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    sigprocmask(SIG_BLOCK, &set, NULL);
    raise(SIGPIPE);
    log_to_nobody();
    if (sigpending(&set) || !sigismember(&set, SIGPIPE))
        _exit(1);
}

static void test_lines_that_cannot_be_written(void **state) {
    (void)state;
    stderr_of("debug", log_to_nobody);
    stderr_of("debug", log_to_a_full_file);
    stderr_of("debug", log_with_a_signal_on_its_way);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_silent_unless_asked),
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_the_program_gets_all),
        cmocka_unit_test(test_commands),
        cmocka_unit_test(test_quotes_are_plain),
        cmocka_unit_test(test_names_stay_in_their_line),
        cmocka_unit_test(test_long_lines_are_cut),
        cmocka_unit_test(test_wanted),
        cmocka_unit_test(test_lines_that_cannot_be_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
