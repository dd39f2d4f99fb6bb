/* A storm of kills with --max-restarts: in attempt after attempt a rank is killed at a random moment, before it has
 * joined, in its calls, or right after the last attempt. Then the job is left to succeed, or its attempts are used up,
 * or its launcher or its keeper gets a signal at a random moment, also between attempts. Each time the exit code is
 * right, each killed rank is named as the first of its attempt, no rank meets one of another attempt (restarting.c
 * looks), and nothing is left: no process and no file. A storm prints how long it took from a kill to the first
 * reduction of the next attempt. */
#include "support/process.h"
#include "support/storm.h"

enum { WORLD = 3, MAX_KILLS = 3, MAX_TIMES = 4096 };

typedef enum ending { SUCCEEDS, IS_USED_UP, LAUNCHER_KILLED, LAUNCHER_TOLD, KEEPER_KILLED, ENDINGS } ending;

static const char *const ending_names[] = {"succeeds", "uses up its attempts", "loses its launcher", "is told to end",
                                           "loses its keeper"};

typedef struct scene {
    process *p;
    ending ending;
    int kills, attempts; /* ranks that are killed, one an attempt; attempts that are allowed */
    int told;            /* the launcher's signal */
    int victims[MAX_KILLS];
    pid_t killed[MAX_KILLS];
} scene;

static double recoveries_ms[MAX_TIMES];
static int recovery_count;

static void wait_ms(process *p, int64_t ms) {
    for (int64_t end = process_now_ms() + ms, left; (left = end - process_now_ms()) > 0;)
        process_read(p, (int)left);
}

/* Find the pid in "born ATTEMPT RANK PID PARENT.", or with `parent` its parent's; waits for the line. */
static pid_t pid_of_rank(process *p, int attempt, int rank, bool parent) {
    char line[48];
    int pid, of;
    snprintf(line, sizeof line, "born %d %d ", attempt, rank);
    for (;;) {
        process_expect(p, 0, line, 1);
        if (sscanf(strstr(p->text[0], line) + strlen(line), "%d %d.", &pid, &of) == 2)
            return parent ? of : pid;
        process_read(p, 10);
    }
}

/* Wait until all ranks of the attempt have reduced; returns when. */
static int64_t wait_until_up(process *p, int attempt) {
    char line[48];
    snprintf(line, sizeof line, "up %d ", attempt);
    process_expect(p, 0, line, WORLD);
    return process_now_ms();
}

/* Kill a rank of the attempt: as soon as it is there, or while all reduce. */
static int64_t kill_rank(scene *scene, int attempt, uint64_t *state, int64_t killed_ms) {
    int victim = (int)storm_below(state, WORLD);
    pid_t pid = pid_of_rank(scene->p, attempt, victim, false);
    if (storm_below(state, 3)) {
        int64_t up_ms = wait_until_up(scene->p, attempt);
        if (killed_ms && recovery_count < MAX_TIMES)
            recoveries_ms[recovery_count++] = (double)(up_ms - killed_ms);
        wait_ms(scene->p, (int64_t)storm_below(state, 30));
    } else {
        wait_ms(scene->p, (int64_t)storm_below(state, 15));
    }
    scene->victims[attempt] = victim;
    scene->killed[attempt] = pid;
    assert_int_equal(kill(pid, SIGKILL), 0);
    return process_now_ms();
}

static void end_scene(scene *scene, uint64_t *state) {
    pid_t keeper = pid_of_rank(scene->p, 0, 0, true);
    if (scene->ending == SUCCEEDS || scene->ending == IS_USED_UP)
        return;
    if (storm_below(state, 2)) /* the next attempt is up, else it may not have begun */
        wait_until_up(scene->p, scene->kills);
    wait_ms(scene->p, (int64_t)storm_below(state, 120));
    kill(scene->ending == KEEPER_KILLED ? keeper : scene->p->pid,
         scene->ending == LAUNCHER_TOLD ? scene->told : SIGKILL);
}

/* ---- judging */

static bool has_right_code(const scene *scene) {
    int code = scene->p->code;
    switch (scene->ending) {
    case SUCCEEDS:
        return code == 0;
    case LAUNCHER_TOLD:
        return code == 128 + scene->told;
    case KEEPER_KILLED: /* while the attempt before still ended, that is the failure */
        return code == 1 || (scene->kills && code == 137 && strstr(scene->p->text[1], "failed first"));
    default:
        return code == 137;
    }
}

