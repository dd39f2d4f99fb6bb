/* Files that appear whole or not at all, and replace only what they may. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <tutti/checkpoint.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "support/own_folder.h"

static bool exists(const char *path) { return access(path, F_OK) == 0; }

/* The kernel would end the process. */
static void a_limit_that_comes_while_writing_is_an_error(void **state) {
    (void)state;
    tt__atomic_file f;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(tt__atomic_open(&f, "limited"), TT_OK);
    assert_int_equal(tt__atomic_write(&f, "some", 4), TT_OK);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){2, before.rlim_max}), 0);
    tt_status status = tt__atomic_write(&f, "more", 4);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, TT_ERR_IO);
    assert_non_null(strstr(tt_last_error(), "ulimit -f"));
    tt__atomic_abort(&f);
    assert_false(exists("limited"));
}

static void aborted_files_leave_the_old_one(void **state) {
    (void)state;
    tt__atomic_file f;
    assert_int_equal(tt__atomic_open(&f, "target"), TT_OK);
    assert_int_equal(tt__atomic_write(&f, "old", 3), TT_OK);
    assert_int_equal(tt__atomic_commit(&f), TT_OK);
    assert_int_equal(tt__atomic_open(&f, "target"), TT_OK);
    assert_int_equal(tt__atomic_write(&f, "new", 3), TT_OK);
    char temporary[64];
    snprintf(temporary, sizeof temporary, "%s", f.temporary);
    assert_true(exists(temporary));
    tt__atomic_abort(&f);
    tt__atomic_abort(&f);
    assert_false(exists(temporary));
    size_t size;
    unsigned char *bytes = slurp("target", &size);
    assert_int_equal(size, 3);
    assert_memory_equal(bytes, "old", 3);
    free(bytes);
    assert_int_equal(tt__atomic_open(&f, "no/such/folder/x"), TT_ERR_IO);
    assert_non_null(strstr(tt_last_error(), "no/such/folder/x"));
    assert_int_equal(tt__atomic_open(&f, ""), TT_ERR_INVALID);
    assert_int_equal(tt__atomic_open(&f, "folder/"), TT_ERR_INVALID);
}

/* Only what a dead writer of this very target left is removed. */
static void a_signal_leaves_no_temporaries(void **state) {
    (void)state;
    tt__atomic_file a, b;
    assert_int_equal(tt__atomic_open(&a, "one"), TT_OK);
    assert_int_equal(tt__atomic_open(&b, "two"), TT_OK);
    char first[64], second[64];
    snprintf(first, sizeof first, "%s", a.temporary);
    snprintf(second, sizeof second, "%s", b.temporary);
    assert_int_equal(tt__atomic_commit(&a), TT_OK);
    tt__atomic_remove_temporaries();
    assert_true(exists("one") && !exists(first) && !exists(second));
    assert_int_equal(tt__atomic_commit(&b), TT_ERR_IO);
    assert_false(exists("two"));
    tt__atomic_remove_temporaries();
    assert_int_equal(unlink("one"), 0);
}

static void stale_temporaries_go(void **state) {
    (void)state;
    static const char *const stale[] = {"t.tmp-1-0", "t.tmp-4194305-17"};
    static const char *const others[] = {"u.tmp-4194305-0", "t.tmp-4194305", "t.tmp-1-2x", "t.tmp--1", "tt.tmp-9-9"};
    for (size_t i = 0; i < sizeof stale / sizeof *stale; i++)
        fclose(fopen(stale[i], "w"));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        fclose(fopen(others[i], "w"));
    tt__atomic_file living, next;
    assert_int_equal(tt__atomic_open(&living, "t"), TT_OK);
    for (size_t i = 0; i < sizeof stale / sizeof *stale; i++)
        assert_false(exists(stale[i]));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        assert_true(exists(others[i]));
    assert_int_equal(tt__atomic_open(&next, "t"), TT_OK); /* two writers at once: the later commit wins */
    assert_true(exists(living.temporary));
    assert_int_equal(tt__atomic_commit(&living), TT_OK);
    assert_int_equal(tt__atomic_commit(&next), TT_OK);
}

