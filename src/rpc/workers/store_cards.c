/* Joining through a store, and leaving: the keys by which workers find each other.
 *
 * Keys are read by a compare_set() that changes nothing, since tt_store_get() waits for a key that is missing. */
#include "rpc/workers/store_cards.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "base/machine/host_name.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KEY_SIZE = TT__RPC_PREFIX_SIZE + TT__RPC_NAME_SIZE + 32, TRIES = 64 };

static const char NOTHING[] = "?"; /* no worker writes this value */

static const char *card_key(const tt__rpc_cards *cards, const char *what, const char *name, char key[KEY_SIZE]) {
    snprintf(key, KEY_SIZE, "%s/%s%s", cards->prefix, what, name);
    return key;
}

static const char *worker_key(const tt__rpc_cards *cards, int id, char key[KEY_SIZE]) {
    char text[16];
    snprintf(text, sizeof text, "%d", id);
    return card_key(cards, "worker/", text, key);
}

/* Set a key to `desired` if it holds `expected` ("": or is missing). *value: what it holds afterwards, "" if it is
 * missing; the caller's to free(). */
static tt_status swap_key(const tt__rpc_cards *cards, const char *key, const char *expected, const char *desired,
                          char **value) {
    tt_store_value held;
    *value = NULL;
    TT__TRY(tt_store_compare_set(cards->store, key, expected, strlen(expected), desired, strlen(desired), &held));
    *value = held.data; /* which ends in a byte 0 */
    if (*value)
        return TT_OK;
    *value = strdup("");
    return *value ? TT_OK : tt__fail(TT_ERR_MEMORY, "no memory for a value of the store");
}

static tt_status read_key(const tt__rpc_cards *cards, const char *key, char **value) {
    TT__TRY(swap_key(cards, key, NOTHING, NOTHING, value));
    if (!strcmp(*value, NOTHING))
        **value = '\0';
    return TT_OK;
}

/* ---- cards */

static void write_worker_card(const tt__rpc_card *card, char text[TT__RPC_CARD_SIZE]) {
    snprintf(text, TT__RPC_CARD_SIZE, "%d %s %s %016" PRIx64 " %s", card->id, card->intro.name, card->intro.host,
             card->intro.functions, card->addresses);
}

/* Parse a card. False: the text is no card, as a worker that can be reached writes it. */
static bool parse_worker_card(const char *text, tt__rpc_card *card) {
    char again[TT__RPC_CARD_SIZE];
    *card = (tt__rpc_card){.id = -1};
    bool read = sscanf(text, "%d %127s %63s %16" SCNx64 " %767s", &card->id, card->intro.name, card->intro.host,
                       &card->intro.functions, card->addresses) == 5;
    if (!read || card->id < 0 || card->id >= TT__RPC_STORE_IDS || !tt__rpc_is_worker_name(card->intro.name))
        return false;
    write_worker_card(card, again);
    return !strcmp(text, again);
}

tt_status tt__rpc_cards_find(tt__rpc_cards *cards, int id, const char *name, tt__rpc_card *found) {
    char key[KEY_SIZE], *value;
    if (name)
        card_key(cards, "name/", name, key);
    else
        worker_key(cards, id, key);
    TT__TRY(read_key(cards, key, &value));
    bool good = parse_worker_card(value, found) && (name ? !strcmp(found->intro.name, name) : found->id == id);
    free(value);
    return good ? TT_OK : TT_ERR_NOT_FOUND;
}

/* A host's name in one word. */
static void own_host(char host[TT__INTRO_HOST]) {
    tt__host_name(host, TT__INTRO_HOST);
    for (char *c = host; *c; c++)
        if (*c <= ' ')
            *c = '-';
}

void tt__rpc_cards_begin(tt__rpc_cards *cards, const tt_rpc_init_args *args) {
    *cards = (tt__rpc_cards){.store = args->store, .has_id = args->has_id};
    cards->own.id = args->id;
    cards->own.intro.functions = tt__rpc_functions_hash();
    snprintf(cards->prefix, sizeof cards->prefix, "%s", args->prefix ? args->prefix : "rpc");
    snprintf(cards->own.intro.name, sizeof cards->own.intro.name, "%s", args->name);
    own_host(cards->own.intro.host);
}

/* ---- joining: the id and the name */

