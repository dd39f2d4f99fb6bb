/* Workers that survive the loss of others (tutti/elastic.h); net/recovery_words.h has what they and the launcher tell
 * each other.
 *
 * Such workers are not told to end when one is lost, or when nodes come and go: they notice, and wait for the next
 * round. When all of this node's that are left do so, the attempt is over here, as if nothing of it were left; the next
 * one starts those that are missing. A rank that others blame and that does not come, as it is stopped, is killed; one
 * that nobody blames may be in the middle of a long step, and has the grace period. */
#include "elastic/launcher.h"

#include "base/error.h"
#include "net/recovery_words.h"
#include "store/signed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
        if (!l->workers[i].pid || l->workers[i].ended)
            continue;
        s.living++;
        if (!read_recovery_words(l, i, &words) || !words.recovers)
            continue;
        s.able++;
        if (words.wants_round != next)
            continue;
        s.waiting++;
        if (words.lost)
            s.blamed = (int)words.lost - 1;
    }
    return s;
}

bool tt__launcher_can_recover(const launcher *l) {
    const tt__survivors s = tt__launcher_survivors(l);
    return tt__launcher_may_go_on(l) && !l->got_signal && !l->node_signal && s.living && s.able == s.living;
}

void tt__launcher_kill_late(launcher *l, int rank) {
    int only = rank - l->job->first_rank;
    for (int i = 0; i < l->job->workers; i++) {
        tt__recovery words;
        bool waits = read_recovery_words(l, i, &words) && words.wants_round == (uint32_t)l->job->recovery + 1;
        if (!l->workers[i].pid || l->workers[i].ended || waits || (rank >= 0 && i != only))
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

/* ---- the round, as the workers read it */

/* Return the number that rank `i` of node `k` of the old round has in the new one, -1: its node is not there. */
static int new_rank(const tt__round *from, const tt__round *to, int k, int i) {
    for (int n = 0; n < to->n; n++)
        if (to->of[n].member == from->of[k].member)
            return to->of[n].first_rank + i;
    return -1;
}

static void write_ranks(FILE *out, const launcher *l, const tt__round *from) {
    for (int rank = 0; !from && rank < l->job->world; rank++)
        fprintf(out, "%d ", rank);
    for (int k = 0; from && k < from->n; k++)
        for (int i = 0; i < from->of[k].workers; i++)
            fprintf(out, "%d ", new_rank(from, l->round, k, i));
}

/* Forget how the ranks of the round before ended: those of the next have their numbers. */
static void delete_ends(tt_store *store, int world) {
    for (int rank = 0; rank < world; rank++) {
        char key[64];
        snprintf(key, sizeof key, "tutti/ended/%d", rank);
        tt_ignore(tt_store_delete_key(store, key, NULL));
    }
}

static void set_signed(launcher *l, const char *key, const char *text, size_t size) {
    tt__secret secret = {0};
    tt_store *store = tt__launcher_own_store(l);
    if (!store || tt__secret_load(&secret) || tt__signed_set(store, &secret, key, "", text, size))
        tt__log(TT_LOG_WARNING, "the ranks that go on can't be told so: %s", tt_last_error());
    tt__secret_wipe(&secret);
}

void tt__launcher_announce_recovery(launcher *l, const tt__round *from) {
    char key[64], *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    tt_store *store = tt__launcher_own_store(l);
    if (!out || !store) {
        if (out)
            fclose(out);
        free(text);
        tt__log(TT_LOG_WARNING, "the ranks that go on can't be told so: %s", store ? "no memory" : tt_last_error());
        return;
    }
    delete_ends(store, from ? from->world : l->job->world);
    fprintf(out, "%d %d\n", l->job->recovery, l->job->world);
    write_ranks(out, l, from);
    fprintf(out, "\n%s %d\n%s", l->job->master_addr, l->job->master_port, l->why);
    fclose(out);
    snprintf(key, sizeof key, TT__ROUND_KEY, l->job->recovery);
    set_signed(l, key, text, size);
    free(text);
}

void tt__launcher_want_round(launcher *l) {
    char text[16];
    int n = snprintf(text, sizeof text, "%d", l->job->recovery + 1);
    set_signed(l, TT__WANTED_KEY, text, (size_t)n);
}