static void a_dead_writers_temporary_goes(void **state) {
    (void)state;
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        tt__atomic_file f;
        bool ok = tt__atomic_open(&f, "k") == TT_OK && tt__atomic_write(&f, "half", 4) == TT_OK &&
                  write(ready[1], "1", 1) == 1;
        for (;;)
            ok ? (void)pause() : _exit(1);
    }
    char byte;
    assert_int_equal(read(ready[0], &byte, 1), 1);
    char temporary[64];
    snprintf(temporary, sizeof temporary, "k.tmp-%ld-0", (long)child);
    tt__atomic_file f;
    assert_int_equal(tt__atomic_open(&f, "k"), TT_OK);
    assert_true(exists(temporary)); /* its writer lives */
    assert_int_equal(tt__atomic_commit(&f), TT_OK);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(tt__atomic_open(&f, "k"), TT_OK);
    assert_false(exists(temporary));
    tt__atomic_abort(&f);
    close(ready[0]);
    close(ready[1]);
}

static mode_t mode_of(const char *path) {
    struct stat s;
    assert_int_equal(lstat(path, &s), 0);
    return s.st_mode;
}

static tt_status write_file(const char *path, const char *text) {
    tt__atomic_file f;
    TT__TRY(tt__atomic_open(&f, path));
    assert_int_equal(tt__atomic_write(&f, text, strlen(text)), TT_OK);
    return tt__atomic_commit(&f);
}

static void targets_stay_what_they_are(void **state) {
    (void)state;
    size_t size;
    assert_int_equal(write_file("private", "one"), TT_OK);
    assert_int_equal(chmod("private", 0600), 0);
    assert_int_equal(write_file("private", "two"), TT_OK);
    assert_int_equal(mode_of("private") & 07777, 0600);
    /* links, also where they lead to nothing yet */
    assert_int_equal(mkdir("inner", 0755), 0);
    assert_int_equal(symlink("file", "inner/link"), 0);
    assert_int_equal(symlink("inner/link", "link"), 0);
    for (int round = 0; round < 2; round++) {
        assert_int_equal(write_file("link", "text"), TT_OK);
        assert_true(S_ISLNK(mode_of("link")) && S_ISLNK(mode_of("inner/link")) && S_ISREG(mode_of("inner/file")));
    }
    free(slurp("link", &size));
    assert_int_equal(size, 4);
    assert_int_equal(symlink("circle", "circle"), 0);
    assert_int_equal(write_file("circle", "text"), TT_ERR_IO);
    /* a device: the link to it stays, and there is no temporary */
    assert_int_equal(symlink("/dev/null", "null"), 0);
    assert_int_equal(write_file("null", "gone"), TT_OK);
    assert_true(S_ISLNK(mode_of("null")));
    assert_int_equal(mkfifo("queue", 0600), 0);
    assert_int_equal(write_file("queue", "text"), TT_ERR_INVALID);
    assert_non_null(strstr(tt_last_error(), "queue: expected a file, got a FIFO"));
    assert_true(S_ISFIFO(mode_of("queue")));
    assert_int_equal(write_file("inner", "text"), TT_ERR_INVALID);
    assert_non_null(strstr(tt_last_error(), "a directory"));
    assert_true(!unlink("inner/file") && !unlink("inner/link") && !rmdir("inner")); /* nothing else is in it */
}

/* As in /tmp: another user's link could lead root anywhere, whether its target exists or not. */
static void links_of_others_are_not_followed(void **state) {
    enum { STRANGER = 61234 };
    (void)state;
    assert_int_equal(mkdir("open", 0777), 0);
    assert_int_equal(chmod("open", 01777), 0);
    assert_int_equal(symlink("../led", "open/own"), 0);
    assert_int_equal(write_file("open/own", "text"), TT_OK);
    if (geteuid() == 0) {
        assert_int_equal(symlink("../led-astray", "open/link"), 0);
        assert_int_equal(symlink("/dev/null", "open/null"), 0);
        assert_int_equal(lchown("open/link", STRANGER, STRANGER), 0);
        assert_int_equal(lchown("open/null", STRANGER, STRANGER), 0);
        assert_int_equal(write_file("open/link", "text"), TT_ERR_IO);
        assert_int_equal(write_file("open/null", "text"), TT_ERR_IO);
        assert_int_equal(chmod("open", 0777), 0); /* strangers could put it there all the same */
        assert_int_equal(write_file("open/link", "text"), TT_ERR_IO);
        static const mode_t shared[] = {0775, 02775, 02770, 01777}; /* as the folders of a project */
        for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) {
            assert_int_equal(chown("open", i % 2 ? STRANGER : 0, STRANGER), 0);
            assert_int_equal(chmod("open", shared[i]), 0);
            assert_int_equal(write_file("open/link", "text"), TT_ERR_IO);
            assert_non_null(strstr(tt_last_error(), "open/link: another user's symbolic link"));
            assert_int_equal(write_file("open/null", "text"), TT_ERR_IO);
            assert_int_equal(write_file("open/own", "text"), TT_OK);
        }
        assert_false(exists("led-astray"));
        assert_true(!chown("open", STRANGER, STRANGER) && !chmod("open", 0755)); /* nobody else may write there: */
        assert_int_equal(write_file("open/link", "text"), TT_OK);
        assert_true(exists("led-astray"));
    } else {
        print_message("not root: links of other users can't be made\n");
    }
}

