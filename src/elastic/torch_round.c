#include "elastic/torch_round.h"

#include "base/error.h"
#include "base/json.h"
#include "base/parse.h"
#include "base/plain_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_WORKERS_OF_NODE = 65536, MAX_ROUNDS_BACK = 1000 };

#define ROLE_INFO "torchelastic/role_info"
#define TERMINAL_STATE "torchelastic/agent/terminal_state"

/* ---- keys */

static tt_status round_key(const tt__torch_round *r, char **key, const char *name, int of, const char *ending) {
    char number[16] = "";
    if (of >= 0)
        snprintf(number, sizeof number, "%d", of);
    if (asprintf(key, "torch.rendezvous.%s.%lld/%s%s%s", r->run_id, (long long)r->round, name, number, ending) >= 0)
        return TT_OK;
    *key = NULL;
    return tt__fail(TT_ERR_MEMORY, "no memory for a key of the store");
}

static tt_status put_round_text(const tt__torch_round *r, const char *name, int of, const char *ending,
                                const char *text) {
    char *key;
    TT__TRY(round_key(r, &key, name, of, ending));
    tt_status status = tt_store_set(r->store, key, text, strlen(text));
    free(key);
    return status;
}

static tt_status is_there(const tt__torch_round *r, const char *name, int of, const char *ending, bool *there) {
    char *key;
    TT__TRY(round_key(r, &key, name, of, ending));
    tt_status status = tt_store_check(r->store, (const char *[]){key}, 1, there);
    free(key);
    return status;
}

/* Read a key if it is there; else value->data is NULL. */
static tt_status read_round_key(const tt__torch_round *r, const char *name, int of, tt_store_value *value) {
    char *key;
    bool there = false;
    *value = (tt_store_value){0};
    TT__TRY(is_there(r, name, of, "", &there));
    if (!there)
        return TT_OK;
    TT__TRY(round_key(r, &key, name, of, ""));
    tt_status status = tt_store_get(r->store, key, value);
    free(key);
    return status;
}

/* ---- roles and ranks */

void tt__torch_round_free(tt__torch_round *r) {
    for (int k = 0; r->roles && k < r->world; k++)
        free(r->roles[k]);
    free(r->roles);
    free(r->sizes);
    *r = (tt__torch_round){0};
}

static tt_status tell_role(tt__torch_round *r) {
    json_t *info = json_pack("{s:s, s:i, s:i}", "role", r->role, "rank", r->rank, "local_world_size", r->workers);
    char *text = info ? tt__json_dumps(info, 0) : NULL;
    json_decref(info);
    if (!text)
        return tt__fail(TT_ERR_INVALID, "--role: expected UTF-8, got \"%.60s\"", r->role);
    tt_status status = put_round_text(r, ROLE_INFO, r->rank, "", text);
    if (!status)
        status = put_round_text(r, ROLE_INFO "/", r->rank, "", text);
    free(text);
    r->told = !status;
    return status;
}

static tt_status take_role(tt__torch_round *r, int k, const tt_store_value *value) {
    json_t *info = tt__json_loadb(value->data, value->size, 0, NULL);
    const char *role = "";
    int rank = 0, workers = 0;
    tt_status status = TT_OK;
    if (!info || json_unpack(info, "{s:s, s:i, s:i}", "role", &role, "rank", &rank, "local_world_size", &workers) ||
        rank != k || workers < 1 || workers > MAX_WORKERS_OF_NODE) {
        char plain[101];
        snprintf(plain, sizeof plain, "%s", (const char *)value->data);
        status = tt__fail(TT_ERR_PROTOCOL, "what agent %d says of its workers is not understood: \"%s\"", k,
                          tt__make_plain(plain));
    } else if (!(r->roles[k] = strdup(role))) {
        status = tt__fail(TT_ERR_MEMORY, "no memory for %d agents", r->world);
    }
    if (!status)
        r->sizes[k] = workers;
    json_decref(info);
    return status;
}

/* Read what the others say, as far as they have said it. */
static tt_status gather_roles(tt__torch_round *r) {
    for (; r->known < r->world; r->known++) {
        tt_store_value value;
        TT__TRY(read_round_key(r, ROLE_INFO "/", r->known, &value));
        if (!value.data)
            TT__TRY(read_round_key(r, ROLE_INFO, r->known, &value));
        if (!value.data)
            return TT_OK;
        tt_status status = take_role(r, r->known, &value);
        tt_store_value_free(&value);
        TT__TRY(status);
    }
    return TT_OK;
}

static tt__torch_ranks ranks_of(const tt__torch_round *r, int rank) {
    tt__torch_ranks ranks = {0};
    for (int k = 0; k < r->world; k++) {
        bool same = !strcmp(r->roles[k], r->roles[rank]);
        ranks.first_rank += k < rank ? r->sizes[k] : 0;
        ranks.world += r->sizes[k];
        ranks.first_role_rank += same && k < rank ? r->sizes[k] : 0;
        ranks.role_world += same ? r->sizes[k] : 0;
    }
    return ranks;
}

static tt_status assign_ranks(const tt__torch_round *r) {
    for (int k = 0; k < r->world; k++) {
        char text[64];
        tt__torch_ranks of = ranks_of(r, k);
        snprintf(text, sizeof text, "[%d, %d, %d, %d]", of.first_rank, of.world, of.first_role_rank, of.role_world);
        TT__TRY(put_round_text(r, "torchelastic/assigned_ranks/", k, "", text));
    }
    return TT_OK;
}

