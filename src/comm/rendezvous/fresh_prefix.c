/* A prefix of keys for each attempt under torchrun. Its agents serve one store through all attempts of a job, and
 * TORCHELASTIC_RESTART_COUNT counts only failures of one agent's workers, though workers of all nodes start again. So
 * neither tells ranks of this attempt from what the last one left. PyTorch's own groups write the same keys again in
 * each attempt and may read old ones; older versions put the count into the prefix. Here rank 0 draws a number for each
 * meeting:
 *
 *   tutti/meeting            rank 0: the number, N. Old until rank 0 of this attempt has come.
 *   tutti/meeting/N/here/R   rank R, which has read N: a number of its own
 *   tutti/meeting/N/all      rank 0, when all are here: all ranks' own numbers
 *
 * The last two are signed if the job has a secret, for these keys: a rank that finds its own number in the last one has
 * met ranks of this attempt, and nothing that was written for an earlier meeting counts in this one. A rank that
 * doesn't has read the number of an earlier meeting, and looks for a newer one. Launchers end all ranks of an attempt
 * before the next one begins, so whoever writes below a new number belongs to this attempt. */
#include "comm/rendezvous/rendezvous.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "base/process/waits.h"
#include "base/random_bytes.h"
#include "net/net.h"
#include "net/secure/secret.h"
#include "store/signed.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NUMBER_SIZE = 17 /* 64 bits in hexadecimal digits */, SHORTEST_MS = 10, LONGEST_MS = 250 };

static const char NEWEST[] = "tutti/meeting";

bool tt__needs_fresh_prefix(void) {
    const char *restarts = getenv("TORCHELASTIC_RESTART_COUNT"), *fresh = getenv("TT_FRESH_STORE");
    return restarts && *restarts && !(fresh && !strcmp(fresh, "1"));
}

static tt_status draw_number(char text[NUMBER_SIZE]) {
    uint64_t number;
    TT__TRY(tt__random_bytes(&number, sizeof number));
    snprintf(text, NUMBER_SIZE, "%016" PRIx64, number);
    return TT_OK;
}

static void use_number(tt__member *member, const char *number) {
    snprintf(member->prefix, sizeof member->prefix, "%s/%s", NEWEST, number);
}

static const char *all_key(const tt__member *member, char key[160]) {
    snprintf(key, 160, "%s/all", member->prefix);
    return key;
}

static tt_status set_signed(const tt__member *member, const char *key, const void *data, size_t size) {
    tt__secret secret;
    TT__TRY(tt__secret_load(&secret));
    tt_status status = tt__signed_set(member->store, &secret, key, tt__store_life(member->store), data, size);
    tt__secret_wipe(&secret);
    return status;
}

/* ---- rank 0 */

static tt_status prefix_call_all(tt__member *member, int64_t deadline_ms) {
    char number[NUMBER_SIZE], key[160];
    char(*numbers)[NUMBER_SIZE] = calloc((size_t)member->world, sizeof *numbers);
    if (!numbers)
        return tt__fail(TT_ERR_MEMORY, "no memory for the numbers of %d ranks", member->world);
    tt_status status = draw_number(number);
    use_number(member, number);
    memcpy(numbers[0], number, sizeof number);
    if (!status)
        status = tt_store_set(member->store, NEWEST, number, NUMBER_SIZE - 1);
    const tt__rendezvous rendezvous = {.store = member->store,
                                       .prefix = member->prefix,
                                       .world = member->world,
                                       .deadline_ms = deadline_ms,
                                       .heartbeat_ms = member->heartbeat_ms,
                                       .notes = member->notes};
    if (!status)
        status = tt__texts_exchange(&rendezvous, "here", sizeof *numbers, numbers[0]);
    if (!status)
        status = set_signed(member, all_key(member, key), numbers, (size_t)member->world * sizeof *numbers);
    free(numbers);
    return status;
}

/* ---- the others */

