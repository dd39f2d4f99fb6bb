/* The card that a rank leaves in the store: its host, its process, its sockets. */
#include "base/error.h"
#include "base/files/fd.h"
#include "base/machine/host_name.h"
#include "base/process/proc_state.h"
#include "base/text/plain_text.h"
#include "comm/rendezvous/rendezvous.h"
#include "store/signed.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { VERSION = 4 };

static void read_line(const char *path, char *text, size_t size) {
    int fd = tt__fd(open(path, O_RDONLY | O_CLOEXEC));
    ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);
    if (fd >= 0)
        close(fd);
    text[n < 0 ? 0 : n] = '\0';
    text[strcspn(text, "\n ")] = '\0';
}

/* Write the host's id: one token without spaces, also where the system has none. */
tt_status tt__host_id(char *text, size_t size) {
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
    TT__TRY(tt__host_id(card->host_id, sizeof card->host_id));
    snprintf(card->transport, sizeof card->transport, "%s", transport);
    drop_spaces(algorithms ? algorithms : "", card->algorithms, sizeof card->algorithms);
    snprintf(card->pid_space, sizeof card->pid_space, "%llu",
             stat("/proc/self/ns/pid", &pid_space) ? 0ULL : (unsigned long long)pid_space.st_ino);
    tt__host_name(card->hostname, sizeof card->hostname);
    return TT_OK;
}

static void write_card(const tt__card *card, char *text, size_t size) {
    snprintf(text, size, "tutti %d %d %ld %s %s %s %s %s %s %s", VERSION, card->world, card->pid, card->host_id,
             card->pid_space, card->hostname, card->socket, card->nonce, card->transport,
             *card->algorithms ? card->algorithms : "-");
}

static tt_status parse_card(int rank, const char *text, tt__card *card) {
    int version = 0;
    int n = sscanf(text, "tutti %d %d %ld %127s %31s %71s %63s %32s %7s %1024s", &version, &card->world, &card->pid,
                   card->host_id, card->pid_space, card->hostname, card->socket, card->nonce, card->transport,
                   card->algorithms);
    if (!strcmp(card->algorithms, "-"))
        *card->algorithms = '\0';
    if (n == 10 && version == VERSION)
        return TT_OK;
    return tt__fail(TT_ERR_PROTOCOL,
                    "rank %d uses another version of Tutti: expected its card in version %d, got \"%s\"", rank, VERSION,
                    tt__make_printable(text).text);
}

/* Tell ranks with another world size, which may wait for ranks that won't come. Wait a moment until they know, since
 * this rank may serve the store. */
static void tell_other_worlds(const tt__rendezvous *at, const tt__card *cards) {
    enum { TOLD_MS = 1000 };
    char own[256], others[256];
    int widest = at->world, world = at->world;
    tt__saved_error error;
    tt__error_save(&error);
    for (int r = 0; r < world; r++)
        widest = cards[r].world > widest && cards[r].world <= TT__MAX_RANKS ? cards[r].world : widest;
    snprintf(own, sizeof own, "%s/told/%d", at->prefix, at->rank);
    tt__texts_give_up(at->store, at->prefix, "rank", widest);
    tt_ignore(tt_store_set(at->store, own, "1", 1));
    for (int r = 0; r < world; r++) {
        const char *key = others;
        snprintf(others, sizeof others, "%s/told/%d", at->prefix, r);
        if (cards[r].world != world && tt_store_wait(at->store, &key, 1, TOLD_MS))
            break;
    }
    tt__error_restore(&error);
}

static tt_status parse_cards(const char *texts, size_t size, const tt__rendezvous *at, tt__card *cards) {
    int rank = at->rank, world = at->world, other = -1, given_up = -1;
    for (int r = 0; r < world; r++) {
        const char *text = texts + (size_t)r * size;
        cards[r].world = world;
        if (!strcmp(text, TT__GIVEN_UP))
            given_up = given_up < 0 ? r : given_up;
        else
            TT__TRY(parse_card(r, text, &cards[r]));
        other = other < 0 && cards[r].world != world ? r : other;
    }
    if (other >= 0) {
        tt_status status = tt__fail(TT_ERR_MISMATCH, "rank %d was started for a world of %d, rank %d for a world of %d",
                                    other, cards[other].world, rank, world);
        tell_other_worlds(at, cards);
        return status;
    }
    return given_up < 0 ? TT_OK : tt__fail(TT_ERR_PEER, "rank %d did not join", given_up);
}

