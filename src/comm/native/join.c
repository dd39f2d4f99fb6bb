/* Joining a job: find out which ranks are on which host, share memory with those of this host, connect to the
 * others. */
#include "base/error.h"
#include "comm/collective/choose.h"
#include "comm/native/native.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/shared/shm_connect.h"
#include "net/secure/secret.h"
#include "store/signed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KEY_SIZE = 128 };
static const char error_mark[] = "error ";

static void tuning_key(const tt__member *member, char key[KEY_SIZE]) {
    snprintf(key, KEY_SIZE, "%s/tuning", member->prefix);
}

/* Publish the table, or the error for which there is none. */
static void publish_text(const tt__member *member, const char *meeting, const char *text, tt_status status) {
    char error[1024], key[KEY_SIZE];
    tt__secret secret;
    int n = snprintf(error, sizeof error, "%s%.1000s", error_mark, status ? tt_last_error() : "");
    tuning_key(member, key);
    /* if this fails, ranks that wait for the key run into their timeout */
    if (!tt__secret_load(&secret))
        tt_ignore(tt__signed_set(member->store, &secret, key, meeting, status ? error : text,
                                 status ? (size_t)n : strlen(text)));
    tt__secret_wipe(&secret);
}

/* Read the text that rank 0 has published; to be freed. */
static tt_status read_published(const tt__member *member, const char *meeting, char **text) {
    tt_store_value value = {0};
    tt__secret secret;
    char who[24], key[KEY_SIZE];
    snprintf(who, sizeof who, "rank %d", member->rank);
    tuning_key(member, key);
    TT__TRY(tt__secret_load(&secret));
    tt_status got = tt__signed_get(member->store, &secret, key, meeting, who, "rank 0", TT__SIGNED_PATIENCE_MS, &value);
    tt__secret_wipe(&secret);
    TT__TRY(got);
    char *copy = strndup(value.data, value.size);
    tt_store_value_free(&value);
    if (!copy)
        return tt__fail(TT_ERR_MEMORY, "no memory for a table of algorithms");
    if (strncmp(copy, error_mark, strlen(error_mark)) != 0) {
        *text = copy;
        return TT_OK;
    }
    tt_status status = tt__fail(TT_ERR_INVALID, "rank 0: %s", copy + strlen(error_mark));
    free(copy);
    return status;
}

/* Publish rank 0's table of algorithms, early: if rank 0 fails later, the others need not wait for it.
 * tuning_agree() reports what is wrong with it. meeting: as tt__cards_meeting() has it. */
static void tuning_publish(const tt__member *member, const char *meeting) {
    char *text = NULL;
    tt_status status = tt__tuning_text(member->algorithms, &text);
    publish_text(member, meeting, text, status);
    free(text);
}

static tt_status make_tuning(tt__world *world) {
    world->tuning = calloc(1, sizeof *world->tuning);
    return world->tuning ? TT_OK : tt__fail(TT_ERR_MEMORY, "no memory for a table of algorithms");
}

tt_status tt__tuning_force(tt__world *world, const char *algorithms) {
    if (!*algorithms)
        return TT_OK;
    TT__TRY(make_tuning(world));
    return tt__tuning_forced(world->tuning, algorithms);
}

static tt_status tuning_agree(tt__world *world, const tt__member *member, const char *meeting) {
    char *text = NULL;
    tt_status status =
        member->rank ? read_published(member, meeting, &text) : tt__tuning_text(member->algorithms, &text);
    if (!status)
        status = make_tuning(world);
    if (!status)
        status = tt__tuning_parse(world->tuning, text, "rank 0's table of algorithms");
    free(text);
    return status;
}

static bool same_host(const tt__card *a, const tt__card *b) {
    return !strcmp(a->host_id, b->host_id) && strcmp(a->transport, "tcp") != 0;
}

/* Number the hosts in the order of their first ranks. With .transport = "tcp" every rank is by itself. */
static void assign_hosts(tt__world *world, const tt__card *cards) {
    world->hosts = 0;
    for (int r = 0; r < world->size; r++) {
        tt__peer *peer = &world->peers[r];
        int first = 0;
        while (first < r && !same_host(&cards[first], &cards[r]))
            first++;
        peer->host = first < r ? world->peers[first].host : world->hosts++;
        snprintf(peer->hostname, sizeof peer->hostname, "%s", cards[r].hostname);
    }
    for (int r = 0; r < world->size; r++) {
        world->peers[r].local = world->peers[r].host == world->peers[world->rank].host;
        world->peers[r].same_machine = !strcmp(cards[r].host_id, cards[world->rank].host_id);
    }
}

/* Has a launcher said that all ranks are on this machine, while no secret keeps strangers out? Ranks of one machine
 * prove to each other that they belong to the same user. A stranger that claims to be on another machine, in a store
 * that anyone can write to, such as PyTorch's, would escape this proof. */
static bool must_be_here(const tt__world *world) {
    const char *here = getenv("LOCAL_WORLD_SIZE"), *all = getenv("WORLD_SIZE"), *host = getenv("TT_HOST_ID");
    if (!here || !all || strcmp(here, all) != 0 || world->size > atoi(all) || (host && *host))
        return false;
    return !tt__secret_is_named();
}

