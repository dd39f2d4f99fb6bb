/* Ranks that meet again have commits of the same number, but of different states: those of a rank that was cut off and
 * went on for itself, or waited while the others began anew. All go on with one of them. The test is the launcher. */
#include "base/error.h"
#include "support/elastic_job.h"
#include "support/own_folder.h"

#include <tutti/comm.h>
#include <tutti/elastic.h>
#include <tutti/store.h>

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <time.h>

#include <cmocka.h>

enum { RANKS = 3, LAST_ROUND = 2, DIFFERENT = 3 };

/* ---- workers: the state is a number, which each step makes another one, as this round's ranks do */

/* Has every rank this value? */
static tt_status compare(tt_elastic *e, int64_t value) {
    int64_t all[RANKS];
    TT__TRY(tt_all_gather(tt_elastic_group(e), &value, all, 1, TT_I64));
    for (int r = 0; r < tt_get_world_size(tt_elastic_group(e)); r++)
        if (all[r] != value)
            _exit(DIFFERENT);
    return TT_OK;
}

static tt_status make_steps(tt_elastic *e, int64_t *value, int round, int64_t commits) {
    int world = tt_get_world_size(tt_elastic_group(e));
    while (tt_elastic_commits(e) < commits) {
        TT__TRY(tt_barrier(tt_elastic_group(e)));
        *value = *value * 31 + 10 * round + world;
        TT__TRY(tt_elastic_commit(e));
    }
    return compare(e, *value);
}