static tt_status fail_id_taken(const tt__rpc_cards *cards, const char *held) {
    tt__rpc_card other;
    char what[16] = "", name[TT__RPC_NAME_SIZE] = "";
    if (parse_worker_card(held, &other))
        return tt__fail(TT_ERR_MISMATCH, "worker %s can't have the id %d: worker %s (host %s) has it",
                        cards->own.intro.name, cards->own.id, other.intro.name, other.intro.host);
    sscanf(held, "%15s %127s", what, name);
    if (!strcmp(what, "left"))
        return tt__fail(TT_ERR_MISMATCH,
                        "worker %s can't have the id %d: worker %s had it, and has left. An id is used once; without "
                        ".has_id a worker gets one that is free",
                        cards->own.intro.name, cards->own.id, name);
    return tt__fail(TT_ERR_MISMATCH, "worker %s can't have the id %d: worker %s joins with it", cards->own.intro.name,
                    cards->own.id, name);
}

/* Try to reserve own.id. *is_free: it was free, and is this worker's now. Fails if the program chose it and it is not
 * free. */
static tt_status reserve_id(tt__rpc_cards *cards, bool *is_free) {
    char key[KEY_SIZE], joining[TT__RPC_NAME_SIZE + 16], *held;
    snprintf(joining, sizeof joining, "joining %s", cards->own.intro.name);
    TT__TRY(swap_key(cards, worker_key(cards, cards->own.id, key), "", joining, &held));
    *is_free = !strcmp(held, joining);
    tt_status status = !*is_free && cards->has_id ? fail_id_taken(cards, held) : TT_OK;
    cards->listed = *is_free;
    free(held);
    return status;
}

tt_status tt__rpc_cards_take_id(tt__rpc_cards *cards) {
    char key[KEY_SIZE];
    bool is_free = false;
    while (!is_free) {
        int64_t given = 0;
        if (!cards->has_id)
            TT__TRY(tt_store_add(cards->store, card_key(cards, "next", "", key), 1, &given));
        if (!cards->has_id && (given < 1 || given > TT__RPC_STORE_IDS))
            return tt__fail(TT_ERR_STATE,
                            "%d workers have joined under the prefix \"%.200s\", and there are no more ids",
                            TT__RPC_STORE_IDS, cards->prefix);
        if (!cards->has_id)
            cards->own.id = (int)given - 1;
        TT__TRY(reserve_id(cards, &is_free));
    }
    return TT_OK;
}

/* Publish the worker's card; other workers can reach it from now on. */
static tt_status publish_card(tt__rpc_cards *cards) {
    char key[KEY_SIZE], card[TT__RPC_CARD_SIZE];
    write_worker_card(&cards->own, card);
    return tt_store_set(cards->store, worker_key(cards, cards->own.id, key), card, strlen(card));
}

/* Take the worker's name. If another worker has it, *taken is true and *other is its card. When the caller has found
 * that worker lost, it calls again with that card as `lost`, and takes the name from it; NULL at first. Errors:
 * TT_ERR_PROTOCOL the key has something that no worker writes; those of a store. */
static tt_status try_name(tt__rpc_cards *cards, const tt__rpc_card *lost, bool *taken, tt__rpc_card *other) {
    char key[KEY_SIZE], card[TT__RPC_CARD_SIZE], expected[TT__RPC_CARD_SIZE] = "", *held;
    tt_status status = TT_OK;
    write_worker_card(&cards->own, card);
    if (lost)
        write_worker_card(lost, expected);
    card_key(cards, "name/", cards->own.intro.name, key);
    for (int i = 0; i < TRIES; i++) {
        TT__TRY(swap_key(cards, key, expected, card, &held));
        cards->named = !strcmp(held, card);
        *taken = !cards->named && parse_worker_card(held, other);
        bool again = !cards->named && !*taken;
        if (again) /* the key was removed meanwhile, or has no card */
            status = snprintf(expected, sizeof expected, "%s", held) < (int)sizeof expected ? TT_OK : TT_ERR_PROTOCOL;
        free(held);
        if (!again)
            return TT_OK;
        if (status)
            break;
    }
    return tt__fail(TT_ERR_PROTOCOL, "the store's key \"%.300s\" is not what workers write", key);
}

/* ---- joining: functions */

