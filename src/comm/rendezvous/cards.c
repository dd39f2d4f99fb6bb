/* Meeting through the store. Each rank sets one key, its card, and reads everybody's: three round trips. */
#include "base/clock.h"
#include "base/error.h"
#include "comm/group.h"
#include "comm/rendezvous/rendezvous.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { VERSION = 2, KEY_SIZE = 256 };

static void read_line(const char *path, char *text, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);
    if (fd >= 0)
        close(fd);
    text[n < 0 ? 0 : n] = '\0';
    text[strcspn(text, "\n ")] = '\0';
}

/* One token without spaces, also where the system says nothing. */
static void host_id(char *text, size_t size) {
    const char *given = getenv("TT_HOST_ID");
    char boot[48];
    struct stat net;
    if (given && *given) {
        snprintf(text, size, "%s", given);
        text[strcspn(text, " \n\t")] = '\0';
        return;
    }
    read_line("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    unsigned long long inode = stat("/proc/self/ns/net", &net) ? 0 : (unsigned long long)net.st_ino;
    snprintf(text, size, "%s/%llu", *boot ? boot : "?", inode);
}

tt_status tt__card_make(tt__card *card, int world) {
    struct stat pid_space;
    *card = (tt__card){.world = world, .pid = (long)getpid()};
    host_id(card->host_id, sizeof card->host_id);
    snprintf(card->pid_space, sizeof card->pid_space, "%llu",
             stat("/proc/self/ns/pid", &pid_space) ? 0ULL : (unsigned long long)pid_space.st_ino);
    if (gethostname(card->hostname, sizeof card->hostname - 1) || !card->hostname[0])
        snprintf(card->hostname, sizeof card->hostname, "?");
    return TT_OK;
}

static void key_of(const char *prefix, int rank, char key[KEY_SIZE]) {
    snprintf(key, KEY_SIZE, "%s/rank/%d", prefix, rank);
}

static tt_status put_card(tt_store *store, const char *prefix, int rank, const tt__card *card) {
    char key[KEY_SIZE], text[640];
    key_of(prefix, rank, key);
    int n = snprintf(text, sizeof text, "tutti %d %d %ld %s %s %s %s %s", VERSION, card->world, card->pid,
                     card->host_id, card->pid_space, card->hostname, card->socket, card->nonce);
    return tt_store_set(store, key, text, (size_t)n);
}

static tt_status parse_card(int rank, const tt_store_value *value, tt__card *card) {
    int version = 0;
    int n = sscanf(value->data, "tutti %d %d %ld %127s %31s %71s %63s %32s", &version, &card->world, &card->pid,
                   card->host_id, card->pid_space, card->hostname, card->socket, card->nonce);
    if (n == 8 && version == VERSION)
        return TT_OK;
    return tt__fail(TT_ERR_PROTOCOL,
                    "rank %d uses another version of Tutti: expected its card in version %d, got \"%.80s\"", rank,
                    VERSION, (const char *)value->data);
}

/* After a timeout: which ranks have not left a card? */
static tt_status fail_missing(tt_store *store, const char *const *keys, int world, int64_t waited_ms) {
    char cause[512], ranks[256];
    tt__rankset missing = {0};
    snprintf(cause, sizeof cause, "%s", tt_last_error());
    for (int r = 0; r < world; r++) {
        bool there = false;
        if (tt_store_check(store, &keys[r], 1, &there))
            return tt__fail(TT_ERR_TIMEOUT, "not all %d ranks joined within %lld ms: %s", world, (long long)waited_ms,
                            cause);
        if (!there)
            tt__rankset_add(&missing, r);
    }
    tt__rankset_text(&missing, ranks, sizeof ranks);
    return tt__fail(TT_ERR_TIMEOUT,
                    "%s of %d did not join within %lld ms (start all ranks, with the same address and world size)",
                    ranks, world, (long long)waited_ms);
}

/* Read one by one: the older dialect of the store can't do otherwise. */
static tt_status get_each(tt_store *store, const char *const *keys, int world, tt_store_value *values) {
    for (int r = 0; r < world; r++) {
        tt_status status = tt_store_get(store, keys[r], &values[r]);
        for (int i = 0; status && i < r; i++)
            tt_store_value_free(&values[i]);
        TT__TRY(status);
    }
    return TT_OK;
}

static tt_status get_cards(tt_store *store, const char *const *keys, int world, int64_t deadline_ms, tt__card *cards) {
    tt_store_value values[TT__MAX_WORLD];
    int64_t start = tt__now_ms(), left = tt__left_ms(deadline_ms);
    tt_status status = tt_store_wait(store, keys, (size_t)world, left ? left : 1);
    if (status == TT_ERR_TIMEOUT)
        return fail_missing(store, keys, world, tt__now_ms() - start);
    TT__TRY(status);
    status = tt_store_multi_get(store, keys, (size_t)world, values);
    if (status == TT_ERR_UNSUPPORTED)
        status = get_each(store, keys, world, values);
    TT__TRY(status);
    for (int r = 0; r < world; r++) {
        if (!status)
            status = parse_card(r, &values[r], &cards[r]);
        tt_store_value_free(&values[r]);
    }
    return status;
}

static tt_status check_cards(int rank, int world, const tt__card *cards) {
    const tt__card *mine = &cards[rank];
    for (int r = 0; r < world; r++) {
        if (cards[r].world != world)
            return tt__fail(TT_ERR_MISMATCH, "rank %d was started for a world of %d, rank %d for a world of %d", r,
                            cards[r].world, rank, world);
        if (strcmp(cards[r].host_id, mine->host_id) != 0)
            return tt__fail(
                TT_ERR_UNSUPPORTED,
                "rank %d on host %s (%s) and rank %d on host %s (%s) can't share memory, and ranks of several "
                "hosts can't be joined yet",
                rank, mine->hostname, mine->host_id, r, cards[r].hostname, cards[r].host_id);
    }
    return TT_OK;
}

tt_status tt__cards_exchange(tt_store *store, const char *prefix, int rank, int world, int64_t deadline_ms,
                             tt__card *cards) {
    char names[TT__MAX_WORLD][KEY_SIZE];
    const char *keys[TT__MAX_WORLD];
    for (int r = 0; r < world; r++) {
        key_of(prefix, r, names[r]);
        keys[r] = names[r];
    }
    TT__TRY(put_card(store, prefix, rank, &cards[rank]));
    TT__TRY(get_cards(store, keys, world, deadline_ms, cards));
    return check_cards(rank, world, cards);
}