/* A link on the way to a file: a stranger's is refused, the directory's owner may have some. */
static void links_to_folders(void **state) {
    enum { STRANGER = 61234, OTHER };
    (void)state;
    assert_true(!mkdir("real", 0755) && !mkdir("group", 0755) && !symlink("../real", "group/link"));
    assert_int_equal(write_file("group/link/../real/./file", "text"), TT_OK);
    assert_true(exists("real/file"));
    if (geteuid() != 0) {
        print_message("not root: links of other users can't be made\n");
        return;
    }
    assert_true(!lchown("group/link", STRANGER, STRANGER) && !chmod("group", 02775) && !chown("group", OTHER, OTHER));
    assert_int_equal(write_file("group/link/new", "text"), TT_ERR_IO);
    assert_non_null(strstr(tt_last_error(), "group/link: another user's symbolic link"));
    assert_int_equal(chown("group", STRANGER, OTHER), 0);
    assert_int_equal(chmod("group", 02775), 0);
    assert_int_equal(write_file("group/link/new", "text"), TT_OK);
    assert_true(exists("real/new") && !exists("group/new"));
}

/* In such a directory only its owner replaces a file; root could, and would give what it writes to that owner. */
static void files_of_others_are_refused_at_once(void **state) {
    enum { STRANGER = 61234 };
    (void)state;
    if (geteuid()) {
        print_message("not root: files of other users can't be made\n");
        return;
    }
    assert_true(!mkdir("shared", 0777) && !chmod("shared", 01777) && !chmod(".", 0711));
    assert_int_equal(write_file("shared/theirs", "text"), TT_OK);
    assert_int_equal(write_file("shared/roots", "text"), TT_OK);
    assert_int_equal(chmod("shared/roots", 0666), 0);
    assert_int_equal(chown("shared/theirs", STRANGER, STRANGER), 0);
    assert_int_equal(write_file("shared/theirs", "secret"), TT_ERR_IO);
    assert_non_null(strstr(tt_last_error(), "shared/theirs: another user's file"));
    assert_int_equal(write_file("shared/roots", "again"), TT_OK);
    pid_t child = fork();
    if (child == 0)
        _exit(setresuid(STRANGER, STRANGER, STRANGER) || tt_checkpoint_can_save("shared/roots") != TT_ERR_IO ||
              !strstr(tt_last_error(), "another user's file") || tt_checkpoint_can_save("shared/theirs"));
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(chown("shared", STRANGER, STRANGER), 0); /* it is this user's directory: */
    assert_int_equal(write_file("shared/theirs", "text"), TT_OK);
}

/* Somebody who may write to the folder, too, makes a file that is open to all, and waits for what replaces it. */
static void files_of_others_hand_nothing_down(void **state) {
    enum { STRANGER = 61234 };
    struct stat info;
    (void)state;
    if (geteuid()) {
        print_message("not root: files of other users can't be made\n");
        return;
    }
    mode_t before = umask(022);
    assert_true(!mkdir("project", 0755) && !chown("project", 0, STRANGER) && !chmod("project", 02775));
    assert_int_equal(write_file("project/theirs", "text"), TT_OK);
    assert_true(!chown("project/theirs", STRANGER, STRANGER) && !chmod("project/theirs", 0666));
    assert_int_equal(write_file("project/theirs", "secret"), TT_OK);
    assert_int_equal(stat("project/theirs", &info), 0);
    assert_int_equal(info.st_uid, 0);
    assert_int_equal(info.st_mode & 0777, 0644);
    assert_true(!chown("project/theirs", STRANGER, STRANGER) && !chmod("project/theirs", 0060));
    assert_int_equal(write_file("project/theirs", "secret"), TT_OK);
    assert_int_equal(mode_of("project/theirs") & 0777, 0640);
    assert_int_equal(chmod("project", 0755), 0); /* nobody else could have put it there */
    assert_true(!chown("project/theirs", STRANGER, STRANGER) && !chmod("project/theirs", 0640));
    assert_int_equal(write_file("project/theirs", "text"), TT_OK);
    assert_int_equal(stat("project/theirs", &info), 0);
    assert_true(info.st_uid == STRANGER && (info.st_mode & 0777) == 0640);
    umask(before);
}

