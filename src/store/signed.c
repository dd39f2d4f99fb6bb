#include "store/signed.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "base/process/waits.h"
#include "store/store_ops.h"

#include <string.h>

enum { AGAIN_MS = 50 };

const char *tt__store_life(const tt_store *store) { return store->ops->life ? store->ops->life(store) : ""; }

const char *tt__store_lasting_life(const tt_store *store) {
    return store->ops->lasting_life ? store->ops->lasting_life(store) : "";
}

static bool signs(const tt__secret *secret) { return secret && secret->set; }

/* Hash the names with their sizes, so that different arguments never give the same bytes. */
static void value_proof(uint8_t mac[TT__MAC_SIZE], const tt__secret *secret, const char *key, const char *context,
                        const void *data, size_t size) {
    const uint64_t sizes[2] = {strlen(key), strlen(context)};
    uint8_t head[sizeof sizes];
    for (size_t i = 0; i < sizeof head; i++)
        head[i] = (uint8_t)(sizes[i / 8] >> 8 * (i % 8));
    tt__mac(
        mac, (tt__span){secret->store_key, TT__MAC_SIZE},
        (const tt__span[]){
            {head, sizeof head}, {(const uint8_t *)key, sizes[0]}, {(const uint8_t *)context, sizes[1]}, {data, size}},
        4);
}

void tt__sign(tt__bytes *out, const tt__secret *secret, const char *key, const char *context, const void *data,
              size_t size) {
    uint8_t mac[TT__MAC_SIZE];
    tt__bytes_put(out, data, size);
    if (!signs(secret))
        return;
    value_proof(mac, secret, key, context, data, size);
    tt__bytes_put(out, "", 1);
    tt__bytes_put(out, mac, sizeof mac);
}

tt_status tt__signed_open(tt_store_value *value, const tt__secret *secret, const char *key, const char *context) {
    enum { TAIL = 1 + TT__MAC_SIZE };
    uint8_t mac[TT__MAC_SIZE];
    if (!signs(secret))
        return TT_OK;
    if (value->size >= TAIL) {
        size_t size = value->size - TAIL;
        const uint8_t *tail = (const uint8_t *)value->data + size;
        value_proof(mac, secret, key, context, value->data, size);
        if (!tail[0] && tt__mac_equal(mac, tail + 1)) {
            value->size = size;
            return TT_OK;
        }
    }
    return tt__fail(TT_ERR_AUTH,
                    "what the store holds under \"%.100s\" was not written with this job's secret: its writer has "
                    "another secret or none, or somebody else writes into the store, be it what was written in an "
                    "earlier job (docs/security.md)",
                    key);
}

tt_status tt__signed_set(tt_store *store, const tt__secret *secret, const char *key, const char *context,
                         const void *data, size_t size) {
    tt__bytes value = {0};
    if (!signs(secret))
        return tt_store_set(store, key, data, size);
    tt__sign(&value, secret, key, context, data, size);
    tt_status status = value.failed ? tt__fail(TT_ERR_MEMORY, "no memory for a value of %zu bytes", size)
                                    : tt_store_set(store, key, value.data, value.size);
    tt__bytes_free(&value);
    return status;
}

void tt__signed_refuse(const char *who, const char *whose, const char *key) {
    tt__log(TT_LOG_WARNING,
            "%s: what the store holds under \"%s\" as the words of %s is refused: it was not written with the job's "
            "secret",
            who, key, whose);
}

tt_status tt__signed_get(tt_store *store, const tt__secret *secret, const char *key, const char *context,
                         const char *who, const char *whose, int64_t patience_ms, tt_store_value *value) {
    int64_t deadline_ms = tt__deadline_ms(patience_ms);
    for (bool told = false;; told = true) {
        TT__TRY(tt_store_get(store, key, value));
        tt_status status = tt__signed_open(value, secret, key, context);
        if (!status)
            return TT_OK;
        tt_store_value_free(value);
        if (!told)
            tt__signed_refuse(who, whose, key);
        int left = tt__left_ms(deadline_ms);
        if (!left) {
            tt__fail_prefix("%s refuses the words of %s", who, whose);
            return status;
        }
        tt__sleep_ms(left < AGAIN_MS ? left : AGAIN_MS);
    }
}
