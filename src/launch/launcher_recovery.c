/* Workers that survive the loss of others (tutti/elastic.h); net/job/job_socket.h has what they and the launcher
 * tell each other.
 *
 * Such workers are not told to end when one is lost, or when nodes come and go: they notice it, and wait for the next
 * round. machine/attempt_states.c decides when that begins, and which workers are killed because they don't come; here
 * is what is done and asked for it. */
#include "launch/launcher_parts.h"

#include "base/build.h"
#include "base/error.h"
#include "base/machine/clock.h"
#include "net/job/job_socket.h"

#include <stdio.h>

typedef tt__launcher_state launcher;

static bool read_recovery_words(const launcher *l, int i, tt__recovery *words) {
    size_t size = 0;
    const void *recorder = tt__watch_last_recorder(l->watch, i, &size);
    return recorder && tt__recovery_read(recorder, size, words);
}

tt__survivors tt__launcher_survivors(const launcher *l) {
    tt__survivors s = {.blamed = -1};
    uint32_t next = (uint32_t)l->job->recovery + 1;
    for (int i = 0; i < l->job->workers; i++) {
        tt__recovery words;
        s.starting += !l->workers[i].pid && !l->workers[i].ended;
        if (!l->workers[i].pid || l->workers[i].ended)
            continue;
        s.living++;
        if (!read_recovery_words(l, i, &words) || !words.recovers)
            continue;
        s.able++;
        if (words.wants_round != next && !TT__MUTANT(survivor_taken_for_waiting))
            continue;
        s.waiting++;
        if (words.lost)
            s.blamed = (int)words.lost - 1;
    }
    return s;
}

bool tt__launcher_waits(const launcher *l, int i) {
    tt__recovery words;
    return read_recovery_words(l, i, &words) && words.wants_round == (uint32_t)l->job->recovery + 1;
}

/* Is worker `i` there, and does not wait for the next round? */
static bool is_late(const launcher *l, int i) {
    return l->workers[i].pid && !l->workers[i].ended && !tt__launcher_waits(l, i);
}

void tt__launcher_say_late(launcher *l) {
    int first = -1, n = 0;
    for (int i = 0; i < l->job->workers; i++)
        if (is_late(l, i) && !n++)
            first = i;
    if (!n)
        return;
    char more[32] = "";
    if (n > 1)
        snprintf(more, sizeof more, " and %d more here", n - 1);
    tt__streams_print(&l->streams,
                      "tutti run: waiting for rank %d%s to come to the next round; who has not in %d s is killed",
                      l->job->first_rank + first, more, (tt__left_ms(l->machine.attempt.deadline_ms) + 999) / 1000);
}

void tt__launcher_kill_late(launcher *l, int rank) {
    int only = rank - l->job->first_rank;
    for (int i = 0; i < l->job->workers; i++) {
        if (!is_late(l, i) || (rank >= 0 && i != only))
            continue;
        l->workers[i].late = true;
        tt__keeper_kill_worker(&l->keeper, i);
    }
}

int tt__launcher_agreed_stop(const launcher *l, int i) {
    tt__recovery words;
    bool stopped = read_recovery_words(l, i, &words) && words.stopped_by > 0 && words.stopped_by < 128;
    return stopped && tt__end_code(l->workers[i].status) == 128 + (int)words.stopped_by ? (int)words.stopped_by : 0;
}

/* ---- what the workers are told */

/* Tell worker `i`, if it runs, of round `number`, and why there is one, or none. */
static void tell_worker(launcher *l, int i, tt__job_kind kind, int number, const char *why) {
    tt__job_round round = {.number = number - TT__MUTANT(told_number_of_round_before),
                           .rank = l->job->first_rank + i,
                           .world = l->job->world,
                           .port = l->job->master_port};
    if (!l->workers[i].pid || l->workers[i].ended)
        return;
    snprintf(round.host, sizeof round.host, "%s", l->job->master_addr);
    snprintf(round.reason, sizeof round.reason, "%s", why);
    if (!tt__watch_tell_round(l->watch, i, kind, &round) && kind == TT__JOB_ROUND)
        tt__log(TT_LOG_WARNING, "rank %d can't be told that round %d begins", round.rank, number);
}

void tt__launcher_tell_round(launcher *l) {
    for (int i = 0; i < l->job->workers; i++)
        tell_worker(l, i, TT__JOB_ROUND, l->job->recovery, l->why);
}

void tt__launcher_want_round(launcher *l) {
    for (int i = 0; i < l->job->workers; i++)
        tell_worker(l, i, TT__JOB_WANTED, l->job->recovery + 1, l->why);
}

void tt__launcher_deny_round(launcher *l) {
    static const char why[] = "no restarts are left (tutti run --max-restarts)";
    for (int i = 0; i < l->job->workers; i++)
        if (tt__launcher_waits(l, i))
            tell_worker(l, i, TT__JOB_NO_ROUND, l->job->recovery + 1, why);
}