/* "HASH ID NAME" */
static void write_reference(const tt__rpc_cards *cards, char text[TT__RPC_CARD_SIZE]) {
    snprintf(text, TT__RPC_CARD_SIZE, "%016" PRIx64 " %d %s", cards->own.intro.functions, cards->own.id,
             cards->own.intro.name);
}

/* Make this worker's functions those that newcomers must have, if PREFIX/functions still holds `held`. */
static tt_status offer_functions(const tt__rpc_cards *cards, const char *held, char **now_held) {
    char key[KEY_SIZE], hash[24], own[TT__RPC_CARD_SIZE];
    char *text = tt__rpc_functions_text();
    if (!text)
        return tt_last_status() ? tt_last_status() : tt__fail(TT_ERR_MEMORY, "no memory for the list of functions");
    snprintf(hash, sizeof hash, "%016" PRIx64, cards->own.intro.functions);
    tt_status status = tt_store_set(cards->store, card_key(cards, "functions/", hash, key), text, strlen(text));
    free(text);
    write_reference(cards, own);
    return status ? status : swap_key(cards, card_key(cards, "functions", "", key), held, own, now_held);
}

static tt_status compare_with(const tt__rpc_cards *cards, const char *hash, const char *name) {
    char key[KEY_SIZE], *text;
    TT__TRY(read_key(cards, card_key(cards, "functions/", hash, key), &text));
    tt_status status = tt__rpc_functions_compare(cards->own.intro.name, name, text);
    free(text);
    return status;
}

/* Compare this worker's functions with those that newcomers must have; the first worker's become those. Errors:
 * TT_ERR_MISMATCH they differ from those of worker *other (when the caller has found that worker lost, it calls again
 * with `lost`, and this worker's functions take their place); those of a store. */
static tt_status compare_functions_once(tt__rpc_cards *cards, bool lost, int *other) {
    char key[KEY_SIZE], hash[20], own_hash[20], name[TT__RPC_NAME_SIZE], *held = NULL;
    snprintf(own_hash, sizeof own_hash, "%016" PRIx64, cards->own.intro.functions);
    card_key(cards, "functions", "", key);
    TT__TRY(read_key(cards, key, &held));
    for (int i = 0; i < TRIES; i++) {
        bool known = held && sscanf(held, "%16s %d %127s", hash, other, name) == 3;
        if (known && !strcmp(hash, own_hash)) {
            free(held);
            return TT_OK;
        }
        if (known && !lost) {
            tt_status status = compare_with(cards, hash, name);
            free(held);
            return status;
        }
        char *before = held;
        held = NULL;
        tt_status status = offer_functions(cards, before, &held);
        free(before);
        TT__TRY(status);
        lost = false; /* the next key that is read may be of a worker that is there */
    }
    free(held);
    return tt__fail(TT_ERR_PROTOCOL, "the store's key \"%.300s\" changes all the time", key);
}

/* ---- leaving */

/* Remove a key if it holds `expected`; whatever it holds if that is NULL. */
static void remove_key(const tt__rpc_cards *cards, const char *key, const char *expected) {
    char *held = NULL;
    bool is_own = !expected || (!read_key(cards, key, &held) && !strcmp(held, expected));
    tt_status ignored = is_own ? tt_store_delete_key(cards->store, key, NULL) : TT_OK;
    (void)ignored;
    free(held);
}

void tt__rpc_cards_remove_own(tt__rpc_cards *cards) {
    char key[KEY_SIZE], card[TT__RPC_CARD_SIZE], left[TT__RPC_NAME_SIZE + 16];
    tt__saved_error saved;
    tt__error_save(&saved);
    write_worker_card(&cards->own, card);
    if (cards->named)
        remove_key(cards, card_key(cards, "name/", cards->own.intro.name, key), card);
    if (cards->listed && cards->has_id && cards->named) {
        snprintf(left, sizeof left, "left %s", cards->own.intro.name);
        tt_status ignored = tt_store_set(cards->store, worker_key(cards, cards->own.id, key), left, strlen(left));
        (void)ignored;
    } else if (cards->listed) {
        remove_key(cards, worker_key(cards, cards->own.id, key), NULL);
    }
    cards->named = cards->listed = false;
    tt__error_restore(&saved);
}

