/* Through the store: which device each rank has, and the unique id by which NCCL joins them.
 *
 * Each rank tells rank 0 its device's id, or why it has none. Rank 0 looks for two ranks on one device, which NCCL
 * can't join, and answers with the unique id, or with what is wrong: all ranks fail alike. */
#include "plugin.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ANSWER_MS: so much longer than rank 0 the others wait, as rank 0's answer says more. At most LOOK_MS pass between two
 * looks. */
enum { ANSWER_MS = 2000, LOOK_MS = 50, TEXT = 1024, UUID_TEXT = 48 };

/* Values: a letter, 'I' or 'E', and an id or an error's text. */
static tt_status tell(const tt_backend_member *member, const char *key, char kind, const void *bytes, size_t size) {
    char value[1 + TEXT];
    size = size < TEXT ? size : TEXT;
    value[0] = kind;
    memcpy(value + 1, bytes, size);
    return nccl_host->store_set(member->store, key, value, 1 + size);
}

/* Wait for a value. An error in it becomes this rank's, with `status`. An id of `least` to `size` bytes is padded with
 * zeros. */
static tt_status hear(const tt_backend_member *member, const char *key, tt_status status, void *id, size_t least,
                      size_t size) {
    tt_store_value got;
    tt_status failed = nccl_host->store_get(member->store, key, &got);
    if (failed)
        return failed;
    const char *value = got.data;
    if (got.size > 1 && *value == 'E') {
        failed = nccl_host->fail(status, "%.*s", (int)(got.size - 1 < TEXT ? got.size - 1 : TEXT), value + 1);
    } else if (got.size < 1 + least || got.size > 1 + size || *value != 'I') {
        failed =
            nccl_host->fail(TT_ERR_PEER,
                            "nccl: what is in the store under \"%s\" is no id: expected %zu to %zu bytes behind an "
                            "I, got %zu in all. Have all ranks the same version of Tutti?",
                            key, least, size, got.size);
    } else {
        memset(id, 0, size);
        memcpy(id, value + 1, got.size - 1);
    }
    nccl_host->store_value_free(&got);
    return failed;
}

bool nccl_can_watch(const tt_backend_member *member) {
    return nccl_host->member_size >= offsetof(tt_backend_member, watcher) + sizeof member->watcher && member->watch;
}

/* Has another rank ended? */
static tt_status watch(const tt_backend_member *member) {
    return nccl_can_watch(member) ? member->watch(member->watcher) : TT_OK;
}

/* Wait until a key is there, or a rank has ended without setting it. Looks at the key ever more rarely, as a wait of
 * the store that times out may cost the connection. */
static tt_status await_key(const tt_backend_member *member, const char *key, int64_t deadline_ms) {
    const int64_t begin_ms = nccl_now_ms();
    for (;;) {
        int64_t now = nccl_now_ms(), pause_ms = 1 + (now - begin_ms) / 16;
        bool is_there = false;
        tt_status ended = watch(member);
        tt_status status = nccl_host->store_check(member->store, &key, 1, &is_there);
        if (status || is_there)
            return status;
        if (ended) /* ask again for its text */
            return watch(member);
        if (now > deadline_ms)
            return nccl_host->fail(TT_ERR_TIMEOUT, "nccl: no rank has set \"%s\"", key);
        pause_ms = pause_ms < LOOK_MS ? pause_ms : LOOK_MS;
        nanosleep(&(struct timespec){.tv_nsec = pause_ms * 1000000}, NULL);
    }
}

static const char *device_key(int rank, char key[32]) {
    snprintf(key, 32, "nccl/device/%d", rank);
    return key;
}

/* ---- rank 0 */

static tt_status hear_device(const tt_backend_member *member, int rank, int64_t deadline_ms, char uuid[UUID_TEXT]) {
    char key[32];
    tt_status status = await_key(member, device_key(rank, key), deadline_ms);
    if (status == TT_ERR_TIMEOUT)
        return nccl_host->fail(status, "nccl: rank %d did not come to tt_init_process_group() within %lld ms", rank,
                               (long long)member->timeout_ms);
    return status ? status : hear(member, key, TT_ERR_PEER, uuid, 1, UUID_TEXT - 1);
}

