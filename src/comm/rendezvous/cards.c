/* Meeting through the store. Each rank sets one key, its card, and reads all ranks' cards: three round trips. */
#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/saved_error.h"
#include "comm/rendezvous/rendezvous.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { VERSION = 4, KEY_SIZE = 256 };

static void read_line(const char *path, char *text, size_t size) {
    int fd = tt__fd(open(path, O_RDONLY | O_CLOEXEC));
    ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);
    if (fd >= 0)
        close(fd);
    text[n < 0 ? 0 : n] = '\0';
    text[strcspn(text, "\n ")] = '\0';
}

/* Write the host's id: one token without spaces, also where the system has none. */
static tt_status host_id(char *text, size_t size) {
    const char *given = getenv("TT_HOST_ID");
    char boot[48];
    struct stat net;
    if (given && *given) {
        if (strlen(given) >= size || given[strcspn(given, " \t\n\v\f\r")])
            return tt__fail(TT_ERR_INVALID, "TT_HOST_ID: expected at most %zu characters and no space, got \"%.100s\"",
                            size - 1, given);
        snprintf(text, size, "%s", given);
        return TT_OK;
    }
    read_line("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    unsigned long long inode = stat("/proc/self/ns/net", &net) ? 0 : (unsigned long long)net.st_ino;
    snprintf(text, size, "%s/%llu", *boot ? boot : "?", inode);
    return TT_OK;
}

static void drop_spaces(const char *from, char *to, size_t size) {
    size_t n = 0;
    for (; *from && n < size - 1; from++)
        if (!strchr(" \t\r\n", *from))
            to[n++] = *from;
    to[n] = '\0';
}

tt_status tt__card_make(tt__card *card, int world, const char *transport, const char *algorithms) {
    struct stat pid_space;
    *card = (tt__card){.world = world, .pid = (long)getpid()};
    TT__TRY(host_id(card->host_id, sizeof card->host_id));
    snprintf(card->transport, sizeof card->transport, "%s", transport);
    drop_spaces(algorithms ? algorithms : "", card->algorithms, sizeof card->algorithms);
    snprintf(card->pid_space, sizeof card->pid_space, "%llu",
             stat("/proc/self/ns/pid", &pid_space) ? 0ULL : (unsigned long long)pid_space.st_ino);
    if (gethostname(card->hostname, sizeof card->hostname - 1) || !card->hostname[0])
        snprintf(card->hostname, sizeof card->hostname, "?");
    return TT_OK;
}

static void cards_key_of(const char *prefix, const char *kind, int rank, char key[KEY_SIZE]) {
    snprintf(key, KEY_SIZE, "%s/%s/%d", prefix, kind, rank);
}

static void write_card(const tt__card *card, char *text, size_t size) {
    snprintf(text, size, "tutti %d %d %ld %s %s %s %s %s %s %s", VERSION, card->world, card->pid, card->host_id,
             card->pid_space, card->hostname, card->socket, card->nonce, card->transport,
             *card->algorithms ? card->algorithms : "-");
}

static tt_status parse_card(int rank, const char *text, tt__card *card) {
    int version = 0;
    if (!strcmp(text, TT__GIVEN_UP))
        return tt__fail(TT_ERR_PEER, "rank %d did not join", rank);
    int n = sscanf(text, "tutti %d %d %ld %127s %31s %71s %63s %32s %7s %1024s", &version, &card->world, &card->pid,
                   card->host_id, card->pid_space, card->hostname, card->socket, card->nonce, card->transport,
                   card->algorithms);
    if (!strcmp(card->algorithms, "-"))
        *card->algorithms = '\0';
    if (n == 10 && version == VERSION)
        return TT_OK;
    return tt__fail(TT_ERR_PROTOCOL,
                    "rank %d uses another version of Tutti: expected its card in version %d, got \"%.80s\"", rank,
                    VERSION, text);
}

/* Find the ranks that have written no card when the timeout passed. TT_OK: all have by now; or another rank gave up at
 * the same time, as its note says. */
static tt_status check_missing(tt_store *store, const char *const *keys, int world, int64_t waited_ms) {
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
    if (!tt__rankset_count(&missing))
        return TT_OK;
    tt__rankset_text(&missing, ranks, sizeof ranks);
    return tt__fail(TT_ERR_TIMEOUT,
                    "%s of %d did not join within %lld ms (start all ranks, with the same address and world size)",
                    ranks, world, (long long)waited_ms);
}

/* May the launcher's notes on ended ranks be in this store? It is one of ours, and this rank is the one it started. */
static bool has_notes_of_ends(int rank, int world) {
    const char *socket = getenv("TT_JOB_SOCKET"), *own = getenv("RANK"), *size = getenv("WORLD_SIZE");
    return socket && own && size && tt__agent_serves_store() && atoi(own) == rank && atoi(size) == world;
}

/* Has a rank that has written no card ended, as its launcher noted? */
static tt_status check_ended(tt_store *store, const char *const *keys, int world) {
    for (int r = 0; r < world; r++) {
        char ended[64];
        snprintf(ended, sizeof ended, "tutti/ended/%d", r);
        const char *note = ended;
        bool there = false;
        tt_store_value value;
        TT__TRY(tt_store_check(store, &note, 1, &there));
        if (!there)
            continue;
        TT__TRY(tt_store_check(store, &keys[r], 1, &there)); /* it may have left its card before */
        if (there)
            continue;
        TT__TRY(tt_store_get(store, note, &value));
        tt_status status = tt__fail(TT_ERR_PEER, "rank %d ended with %.*s before it joined", r,
                                    value.size < 80 ? (int)value.size : 80, (const char *)value.data);
        tt_store_value_free(&value);
        return status;
    }
    return TT_OK;
}

/* Wait for all keys, at most `ms`; meanwhile look whether one of the ranks has ended. */
static tt_status wait_for_keys(tt_store *store, const char *const *keys, int rank, int world, int64_t ms) {
    enum { FIRST_MS = 200, LONGEST_MS = 1600 };
    bool notes = has_notes_of_ends(rank, world);
    int64_t deadline_ms = tt__deadline_ms(ms);
    tt__saved_error before;
    tt__error_save(&before);
    for (int64_t slice = FIRST_MS;; slice = slice < LONGEST_MS ? 2 * slice : slice) {
        int64_t left = tt__left_ms(deadline_ms);
        tt_status status = tt_store_wait(store, keys, (size_t)world, notes && slice < left ? slice : left ? left : 1);
        if (status == TT_ERR_TIMEOUT && slice < left && notes && !(status = check_ended(store, keys, world)))
            continue;
        if (!status)
            tt__error_restore(&before);
        return status;
    }
}

/* Read the keys one by one, as the older dialect of the store requires. */
static tt_status get_each(tt_store *store, const char *const *keys, int world, tt_store_value *values) {
    for (int r = 0; r < world; r++) {
        tt_status status = tt_store_get(store, keys[r], &values[r]);
        for (int i = 0; status && i < r; i++)
            tt_store_value_free(&values[i]);
        TT__TRY(status);
    }
    return TT_OK;
}

static tt_status get_texts(tt_store *store, const char *const *keys, int rank, int world, int64_t deadline_ms,
                           size_t size, tt_store_value *values, char *texts) {
    int64_t start = tt__now_ms(), left = tt__left_ms(deadline_ms);
    tt_status status = wait_for_keys(store, keys, rank, world, left);
    if (status == TT_ERR_TIMEOUT)
        status = check_missing(store, keys, world, tt__now_ms() - start);
    TT__TRY(status);
    status = tt_store_multi_get(store, keys, (size_t)world, values);
    if (status == TT_ERR_UNSUPPORTED)
        status = get_each(store, keys, world, values);
    TT__TRY(status);
    for (int r = 0; r < world; r++) {
        snprintf(texts + (size_t)r * size, size, "%.*s", (int)values[r].size, (const char *)values[r].data);
        tt_store_value_free(&values[r]);
    }
    return TT_OK;
}

tt_status tt__texts_exchange(tt_store *store, const char *prefix, const char *kind, int rank, int world,
                             int64_t deadline_ms, size_t size, char *texts) {
    char(*names)[KEY_SIZE] = calloc((size_t)world, sizeof *names);
    const char **keys = calloc((size_t)world, sizeof *keys);
    tt_store_value *values = calloc((size_t)world, sizeof *values);
    const char *mine = texts + (size_t)rank * size;
    tt_status status =
        names && keys && values ? TT_OK : tt__fail(TT_ERR_MEMORY, "no memory for the cards of %d ranks", world);
    for (int r = 0; !status && r < world; r++) {
        cards_key_of(prefix, kind, r, names[r]);
        keys[r] = names[r];
    }
    if (!status)
        status = tt_store_set(store, keys[rank], mine, strlen(mine));
    if (!status)
        status = get_texts(store, keys, rank, world, deadline_ms, size, values, texts);
    free(names);
    free(keys);
    free(values);
    return status;
}

void tt__texts_give_up(tt_store *store, const char *prefix, const char *kind, int world) {
    tt_status status = TT_OK;
    for (int r = 0; r < world && !status; r++) {
        char key[KEY_SIZE];
        cards_key_of(prefix, kind, r, key);
        status = tt_store_compare_set(store, key, "", 0, TT__GIVEN_UP, strlen(TT__GIVEN_UP), NULL);
    }
}

static tt_status parse_cards(const char *texts, size_t size, int rank, int world, tt__card *cards) {
    for (int r = 0; r < world; r++) {
        TT__TRY(parse_card(r, texts + (size_t)r * size, &cards[r]));
        if (cards[r].world != world)
            return tt__fail(TT_ERR_MISMATCH, "rank %d was started for a world of %d, rank %d for a world of %d", r,
                            cards[r].world, rank, world);
    }
    return TT_OK;
}

tt_status tt__cards_exchange(tt_store *store, const char *prefix, int rank, int world, int64_t deadline_ms,
                             tt__card *cards) {
    enum { SIZE = 1664 };
    char *texts = calloc((size_t)world, SIZE);
    if (!texts)
        return tt__fail(TT_ERR_MEMORY, "no memory for the cards of %d ranks", world);
    write_card(&cards[rank], texts + (size_t)rank * SIZE, SIZE);
    tt_status status = tt__texts_exchange(store, prefix, "rank", rank, world, deadline_ms, SIZE, texts);
    if (!status)
        status = parse_cards(texts, SIZE, rank, world, cards);
    free(texts);
    return status;
}