/* Wait for a key and read it, at most `ms`. TT_ERR_TIMEOUT: it is not there. */
static tt_status get_soon(tt_store *store, const char *key, int64_t ms, tt_store_value *value) {
    TT__TRY(tt_store_wait(store, &key, 1, ms > 0 ? ms : 1));
    return tt_store_get(store, key, value);
}

/* Read the newest number. */
static tt_status get_newest(tt_store *store, int64_t ms, char number[NUMBER_SIZE]) {
    tt_store_value value;
    TT__TRY(get_soon(store, NEWEST, ms, &value));
    snprintf(number, NUMBER_SIZE, "%.*s", (int)value.size, (const char *)value.data);
    tt_store_value_free(&value);
    return TT_OK;
}

/* Tell rank 0 of the meeting that this rank is here. */
static tt_status say_here(const tt__member *member, const char *own) {
    char key[160];
    snprintf(key, sizeof key, "%s/here/%d", member->prefix, member->rank);
    return set_signed(member, key, own, NUMBER_SIZE - 1);
}

/* Was it written with the job secret, if there is one? */
static bool is_rank_0s(const tt__member *member, const char *key, tt_store_value *value) {
    tt__secret secret;
    bool good = !tt__secret_load(&secret) && !tt__signed_open(value, &secret, key, tt__store_life(member->store));
    tt__secret_wipe(&secret);
    return good;
}

/* Does rank 0 say, within `ms`, that all are here, this rank among them? */
static tt_status hear_of_all(const tt__member *member, const char *own, int64_t ms, bool *all) {
    char key[160];
    tt_store_value value;
    size_t at = (size_t)member->rank * NUMBER_SIZE;
    *all = false;
    tt_status status = get_soon(member->store, all_key(member, key), ms, &value);
    if (status)
        return status == TT_ERR_TIMEOUT ? TT_OK : status;
    *all = is_rank_0s(member, key, &value) && value.size == (size_t)member->world * NUMBER_SIZE &&
           !memcmp((const char *)value.data + at, own, NUMBER_SIZE);
    tt_store_value_free(&value);
    if (!*all) /* an earlier meeting's */
        tt__sleep_ms((int)ms);
    return TT_OK;
}

static tt_status fail_uncalled(const tt__member *member) {
    return tt__fail(TT_ERR_TIMEOUT,
                    "rank 0 of %d did not say within %lld ms that all ranks have joined (start all ranks, with the "
                    "same address and world size)",
                    member->world, (long long)member->timeout_ms);
}

static tt_status prefix_heed_call(tt__member *member, int64_t deadline_ms) {
    char own[NUMBER_SIZE], number[NUMBER_SIZE], last[NUMBER_SIZE] = "";
    int64_t slice_ms = SHORTEST_MS;
    bool all = false;
    TT__TRY(draw_number(own));
    while (!all) {
        int64_t left = tt__left_ms(deadline_ms);
        TT__TRY(tt__net_interrupted());
        if (!left)
            return fail_uncalled(member);
        tt_status status = get_newest(member->store, left, number);
        if (status)
            return status == TT_ERR_TIMEOUT ? fail_uncalled(member) : status;
        if (strcmp(number, last) != 0) {
            memcpy(last, number, sizeof last);
            use_number(member, number);
            TT__TRY(say_here(member, own));
            slice_ms = SHORTEST_MS;
        }
        TT__TRY(hear_of_all(member, own, slice_ms < left ? slice_ms : left, &all));
        slice_ms = 2 * slice_ms < LONGEST_MS ? 2 * slice_ms : LONGEST_MS;
    }
    return TT_OK;
}

tt_status tt__fresh_prefix(tt__member *member) {
    int64_t deadline_ms = tt__deadline_ms(member->timeout_ms);
    return member->rank ? prefix_heed_call(member, deadline_ms) : prefix_call_all(member, deadline_ms);
}
