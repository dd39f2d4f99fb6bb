/* All ranks take over rank 0's table of algorithms, through the store. */
#include "comm/native/native.h"

#include "base/error.h"
#include "comm/collective/choose.h"
#include "store/signed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    /* Where this fails, those who wait for the key run into their timeout. */
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

void tt__tuning_publish(const tt__member *member, const char *meeting) {
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

tt_status tt__tuning_agree(tt__world *world, const tt__member *member, const char *meeting) {
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