/* By its name, and as /dev/stdout. */
static void the_programs_own_output_is_not_replaced(void **state) {
    (void)state;
    pid_t child = fork();
    if (child == 0) {
        int output = open("output", O_WRONLY | O_CREAT, 0600);
        if (output < 0 || dup2(output, STDOUT_FILENO) < 0 || write(STDOUT_FILENO, "printed", 7) != 7)
            _exit(2);
        _exit(write_file("/dev/stdout", "text") != TT_ERR_INVALID || !strstr(tt_last_error(), "own output") ||
              write_file("output", "text") != TT_ERR_INVALID || write_file("other", "text"));
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    char text[8] = "";
    int fd = open("output", O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(read(fd, text, sizeof text), 7);
    close(fd);
    assert_string_equal(text, "printed");
}

enum { SAVES = 50, WHOLE = 20000, CHECKS = 1000 };

/* Each file is one letter. */
static bool save_in_a_loop(char letter) {
    static char text[WHOLE];
    memset(text, letter, sizeof text);
    for (int i = 0; i < SAVES; i++) {
        tt__atomic_file f;
        if (tt__atomic_open(&f, "both") || tt__atomic_write(&f, text, sizeof text) || tt__atomic_commit(&f)) {
            fprintf(stderr, "save %d: %s\n", i, tt_last_error());
            return false;
        }
    }
    return true;
}

/* Put one new file after the other in its place, as fast as that goes, until killed. */
static void replace_for_ever(void) {
    for (;;) {
        int fd = open("other-new", O_WRONLY | O_CREAT, 0600);
        if (fd < 0 || close(fd) || rename("other-new", "both"))
            _exit(1);
    }
}

/* Two jobs that save to one path: every save succeeds, and the file is one of them. */
static void two_savers_of_one_path(void **state) {
    (void)state;
    int status;
    pid_t child = fork();
    if (child == 0)
        _exit(!save_in_a_loop('b'));
    bool saved = save_in_a_loop('a');
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(saved && status == 0);
    size_t size;
    unsigned char *bytes = slurp("both", &size);
    assert_int_equal(size, WHOLE);
    for (size_t i = 0; i < size; i++)
        assert_int_equal(bytes[i], bytes[0]);
    free(bytes);
    child = fork();
    if (child == 0)
        replace_for_ever();
    tt_status checked = TT_OK;
    for (int i = 0; i < CHECKS && !checked; i++)
        checked = tt__atomic_check("both");
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (checked)
        fail_msg("%s", tt_last_error());
    /* and a file without a name is still none that can be replaced */
    char path[32];
    int fd = open("nameless", O_WRONLY | O_CREAT, 0600);
    assert_true(fd >= 0 && !unlink("nameless"));
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    assert_int_equal(write_file(path, "text"), TT_ERR_INVALID);
    assert_non_null(strstr(tt_last_error(), "expected a file that has a name"));
    close(fd);
}

static void a_path_is_checked_without_being_written(void **state) {
    (void)state;
    assert_int_equal(tt_checkpoint_can_save("new"), TT_OK);
    assert_false(exists("new"));
    assert_int_equal(tt_checkpoint_can_save("no/such/folder"), TT_ERR_IO);
    assert_non_null(strstr(tt_last_error(), "no/such/folder"));
    assert_int_equal(tt_checkpoint_can_save(NULL), TT_ERR_INVALID);
    assert_int_equal(tt_checkpoint_can_save("."), TT_ERR_INVALID);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(aborted_files_leave_the_old_one),
        cmocka_unit_test(a_signal_leaves_no_temporaries),
        cmocka_unit_test(stale_temporaries_go),
        cmocka_unit_test(a_dead_writers_temporary_goes),
        cmocka_unit_test(targets_stay_what_they_are),
        cmocka_unit_test(a_limit_that_comes_while_writing_is_an_error),
        cmocka_unit_test(links_of_others_are_not_followed),
        cmocka_unit_test(links_to_folders),
        cmocka_unit_test(files_of_others_hand_nothing_down),
        cmocka_unit_test(files_of_others_are_refused_at_once),
        cmocka_unit_test(the_programs_own_output_is_not_replaced),
        cmocka_unit_test(two_savers_of_one_path),
        cmocka_unit_test(a_path_is_checked_without_being_written),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