/* Remove PREFIX/worker/ID of a lost worker. Errors are ignored. */
static void remove_lost(tt__rpc_cards *cards, int id) {
    char key[KEY_SIZE];
    tt__saved_error saved;
    tt__error_save(&saved);
    remove_key(cards, worker_key(cards, id, key), NULL);
    tt__error_restore(&saved);
}

/* ---- joining
 * Keys of a worker that was lost are replaced. Connecting to it shows whether it is lost. */

/* Connect to the worker of a card. *there: it answers. Errors: TT_ERR_TIMEOUT it is not known in time; other
 * failures. */
static tt_status look_for(const tt__rpc_cards *cards, tt__rpc_network *network, const tt__rpc_card *card,
                          int64_t deadline_ms, bool *there) {
    tt__rpc_reach reach = TT__RPC_CONNECTING;
    pthread_mutex_lock(network->lock);
    while ((reach = network->ops->reach(network, card->id)) == TT__RPC_CONNECTING && tt__left_ms(deadline_ms))
        network->ops->sleep(network, tt__left_ms(deadline_ms));
    pthread_mutex_unlock(network->lock);
    *there = reach == TT__RPC_REACHED;
    if (*there)
        return TT_OK;
    if (reach == TT__RPC_CONNECTING)
        return tt__fail(TT_ERR_TIMEOUT,
                        "worker %s could not find out in time whether worker %s (id %d, host %s) is there",
                        cards->own.intro.name, card->intro.name, card->id, card->intro.host);
    tt_status status = tt_last_status();
    bool is_lost = status == TT_ERR_PEER || status == TT_ERR_NET || status == TT_ERR_TIMEOUT;
    return is_lost ? TT_OK : status;
}

/* Read the card of a worker, and connect to it. *there: it answers; else it is lost, or has left. */
static tt_status look_for_id(tt__rpc_cards *cards, tt__rpc_network *network, int id, int64_t deadline_ms, bool *there) {
    tt__rpc_card card;
    *there = false;
    tt_status status = tt__rpc_cards_find(cards, id, NULL, &card);
    if (status)
        return status == TT_ERR_NOT_FOUND ? TT_OK : status;
    return look_for(cards, network, &card, deadline_ms, there);
}

static tt_status take_worker_name(tt__rpc_cards *cards, tt__rpc_network *network, int64_t deadline_ms) {
    tt__rpc_card other, *lost = NULL;
    for (;;) {
        bool taken, there;
        TT__TRY(try_name(cards, lost, &taken, &other));
        if (!taken)
            return TT_OK;
        if (!tt__left_ms(deadline_ms))
            return tt__fail(TT_ERR_TIMEOUT,
                            "worker %s could not take its name in time: others that are not there have it, the last "
                            "with id %d on host %s",
                            cards->own.intro.name, other.id, other.intro.host);
        TT__TRY(look_for_id(cards, network, other.id, deadline_ms, &there));
        if (there)
            return tt__fail(TT_ERR_EXISTS,
                            "two workers are named %s: one with id %d on host %s is there already, this one on host %s "
                            "would be another",
                            other.intro.name, other.id, other.intro.host, cards->own.intro.host);
        tt__log(TT_LOG_INFO, "worker %s (id %d, host %s) is not there any more; this one takes its name",
                other.intro.name, other.id, other.intro.host);
        remove_lost(cards, other.id);
        lost = &other;
    }
}

static tt_status compare_with_first(tt__rpc_cards *cards, tt__rpc_network *network, int64_t deadline_ms) {
    tt__saved_error mismatch;
    int other;
    bool there;
    tt_status status = compare_functions_once(cards, false, &other);
    if (status != TT_ERR_MISMATCH)
        return status;
    tt__error_save(&mismatch);
    TT__TRY(look_for_id(cards, network, other, deadline_ms, &there));
    if (!there)
        return compare_functions_once(cards, true, &other);
    tt__error_restore(&mismatch);
    return status;
}

tt_status tt__rpc_cards_join(tt__rpc_cards *cards, tt__rpc_network *network, bool compares, int64_t deadline_ms) {
    if (compares)
        TT__TRY(compare_with_first(cards, network, deadline_ms));
    TT__TRY(publish_card(cards));
    return take_worker_name(cards, network, deadline_ms);
}