/* Is the rank that was killed in the attempt called its first failure? The last kill's attempt may be cut short. */
static bool names_victim(const scene *scene, int attempt) {
    char again[160], last[96];
    bool is_last = attempt == scene->kills - 1;
    snprintf(again, sizeof again, "attempt %d of %d: rank %d (pid %d) was killed by SIGKILL (signal 9); starting again",
             attempt + 1, scene->attempts, scene->victims[attempt], (int)scene->killed[attempt]);
    snprintf(last, sizeof last, "rank %d failed first: killed by SIGKILL (signal 9)", scene->victims[attempt]);
    if (scene->ending == IS_USED_UP && is_last)
        return strstr(scene->p->text[1], last) != NULL;
    if (!is_last || scene->ending == SUCCEEDS)
        return strstr(scene->p->text[1], again) != NULL;
    char other[48];
    snprintf(other, sizeof other, "attempt %d of %d: rank", attempt + 1, scene->attempts);
    return strstr(scene->p->text[1], again) || strstr(scene->p->text[1], last) ||
           (!strstr(scene->p->text[1], other) && !strstr(scene->p->text[1], "failed first"));
}

/* Remove the folder for temporary files; returns how many of ours it held. A sanitizer leaves some, too, where a
 * process is killed while it begins. */
static int files_left(const char *folder) {
    int n = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir));)
        n += !strncmp(entry->d_name, "tutti-", 6);
    closedir(dir);
    remove_folder(folder);
    return n;
}

static bool is_judged_good(const scene *scene) {
    bool good = has_right_code(scene) && !strstr(scene->p->text[1], "stale");
    for (int k = 0; k < scene->kills; k++)
        good = good && names_victim(scene, k);
    return good;
}

static bool play(long number) {
    uint64_t state = storm_case(number);
    scene scene = {.ending = (ending)(number % ENDINGS)};
    char program[4096], folder[64], tmp[96], restarts[32], last[16];
    scene.kills = (int)storm_below(&state, MAX_KILLS) + 1;
    scene.attempts = scene.ending == IS_USED_UP ? scene.kills : scene.kills + 1 + (int)storm_below(&state, 3);
    scene.told = storm_below(&state, 2) ? SIGTERM : SIGINT;
    snprintf(program, sizeof program, "%s/restarting", getenv("TT_PROGRAMS"));
    snprintf(tmp, sizeof tmp, "TMPDIR=%s", temporary_folder(folder));
    snprintf(restarts, sizeof restarts, "--max-restarts=%d", scene.attempts - 1);
    snprintf(last, sizeof last, "%d", scene.ending == SUCCEEDS ? scene.kills : -1);
    const char *child = storm_below(&state, 2) ? "child" : NULL;
    setenv("TT_TRANSPORT", storm_below(&state, 2) ? "tcp" : "auto", 1);
    scene.p = process_start((const char *const[]){tutti(), "run", "--standalone", "--nproc-per-node=3", restarts,
                                                  "--grace-period=2", program, last, child, NULL},
                            (const char *const[]){tmp, NULL}, -1);
    int64_t killed_ms = 0;
    for (int k = 0; k < scene.kills; k++)
        killed_ms = kill_rank(&scene, k, &state, killed_ms);
    end_scene(&scene, &state);
    process_finish(scene.p);
    bool good = is_judged_good(&scene) && files_left(folder) == 0;
    if (!good)
        fprintf(stderr, "case %ld (seed %ld): after %d of %d attempts the job %s, exit code %d:\n%s\n%s\n", number,
                storm_number("TT_STORM_SEED", 1), scene.kills, scene.attempts, ending_names[scene.ending],
                scene.p->code, scene.p->text[0], scene.p->text[1]);
    process_free(scene.p);
    return good;
}

static int compare_times(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void ranks_launchers_and_keepers_die(void **state) {
    (void)state;
    long cases = storm_cases(60), bad = 0;
    for (long i = 0; i < cases; i++)
        bad += !storm_skips(i) && !play(i);
    print_message("%ld jobs, %ld of them wrong\n", cases, bad);
    if (recovery_count) {
        qsort(recoveries_ms, (size_t)recovery_count, sizeof *recoveries_ms, compare_times);
        print_message("from a kill to the next attempt's first reduction on all ranks: %d times, median %.0f ms, 95th "
                      "percentile %.0f ms, longest %.0f ms\n",
                      recovery_count, recoveries_ms[recovery_count / 2],
                      recoveries_ms[(int)(0.95 * (double)(recovery_count - 1))], recoveries_ms[recovery_count - 1]);
    }
    assert_int_equal(bad, 0);
}

int main(void) {
    storm_begin();
    signal(SIGINT, SIG_DFL); /* a shell's background ignores it */
    const struct CMUnitTest tests[] = {cmocka_unit_test(ranks_launchers_and_keepers_die)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