static tt_status check_shared(char (*uuids)[UUID_TEXT], int n) {
    for (int r = 0; r < n; r++)
        if (!strcmp(uuids[r], uuids[n]))
            return nccl_host->fail(TT_ERR_INVALID,
                                   "nccl: ranks %d and %d use the same device, %s, and NCCL needs one for each rank. "
                                   "Pass .device_index = tt_get_node_local_rank(0), and start no more ranks on a host "
                                   "than it has devices",
                                   r, n, uuids[n]);
    return TT_OK;
}

static tt_status hear_devices(const tt_backend_member *member) {
    int64_t deadline_ms = nccl_now_ms() + member->timeout_ms;
    char(*uuids)[UUID_TEXT] = calloc((size_t)member->world_size, sizeof *uuids);
    tt_status status = uuids ? TT_OK : nccl_host->fail(TT_ERR_MEMORY, "nccl: no memory for %d ids", member->world_size);
    for (int r = 0; r < member->world_size && !status; r++) {
        status = hear_device(member, r, deadline_ms, uuids[r]);
        if (!status)
            status = check_shared(uuids, r);
    }
    free(uuids);
    return status;
}

static tt_status make_id(ncclUniqueId *id) {
    pthread_mutex_lock(&nccl_lock);
    ncclResult_t result = nccl.GetUniqueId(id);
    pthread_mutex_unlock(&nccl_lock);
    if (result == ncclSuccess)
        return TT_OK;
    return nccl_host->fail(TT_ERR_NET, "nccl: ncclGetUniqueId on rank 0 failed: %s. NCCL_DEBUG=WARN tells more",
                           nccl.GetErrorString(result));
}

static tt_status answer(const tt_backend_member *member, ncclUniqueId *id) {
    tt_status status = hear_devices(member);
    if (!status)
        status = make_id(id);
    if (!status)
        return tell(member, "nccl/id", 'I', id, sizeof *id);
    char text[TEXT];
    snprintf(text, sizeof text, "%s", nccl_host->last_error());
    tell(member, "nccl/id", 'E', text, strlen(text));
    return nccl_host->fail(status, "%s", text);
}

/* ---- all ranks */

tt_status nccl_meet(const nccl_engine *e, const tt_backend_member *member, tt_status status, ncclUniqueId *id) {
    char key[32], text[TEXT];
    const char *asked = "nccl/id";
    if (status)
        snprintf(text, sizeof text, "rank %d: %s", member->rank, nccl_host->last_error());
    tt_status told = status ? tell(member, device_key(member->rank, key), 'E', text, strlen(text))
                            : tell(member, device_key(member->rank, key), 'I', e->uuid, strlen(e->uuid));
    if (member->rank == 0 && !told)
        told = answer(member, id);
    if (status)
        return nccl_host->fail(status, "%s", text);
    if (member->rank == 0 || told)
        return told;
    told = await_key(member, asked, nccl_now_ms() + member->timeout_ms + ANSWER_MS);
    if (told == TT_ERR_TIMEOUT)
        return nccl_host->fail(told, "nccl: rank 0 did not give NCCL's unique id within %lld ms",
                               (long long)member->timeout_ms);
    return told ? told : hear(member, asked, TT_ERR_PEER, id, sizeof *id, sizeof *id);
}

void nccl_tell_failure(const tt_backend_member *member) {
    char text[TEXT];
    if (!member->store)
        return;
    tt_status status = TT_OK;
    bool is_told = false;
    snprintf(text, sizeof text, "%s", nccl_host->last_error());
    status = nccl_host->store_check(member->store, &(const char *){"nccl/failed"}, 1, &is_told);
    if (!status && !is_told)
        tell(member, "nccl/failed", 'E', text, strlen(text));
}

tt_status nccl_ask_failure(const tt_backend_member *member) {
    bool is_told = false;
    char none[1];
    if (!member->store)
        return TT_OK;
    tt_status ended = watch(member);
    tt_status status = nccl_host->store_check(member->store, &(const char *){"nccl/failed"}, 1, &is_told);
    if (status || !is_told)
        return ended ? watch(member) : status;
    return hear(member, "nccl/failed", TT_ERR_PEER, none, 1, sizeof none);
}
