/* The card by which a rank introduces itself. */
#include "base/error.h"
#include "base/fd.h"
#include "base/printable.h"
#include "comm/rendezvous/rendezvous.h"

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
    if (gethostname(card->hostname, sizeof card->hostname - 1) || !card->hostname[0])
        snprintf(card->hostname, sizeof card->hostname, "?");
    return TT_OK;
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
                    "rank %d uses another version of Tutti: expected its card in version %d, got \"%s\"", rank, VERSION,
                    tt__make_printable(text).text);
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

tt_status tt__cards_exchange(const tt__rendezvous *rendezvous, tt__card *cards) {
    enum { SIZE = 1664 };
    int rank = rendezvous->rank, world = rendezvous->world;
    char *texts = calloc((size_t)world, SIZE);
    if (!texts)
        return tt__fail(TT_ERR_MEMORY, "no memory for the cards of %d ranks", world);
    write_card(&cards[rank], texts + (size_t)rank * SIZE, SIZE);
    tt_status status = tt__texts_exchange(rendezvous, "rank", SIZE, texts);
    if (!status)
        status = parse_cards(texts, SIZE, rank, world, cards);
    free(texts);
    return status;
}
