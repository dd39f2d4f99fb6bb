/* A program that saves checkpoints in a loop is killed at random moments, 200 times: the file always is one whole
 * save, and what a killed save left behind is gone after the next one. */
#include <dirent.h>
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <cmocka.h>

enum { KILLS = 200 };

static char folder[] = "/tmp/tutti-kill-XXXXXX";

/* Start the saver and return when it is about to save. */
static pid_t start_saver(void) {
    int out[2];
    char program[4096], byte;
    snprintf(program, sizeof program, "%s/checkpoint_saver", getenv("TT_PROGRAMS"));
    assert_int_equal(pipe(out), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(out[1], STDOUT_FILENO);
        execl(program, program, "checkpoint", (char *)NULL);
        _exit(127);
    }
    close(out[1]);
    assert_int_equal(read(out[0], &byte, 1), 1);
    close(out[0]);
    return child;
}

/* xorshift: the moments differ from run to run of the loop, not from run to run of the test. */
static uint32_t next_random(void) {
    static uint32_t x = 2463534242;
    x ^= x << 13;
    x ^= x >> 17;
    return x ^= x << 5;
}

static void kill_saver(pid_t child) {
    assert_int_equal(kill(child, SIGKILL), 0);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void sleep_us(int64_t us) { nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL); }

/* The time that a save takes on this disk, in microseconds. */
static int64_t time_one_save(void) {
    pid_t child = start_saver();
    int64_t waited = 0;
    for (; access("checkpoint", F_OK) != 0; waited += 100) {
        assert_true(waited < 60 * 1000000);
        sleep_us(100);
    }
    kill_saver(child);
    return waited;
}

static int temporaries(void) {
    int n = 0;
    DIR *d = opendir(".");
    for (struct dirent *e; (e = readdir(d));)
        n += strncmp(e->d_name, "checkpoint.tmp-", 15) == 0;
    closedir(d);
    return n;
}

/* The number of the save in the file, -1 if there is none yet. All of it must be of that save. */
static double check_file(void) {
    tt_safetensors *file;
    if (access("checkpoint", F_OK) != 0)
        return -1;
    if (tt_safetensors_load(&file, "checkpoint"))
        fail_msg("%s", tt_last_error());
    double save = strtod(tt_safetensors_metadata(file, "save"), NULL);
    const tt_named_tensors *t = tt_safetensors_tensors(file);
    assert_int_equal(t->count, 4);
    for (int64_t i = 0; i < t->count; i++)
        for (int64_t k = 0; k < tt_tensor_numel(t->tensors[i]); k++)
            if (tt_tensor_f32(t->tensors[i])[k] != (float)save)
                fail_msg("tensor %s holds a value of another save", t->names[i]);
    tt_safetensors_free(file);
    return save;
}

static void every_kill_leaves_a_whole_file(void **state) {
    (void)state;
    int64_t longest = 3000 + 4 * time_one_save();
    int whole = 0, left_behind = 0;
    for (int i = 0; i < KILLS; i++) {
        pid_t child = start_saver();
        sleep_us(next_random() % (uint32_t)longest);
        kill_saver(child);
        whole += check_file() >= 0;
        int left = temporaries();
        left_behind += left;
        assert_true(left <= 1); /* earlier ones are gone */
    }
    assert_true(whole > 0);
    assert_true(left_behind > 0); /* else no kill struck in the middle of a save, and nothing was tested */
    tt_tensor *x = tt_ones(TT_SHAPE(1), TT_F32);
    const char *name = "x";
    assert_int_equal(tt_safetensors_save("checkpoint", TT_NAMED_TENSORS(1, &name, &x), NULL, 0), TT_OK);
    assert_int_equal(temporaries(), 0);
    tt_tensor_free(x);
}

static int make_folder(void **state) {
    (void)state;
    return getenv("TT_PROGRAMS") && mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    remove("checkpoint");
    return chdir("/") == 0 ? rmdir(folder) : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_kill_leaves_a_whole_file)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