static void note(int round, int rank, int64_t value) {
    char line[64];
    int file = open("audit", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    int n = snprintf(line, sizeof line, "%d %d %" PRId64 "\n", round, rank, value);
    if (write(file, line, (size_t)n) != n)
        abort();
    close(file);
}

static tt_status wait_for_end_of_round(tt_elastic *e) {
    const struct timespec moment = {.tv_nsec = 1000000};
    int stop;
    tt_status status;
    while (!(status = tt_elastic_should_stop(e, &stop)))
        nanosleep(&moment, NULL);
    return status;
}

/* One round; *round: which. */
static tt_status make_round(tt_elastic *e, int64_t *value, int *round, const char *commits) {
    const tt_elastic_change *change = tt_elastic_changed(e);
    if (change)
        *round = change->round;
    TT__TRY(compare(e, *value));
    TT__TRY(make_steps(e, value, *round, commits[*round] - '0'));
    note(*round, tt_get_rank(tt_elastic_group(e)), *value);
    return *round == LAST_ROUND ? TT_OK : wait_for_end_of_round(e);
}

/* commits: a digit for each round, how many there are at its end. */
static int run_worker(const char *commits) {
    tt_elastic *e;
    const char *born = getenv("TT_ROUND");
    int round = born ? atoi(born) : 0;
    int64_t value = 1000 * round + atoi(getenv("RANK"));
    tt_status status = tt_elastic_new(&e);
    if (!status)
        status = tt_elastic_add(e, "value", &value, sizeof value);
    while (!status) {
        status = tt_elastic_restore(e);
        if (!status && !make_round(e, &value, &round, commits) && round == LAST_ROUND)
            break;
    }
    if (status)
        tt_report();
    tt_elastic_free(e);
    return status ? 1 : 0;
}

/* ---- the launcher */

static int audit(int64_t last_round[RANKS]) {
    FILE *file = fopen("audit", "r");
    int n = 0, round, rank;
    int64_t value;
    while (file && fscanf(file, "%d %d %" SCNd64, &round, &rank, &value) == 3) {
        n++;
        if (round == LAST_ROUND && last_round)
            last_round[rank] = value;
    }
    if (file)
        fclose(file);
    return n;
}

static int64_t stepped(int64_t value, int steps, int round, int world) {
    while (steps--)
        value = value * 31 + 10 * round + world;
    return value;
}

static bool wants(const job_worker *w, uint32_t round) {
    tt__recovery words;
    return !w->ended && job_words(w, &words) && words.wants_round == round;
}

/* A launcher of a round: who takes part, in the order of their ranks, and which store they meet at. */
static void tell_round(job *j, tt_store_server *server, int round, const int *workers, int n) {
    tt_store_server *own = j->server;
    j->server = server;
    j->world = n;
    for (int r = 0; r < n; r++) {
        j->workers[workers[r]].rank = r;
        job_tell(j, &j->workers[workers[r]], TT__JOB_ROUND, round, r);
    }
    j->server = own;
    j->round = round;
}

static void end_round(job *j) {
    for (int i = 0; i < j->started; i++)
        if (!j->workers[i].ended)
            job_tell(j, &j->workers[i], TT__JOB_WANTED, j->round + 1, j->workers[i].rank);
    j->events++;
}

static bool all_want(const job *j, uint32_t round) {
    for (int i = 0; i < j->started; i++)
        if (!j->workers[i].ended && !wants(&j->workers[i], round))
            return false;
    return true;
}

static const int *meeting_order;
static tt_store_server *other_server;

/* In round 1 two go on without the third, which goes on without them. */
static void part_and_meet(job *j) {
    static const int two[] = {0, 1}, third[] = {2};
    if (j->events % 2 == 0 && audit(NULL) == RANKS * (j->round + 1))
        end_round(j);
    if (j->events % 2 == 0 || !all_want(j, (uint32_t)j->round + 1))
        return;
    if (j->round == 0) {
        tell_round(j, other_server, 1, third, 1);
        tell_round(j, j->server, 1, two, 2);
    } else {
        tell_round(j, j->server, LAST_ROUND, meeting_order, RANKS);
    }
    j->events++;
}

/* After round 0 two are lost. Others take their places, and begin anew, while the third is cut off: it waits. */
static void begin_anew_and_meet(job *j) {
    if (j->events == 0 && audit(NULL) == RANKS) {
        job_kill(j, 0);
        job_kill(j, 1);
        j->events = 1;
    }
    if (j->events == 1 && j->workers[0].ended && j->workers[1].ended && wants(&j->workers[2], 1)) {
        j->round = 1;
        j->world = 2;
        job_start_worker(j, 0);
        job_start_worker(j, 1);
        j->events = 2;
    }
    if (j->events == 2 && audit(NULL) == RANKS + 2)
        end_round(j);
    if (j->events == 3 && wants(&j->workers[3], 2) && wants(&j->workers[4], 2)) {
        tell_round(j, j->server, LAST_ROUND, meeting_order, RANKS);
        j->events = 4;
    }
}

static void play(job *j, const int *order, int64_t value) {
    int64_t last[RANKS] = {0};
    meeting_order = order;
    unlink("audit");
    j->policy = JOB_NEVER_ANSWERS;
    j->world = RANKS;
    assert_true(job_run(j));
    assert_int_equal(j->unknown, 0);
    assert_int_equal(j->round, LAST_ROUND);
    audit(last);
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(last[r], value);
}

/* Equal numbers of commits in rounds of one number: the lowest rank's state counts. */
static void parted_ranks_agree(void **state) {
    (void)state;
    static const int orders[][RANKS] = {{0, 1, 2}, {2, 0, 1}};
    for (int i = 0; i < 2; i++) {
        int64_t value = stepped(stepped(0, 2, 0, RANKS), 3, 1, i ? 1 : 2);
        assert_false(tt_store_server_new(&other_server, "127.0.0.1", 0));
        play(&(job){.mode = "256", .happen = part_and_meet}, orders[i], stepped(value, 1, LAST_ROUND, RANKS));
        tt_store_server_free(other_server);
    }
}

/* Who waited has as many commits as those that began anew, or more, but of a round before theirs: it takes what they
 * have, also where it is the lowest rank. */
static void who_waited_takes_the_others_state(void **state) {
    (void)state;
    static const int orders[][RANKS] = {{3, 4, 2}, {2, 3, 4}};
    static const char *const commits[] = {"223", "723"};
    for (int i = 0; i < 4; i++) {
        int64_t value = stepped(stepped(1000, 2, 1, 2), 1, LAST_ROUND, RANKS);
        play(&(job){.mode = commits[i / 2], .happen = begin_anew_and_meet}, orders[i % 2], value);
    }
}

int main(int argc, char **argv) {
    elastic_job_begin(argc, argv, run_worker);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parted_ranks_agree),
        cmocka_unit_test(who_waited_takes_the_others_state),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
