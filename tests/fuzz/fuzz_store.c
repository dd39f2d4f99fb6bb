/* The store's protocol: parser, key table, waiters and watchers, in both dialects, on any bytes in any pieces.
 *
 * Input: a mode byte, then
 *   even mode: four bytes that say how the rest, one client's stream, is cut into pieces. The pieces must draw the same
 *   answers as the
 *     stream fed whole to another service.
 *   odd mode: records (client and flags, size, that many bytes) of four clients of one service, which come, go, and
 *   read or don't. */
#include "store/server/service.h"

#include <stdlib.h>
#include <string.h>

enum { CLIENTS = 4, KEEP_OUT = 1 << 16 };

static void require(bool condition) {
    if (!condition)
        abort();
}

/* Do as the server does: take the answers, continue with what was held back. Answers are added to `heard`, up to a
 * limit. */
static void drain(tt__store_session *session, tt__bytes *heard) {
    while (session->out.size && !session->out.failed) {
        size_t room = heard ? KEEP_OUT - heard->size : 0;
        if (heard)
            tt__bytes_put(heard, session->out.data, session->out.size < room ? session->out.size : room);
        tt__bytes_clear(&session->out, 4096);
        tt__store_session_resume(session);
    }
}

static void empty_queue(tt__store_service *service) {
    while (tt__store_service_next(service))
        ;
}

static void end_service(tt__store_service *service) {
    empty_queue(service);
    require(service->table.entries == service->table.kept);
    tt__store_service_free(service);
}

static void one_client(const uint8_t *cuts, const uint8_t *data, size_t size) {
    tt__store_service services[2];
    tt__store_session sessions[2];
    tt__bytes heard[2] = {0};
    for (int i = 0; i < 2; i++) {
        tt__store_service_init(&services[i]);
        memset(services[i].table.seed, 1, sizeof services[i].table.seed); /* the same order of keys */
        tt__store_session_init(&sessions[i], &services[i], NULL);
    }
    tt__store_session_feed(&sessions[0], data, size);
    drain(&sessions[0], &heard[0]);
    for (size_t at = 0, i = 0; at < size; i++) {
        size_t piece = (size_t)cuts[i % 4] + 1;
        piece = piece < size - at ? piece : size - at;
        tt__store_session_feed(&sessions[1], data + at, piece);
        drain(&sessions[1], &heard[1]);
        at += piece;
    }
    require(sessions[0].broken == sessions[1].broken);
    require(heard[0].size == heard[1].size);
    require(!heard[0].size || !memcmp(heard[0].data, heard[1].data, heard[0].size));
    for (int i = 0; i < 2; i++) {
        tt__store_session_end(&sessions[i]);
        end_service(&services[i]);
        tt__bytes_free(&heard[i]);
    }
}

static void several_clients(const uint8_t *data, size_t size) {
    tt__store_service service;
    tt__store_session sessions[CLIENTS];
    tt__store_service_init(&service);
    for (int i = 0; i < CLIENTS; i++)
        tt__store_session_init(&sessions[i], &service, NULL);
    while (size >= 2) {
        tt__store_session *session = &sessions[data[0] % CLIENTS];
        bool reads = data[0] & 4, leaves = data[0] & 8;
        size_t piece = data[1] < size - 2 ? data[1] : size - 2;
        tt__store_session_feed(session, data + 2, piece);
        if (reads)
            drain(session, NULL);
        if (leaves || session->broken) {
            tt__store_session_end(session);
            tt__store_session_init(session, &service, NULL);
        }
        empty_queue(&service);
        data += 2 + piece;
        size -= 2 + piece;
    }
    for (int i = 0; i < CLIENTS; i++)
        tt__store_session_end(&sessions[i]);
    end_service(&service);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size >= 1 && data[0] % 2)
        several_clients(data + 1, size - 1);
    else if (size >= 5)
        one_client(data + 1, data + 5, size - 5);
    return 0;
}