static tt_status check_hosts(const tt__world *world, const tt__card *cards) {
    const tt__card *mine = &cards[world->rank];
    int ranks[TT__MAX_RANKS] = {0};
    for (int r = 0; r < world->size; r++) {
        if (strcmp(cards[r].transport, mine->transport) != 0)
            return tt__fail(TT_ERR_MISMATCH, "rank %d asks for the transport \"%s\", rank %d for \"%s\"", r,
                            cards[r].transport, world->rank, mine->transport);
        if (!world->peers[r].local && !strcmp(mine->transport, "shm"))
            return tt__fail(
                TT_ERR_UNSUPPORTED,
                "rank %d on host %s (%s) and rank %d on host %s (%s) can't share memory, which .transport = "
                "\"shm\" asks for",
                world->rank, mine->hostname, mine->host_id, r, cards[r].hostname, cards[r].host_id);
        if (strcmp(cards[r].host_id, mine->host_id) != 0 && must_be_here(world))
            return tt__fail(
                TT_ERR_AUTH,
                "rank %d says that it is on another host (%s, %s) than rank %d (%s, %s), but LOCAL_WORLD_SIZE "
                "and WORLD_SIZE are both %s: give the job a secret (TT_SECRET_FILE), or TT_HOST_ID to each "
                "rank",
                r, cards[r].hostname, cards[r].host_id, world->rank, mine->hostname, mine->host_id,
                getenv("WORLD_SIZE"));
        if (++ranks[world->peers[r].host] > TT__MAX_HOST_RANKS)
            return tt__fail(TT_ERR_UNSUPPORTED,
                            "more than %d ranks on host %s, which is what its shared memory is laid out for",
                            TT__MAX_HOST_RANKS, cards[r].hostname);
    }
    return TT_OK;
}

/* Connect to the ranks of other hosts: all publish their addresses, then each pair connects. */
static tt_status link_hosts(tt__world *world, const tt__member *member, bool one_host, const tt__rendezvous *rendezvous,
                            const char *meeting) {
    enum { SIZE = TT__ADDRESSES_SIZE };
    char(*texts)[SIZE] = calloc((size_t)world->size, sizeof *texts);
    const char **addresses = calloc((size_t)world->size, sizeof *addresses);
    tt_status status = TT_OK;
    if (!texts || !addresses)
        status = tt__fail(TT_ERR_MEMORY, "no memory for the addresses of %d ranks", world->size);
    if (!status)
        status = tt__world_messages(world);
    if (!status)
        status = tt__messages_listen(world->messages, one_host, texts[world->rank]);
    if (!status && !world->rank)
        tuning_publish(member, meeting);
    if (!status)
        status = tt__texts_exchange(rendezvous, "net", SIZE, texts[0]);
    for (int r = 0; !status && r < world->size; r++) {
        if (!strcmp(texts[r], TT__GIVEN_UP))
            status = tt__fail(TT_ERR_PEER, "rank %d did not join", r);
        addresses[r] = world->peers[r].local ? NULL : texts[r];
    }
    if (!status)
        status = tt__messages_open(world->messages, addresses, rendezvous->deadline_ms);
    tt__world_lock(world); /* the thread is there already */
    world->threaded = !status && tt__messages_threaded(world->messages);
    tt__world_unlock(world);
    free(texts);
    free(addresses);
    return status;
}

static bool all_on_one_host(const tt__world *world, const tt__card *cards) {
    for (int r = 1; r < world->size; r++)
        if (strcmp(cards[r].host_id, cards[0].host_id) != 0)
            return false;
    return true;
}

/* Share memory with the ranks of this host, then connect to those of others. */
static tt_status meet_all(tt__world *world, const tt__member *member, const tt__card *cards,
                          const tt__rendezvous *rendezvous) {
    tt__joining_watch watch;
    char meeting[TT__MEETING_SIZE] = "";
    if (world->hosts > 1)
        tt__cards_meeting(cards, world->size, meeting);
    tt__joining_watch_begin(&watch, rendezvous);
    world->joining_watch = &watch;
    tt_status status = tt__connect_all(world, cards, rendezvous->deadline_ms);
    if (!status && world->hosts > 1)
        status = link_hosts(world, member, all_on_one_host(world, cards), rendezvous, meeting);
    else if (!status)
        status = tt__tuning_force(world, cards[0].algorithms);
    world->joining_watch = NULL;
    if (!status && world->hosts > 1)
        status = tuning_agree(world, member, meeting);
    return status;
}

tt_status tt__join(tt__world *world, const tt__member *member, int64_t deadline_ms) {
    tt__card *cards = calloc((size_t)world->size, sizeof *cards), *mine = cards + world->rank;
    if (!cards)
        return tt__fail(TT_ERR_MEMORY, "no memory for the cards of %d ranks", world->size);
    const tt__rendezvous rendezvous = {.store = member->store,
                                       .prefix = member->prefix,
                                       .rank = world->rank,
                                       .world = world->size,
                                       .deadline_ms = deadline_ms,
                                       .heartbeat_ms = world->heartbeat_ms,
                                       .notes = member->notes};
    tt_status status = tt__card_make(mine, world->size, member->transport, world->rank ? NULL : member->algorithms);
    if (!status)
        status = tt__listen(&world->listener, world->size, mine);
    if (!status)
        status = tt__cards_exchange(&rendezvous, cards);
    if (!status) {
        assign_hosts(world, cards);
        status = check_hosts(world, cards);
    }
    if (!status)
        status = meet_all(world, member, cards, &rendezvous);
    if (!status) {
        close(world->listener);
        world->listener = -1;
    }
    free(cards);
    return status;
}