static tt_status round_allocate(tt__torch_round *r) {
    if (!r->roles)
        r->roles = calloc((size_t)r->world, sizeof *r->roles);
    if (!r->sizes)
        r->sizes = calloc((size_t)r->world, sizeof *r->sizes);
    return r->roles && r->sizes ? TT_OK : tt__fail(TT_ERR_MEMORY, "no memory for %d agents", r->world);
}

tt_status tt__torch_round_ranks(tt__torch_round *r, bool identical, tt__torch_ranks *ranks, bool *done) {
    *done = identical;
    if (identical) {
        int first = r->rank * r->workers, world = r->world * r->workers;
        *ranks = (tt__torch_ranks){first, world, first, world};
        return TT_OK;
    }
    TT__TRY(round_allocate(r));
    if (!r->told)
        TT__TRY(tell_role(r));
    TT__TRY(gather_roles(r));
    if (r->known < r->world)
        return TT_OK;
    if (r->rank == 0)
        TT__TRY(assign_ranks(r));
    TT__TRY(put_round_text(r, ROLE_INFO, r->rank, ".FIN", "FIN"));
    *ranks = ranks_of(r, r->rank);
    *done = true;
    return TT_OK;
}

/* ---- where the workers meet */

tt_status tt__torch_round_set_master(tt__torch_round *r, const char *address, int port) {
    char text[16];
    snprintf(text, sizeof text, "%d", port);
    TT__TRY(put_round_text(r, "MASTER_ADDR", -1, "", address));
    return put_round_text(r, "MASTER_PORT", -1, "", text);
}

tt_status tt__torch_round_get_master(tt__torch_round *r, char address[TT__TORCH_MASTER], int *port, bool *done) {
    tt_store_value host, number;
    int64_t parsed = 0;
    *done = false;
    TT__TRY(read_round_key(r, "MASTER_PORT", -1, &number)); /* set after MASTER_ADDR */
    if (!number.data)
        return TT_OK;
    tt_status status = tt__parse_i64("MASTER_PORT", number.data, 1, 65535, &parsed);
    tt_store_value_free(&number);
    TT__TRY(status);
    TT__TRY(read_round_key(r, "MASTER_ADDR", -1, &host));
    bool good = host.data && host.size > 0 && host.size < TT__TORCH_MASTER && !memchr(host.data, 0, host.size);
    if (good)
        snprintf(address, TT__TORCH_MASTER, "%s", tt__make_plain(host.data));
    tt_store_value_free(&host);
    *port = (int)parsed;
    *done = good;
    return good ? TT_OK
                : tt__fail(TT_ERR_PROTOCOL, "MASTER_ADDR: expected a name of less than %d bytes", TT__TORCH_MASTER);
}

tt_status tt__torch_round_find_master(tt__torch_round *r, const char *first, char address[TT__TORCH_MASTER], int *port,
                                      bool *done) {
    tt__torch_round earlier = *r;
    *done = false;
    while (!*done && earlier.round-- > 0 && r->round - earlier.round <= MAX_ROUNDS_BACK) {
        TT__TRY(tt__torch_round_get_master(&earlier, address, port, done));
        *done = *done && !strcmp(address, first);
    }
    return TT_OK;
}

/* ---- the end */

/* Count this agent as done, both ways. */
static tt_status count_end(tt__torch_round *r, bool failed) {
    char text[16], *key;
    int64_t done = 0;
    snprintf(text, sizeof text, "%d", r->rank);
    r->counted = true;
    TT__TRY(put_round_text(r, TERMINAL_STATE, r->rank, "", text));
    if (failed)
        return put_round_text(r, TERMINAL_STATE, r->rank, ".FIN", "FIN");
    TT__TRY(round_key(r, &key, TERMINAL_STATE "/num_members", -1, ""));
    tt_status status = tt_store_add(r->store, key, 1, &done);
    free(key);
    TT__TRY(status);
    return done == r->world ? put_round_text(r, TERMINAL_STATE "/last_member", -1, "", "1") : TT_OK;
}

/* Have all agents done what `ending` says, as 1.x does? */
static tt_status all_nodes_ended(const tt__torch_round *r, const char *ending, bool *all) {
    *all = true;
    for (int k = 0; k < r->world && *all; k++)
        TT__TRY(is_there(r, TERMINAL_STATE, k, ending, all));
    return TT_OK;
}

tt_status tt__torch_round_has_ended(tt__torch_round *r, bool *one) {
    TT__TRY(is_there(r, TERMINAL_STATE "/num_members", -1, "", one));
    for (int k = 0; k < r->world && !*one; k++)
        TT__TRY(is_there(r, TERMINAL_STATE, k, "", one));
    return TT_OK;
}

tt_status tt__torch_round_end(tt__torch_round *r, bool failed, bool *all) {
    *all = failed;
    if (!r->counted)
        TT__TRY(count_end(r, failed));
    if (failed)
        return TT_OK;
    TT__TRY(is_there(r, TERMINAL_STATE "/last_member", -1, "", all));
    if (*all)
        return TT_OK;
    TT__TRY(all_nodes_ended(r, "", all));
    if (!*all)
        return TT_OK;
    TT__TRY(put_round_text(r, TERMINAL_STATE, r->rank, ".FIN", "FIN"));
    return all_nodes_ended(r, ".FIN", all); /* the store may be ours: it must stay until all have seen it */
}