/* ---- ranks that were started twice */

/* "tutti/0/2" -> "tutti/0/1/rank/3"; false: this is the first. */
static bool key_before(const char *prefix, int rank, char *key, size_t size) {
    const char *slash = strrchr(prefix, '/');
    long number = slash ? strtol(slash + 1, NULL, 10) : 0;
    if (number < 2)
        return false;
    snprintf(key, size, "%.*s/%ld/rank/%d", (int)(slash - prefix), prefix, number - 1, rank);
    return true;
}

static bool has_started_us(pid_t pid) {
    for (pid_t p = getpid(); p > 1; p = tt__proc_look(p).parent)
        if (p == pid)
            return true;
    return false;
}

/* Is it a process that this one can see, and that runs? */
static bool is_running_here(const tt__card *card) {
    tt__card own;
    if (tt__card_make(&own, 1, "auto", NULL))
        return false;
    char state = tt__proc_state((pid_t)card->pid);
    return !strcmp(own.host_id, card->host_id) && !strcmp(own.pid_space, card->pid_space) && state && state != 'Z';
}

/* Was this rank started twice? Yes, if the process that joined before under the same number and through this store
 * still runs on this host, and is no ancestor of this one. As each joining has a prefix of its own (comm/init.c), this
 * rank would wait for the others in vain. */
static tt_status check_twin(const tt__rendezvous *at, const tt__secret *secret) {
    int rank = at->rank;
    char key[160];
    const char *keys[] = {key};
    bool there = false;
    tt_store_value value;
    tt__card card = {0};
    if (!key_before(at->prefix, rank, key, sizeof key))
        return TT_OK;
    TT__TRY(tt_store_check(at->store, keys, 1, &there));
    if (!there)
        return TT_OK;
    TT__TRY(tt_store_get(at->store, key, &value));
    bool known =
        !tt__signed_open(&value, secret, key, tt__store_life(at->store)) && !parse_card(rank, value.data, &card);
    tt_store_value_free(&value);
    if (!known || !is_running_here(&card) || has_started_us((pid_t)card.pid))
        return TT_OK;
    return tt__fail(TT_ERR_STATE,
                    "rank %d was started twice: process %ld on this host has joined as rank %d before, and is still "
                    "there; this one is process %d (give each rank its own RANK)",
                    rank, card.pid, rank, (int)getpid());
}

void tt__cards_meeting(const tt__card *cards, int world, char text[TT__MEETING_SIZE]) {
    uint8_t mac[TT__MAC_SIZE] = {0};
    for (int r = 0; r < world; r++) {
        const uint8_t *nonce = (const uint8_t *)cards[r].nonce;
        tt__mac(mac, (tt__span){mac, sizeof mac}, &(tt__span){nonce, strlen(cards[r].nonce)}, 1);
    }
    for (size_t i = 0; i < sizeof mac; i++)
        snprintf(text + 2 * i, 3, "%02x", mac[i]);
}

tt_status tt__cards_exchange(const tt__rendezvous *rendezvous, tt__card *cards) {
    enum { SIZE = 1664 };
    int rank = rendezvous->rank, world = rendezvous->world;
    char *texts = calloc((size_t)world, SIZE);
    if (!texts)
        return tt__fail(TT_ERR_MEMORY, "no memory for the cards of %d ranks", world);
    write_card(&cards[rank], texts + (size_t)rank * SIZE, SIZE);
    tt_status status = tt__texts_exchange_asking(rendezvous, "rank", SIZE, texts, check_twin);
    if (!status)
        status = parse_cards(texts, SIZE, rendezvous, cards);
    free(texts);
    return status;
}
