/* The network of workers that come and go. They find each other through a store (store_cards.h), and two of them
 * connect when one first needs the other (comm/message/joining/dialling.c).
 *
 *   reach():  WORKER_KNOWN -> read its card: WORKER_ASKED -> WORKER_KNOWN -> connect: WORKER_DIALLED -> WORKER_LINKED
 *   from any state, when it is found dead, frozen or gone: WORKER_LOST. No other worker gets its id, so it stays lost.
 *
 * The lock is not held while a card is read: the callers of find() and name_of() read it themselves; for reach(), which
 * must not block, a thread reads it, started when it is first needed. Workers of one host use TCP, too. */
#include "base/error.h"
#include "base/hash.h"
#include "base/machine/clock.h"
#include "base/process/limits.h"
#include "base/process/threads.h"
#include "comm/message/joining/joining.h"
#include "comm/message/message_parts.h"
#include "rpc/workers/store_cards.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    HEARTBEAT_MS = 5000,
    NAMES = 4096,     /* slots of the hash table of names; a power of two */
    LOST_KEPT = 1024, /* lost workers whose reason is kept */
    FAILED_MS = 1000, /* for this time after a failed connection, reach() fails with its error, and does not connect */
    CENSUS_MS = 250   /* the longest time between two checks of all links */
};

/* What is known of a worker. */
typedef struct worker {
    struct worker *next_named; /* in the table of names, if is_named: its card was found by its name */
    struct worker *next_asked; /* in the list of workers whose card is to be read */
    int id;
    enum { WORKER_KNOWN, WORKER_ASKED, WORKER_DIALLED, WORKER_LINKED, WORKER_LOST } state;
    bool is_named, is_local;
    char *name, *host, *addresses; /* NULL: not known */
    int64_t failed_ms;             /* when a connection to it failed; 0: none has */
    tt_status status;              /* of that failure, or of its loss */
    char *why;                     /* the text of the same error */
} worker;

typedef struct store_network {
    tt__rpc_network base; /* the first member */
    pthread_mutex_t lock;
    tt__rpc_cards cards;
    tt__dialling *dialling;
    worker **workers; /* (TT__RPC_STORE_IDS) by id; NULL: unknown */
    int highest;      /* the highest id in `workers` */
    worker *named[NAMES];
    int lost[LOST_KEPT]; /* ids of lost workers, a ring buffer */
    uint32_t lost_count;
    int64_t census_ms;
    int cores, local_count; /* CPUs; linked workers of this host */
    bool forgets;           /* there are links of lost workers to free */

    /* The thread that reads cards. */
    pthread_t reader;
    bool has_reader, stop;
    pthread_cond_t asked_some;
    worker *asked, **asked_end;
} store_network;

static store_network *store_of(tt__rpc_network *network) { return (store_network *)network; }

/* ---- what is known of workers */

static worker **name_slot(store_network *s, const char *name) {
    return &s->named[tt__fnv_text(TT__FNV, name) & (NAMES - 1)];
}

static void forget_name(store_network *s, worker *w) {
    if (!w->is_named)
        return;
    worker **at = name_slot(s, w->name);
    while (*at != w)
        at = &(*at)->next_named;
    *at = w->next_named;
    w->is_named = false;
}

static worker *find_named(store_network *s, const char *name) {
    worker *w = *name_slot(s, name);
    while (w && strcmp(w->name, name) != 0)
        w = w->next_named;
    return w;
}

static worker *known_worker(const store_network *s, int id) {
    return id >= 0 && id < TT__RPC_STORE_IDS ? s->workers[id] : NULL;
}

static worker *make_worker(store_network *s, int id) {
    if (s->workers[id])
        return s->workers[id];
    worker *w = calloc(1, sizeof *w);
    if (!w)
        return tt__fail_null(TT_ERR_MEMORY, "no memory for what is known of a worker");
    w->id = id;
    s->workers[id] = w;
    if (id > s->highest)
        s->highest = id;
    return w;
}

static void free_worker(store_network *s, worker *w) {
    forget_name(s, w);
    s->workers[w->id] = NULL;
    free(w->name);
    free(w->host);
    free(w->addresses);
    free(w->why);
    free(w);
}

static bool keep_text(char **text, const char *now) {
    if (*text && !strcmp(*text, now))
        return true;
    char *copy = strdup(now);
    if (!copy)
        return false;
    free(*text);
    *text = copy;
    return true;
}

/* Keep the name and host that a worker says it has. */
static bool keep_intro(store_network *s, worker *w, const tt__intro *intro) {
    if (w->is_named && strcmp(w->name, intro->name) != 0)
        forget_name(s, w);
    w->is_local = !strcmp(intro->host, s->cards.own.intro.host);
    return keep_text(&w->name, intro->name) && keep_text(&w->host, intro->host);
}

/* Does a card give a worker another name than it has? One that is linked has told its name itself. */
static bool has_other_name(const store_network *s, const tt__rpc_card *card) {
    const worker *w = known_worker(s, card->id);
    const char *name = card->id == s->base.self         ? s->cards.own.intro.name
                       : w && w->state == WORKER_LINKED ? w->name
                                                        : NULL;
    return name && strcmp(name, card->intro.name) != 0;
}

/* Keep what a card says. `by_name`: the card was found by its name, which leads to this worker from now on. NULL,
 * recorded: no memory. */
static worker *keep_card(store_network *s, const tt__rpc_card *card, bool by_name) {
    worker *w = make_worker(s, card->id), *other;
    if (!w)
        return NULL;
    if (w->state != WORKER_LOST && (!keep_intro(s, w, &card->intro) || !keep_text(&w->addresses, card->addresses)))
        return tt__fail_null(TT_ERR_MEMORY, "no memory for what is known of a worker");
    if (!by_name || w->is_named || w->state == WORKER_LOST)
        return w;
    other = find_named(s, card->intro.name);
    if (other)
        forget_name(s, other);
    worker **slot = name_slot(s, w->name);
    w->next_named = *slot;
    *slot = w;
    w->is_named = true;
    return w;
}

static const char *peer_name(void *world, int peer, const char **host) {
    const store_network *s = world;
    const worker *w = known_worker(s, peer);
    if (peer == s->base.self) {
        *host = s->cards.own.intro.host;
        return s->cards.own.intro.name;
    }
    *host = w ? w->host : NULL;
    return w ? w->name : NULL;
}

/* ---- verdicts */

/* Record why a worker can't be reached. */
static tt_status fail_worker(const worker *w) {
    return tt__fail(w->status, "%s", w->why ? w->why : "the worker is lost, and there was no memory to keep why");
}

/* Keep this thread's last error as the reason why a worker can't be reached. */
static void keep_reason(worker *w, tt_status status) {
    char *why = strdup(tt_last_error());
    free(w->why);
    w->why = why;
    w->status = status;
}

static void count_local(store_network *s, const worker *w, int change) {
    if (w->is_local)
        s->local_count += change;
    s->base.cpus_each = s->cores / (s->local_count + 1);
}

/* Mark a worker as lost, with this thread's last error as the reason. forget_links() frees its link later. */
static void lose_worker(store_network *s, worker *w) {
    if (w->state == WORKER_LOST)
        return;
    keep_reason(w, TT_ERR_PEER);
    if (w->state == WORKER_LINKED)
        count_local(s, w, -1);
    forget_name(s, w);
    w->state = WORKER_LOST;
    free(w->addresses);
    w->addresses = NULL;
    tt__link_lose(s->base.messages, w->id, "it was lost");
    s->forgets = true;
    uint32_t place = s->lost_count++ % LOST_KEPT;
    worker *oldest = s->lost_count > LOST_KEPT ? known_worker(s, s->lost[place]) : NULL;
    if (oldest && oldest->state == WORKER_LOST && !s->base.messages->links[oldest->id])
        free_worker(s, oldest);
    s->lost[place] = w->id;
}

static void forget_links(store_network *s) {
    tt__messages *messages = s->base.messages;
    if (!s->forgets)
        return;
    s->forgets = false;
    for (tt__link *link = messages->active, *next; link; link = next) {
        const worker *w = known_worker(s, link->peer);
        next = link->next;
        if (link->ended && w && w->state == WORKER_LOST)
            tt__link_forget(messages, link->peer);
    }
}

/* Check the link of a worker. If it has failed, the worker is lost from now on, and the error is recorded. */
static tt_status check_linked(store_network *s, worker *w) {
    tt_status status = tt__link_check(s->base.messages, w->id);
    if (!status)
        return TT_OK;
    lose_worker(s, w);
    return TT_ERR_PEER;
}

/* Check all links if it is time: workers that are silent are lost. Must not be called while links are being served.
 * Returns the ms until the next check. */
static int64_t take_census(store_network *s, int64_t now) {
    int64_t every = s->base.messages->config.heartbeat_ms / 8;
    tt__saved_error saved;
    forget_links(s);
    if (now < s->census_ms)
        return s->census_ms - now;
    tt__error_save(&saved);
    every = every > CENSUS_MS ? CENSUS_MS : every < 1 ? 1 : every;
    s->census_ms = now + every;
    for (tt__link *link = s->base.messages->active, *next; link; link = next) {
        worker *w = known_worker(s, link->peer);
        next = link->next;
        if (w && w->state == WORKER_LINKED)
            check_linked(s, w);
    }
    forget_links(s);
    tt__error_restore(&saved);
    return every;
}

static int64_t advance_store(void *world) { return take_census(world, tt__now_ms()); }

/* ---- what dialling.c calls */

static bool may_link(void *user, int peer, const tt__intro *intro) {
    store_network *s = user;
    worker *w = make_worker(s, peer);
    return w && w->state != WORKER_LOST && !tt__rpc_check_worker_name(intro->name) && keep_intro(s, w, intro);
}

static void on_linked(void *user, int peer) {
    store_network *s = user;
    worker *w = known_worker(s, peer);
    if (!w || w->state == WORKER_LOST)
        return;
    w->state = WORKER_LINKED;
    w->failed_ms = 0;
    count_local(s, w, 1);
    tt__messages_wake(s->base.messages);
}

/* Keep the recorded reason why a worker could not be reached. */
static void note_unreached(store_network *s, worker *w) {
    keep_reason(w, tt_last_status());
    w->state = WORKER_KNOWN;
    w->failed_ms = tt__now_ms();
    tt__messages_wake(s->base.messages);
}

static void on_failed(void *user, int peer) {
    store_network *s = user;
    worker *w = known_worker(s, peer);
    if (w && w->state == WORKER_DIALLED)
        note_unreached(s, w);
}

/* ---- reading cards */

static void read_worker_card(store_network *s, worker *w) {
    tt__rpc_card card;
    int id = w->id;
    pthread_mutex_unlock(&s->lock);
    tt_status status = tt__rpc_cards_find(&s->cards, id, NULL, &card);
    pthread_mutex_lock(&s->lock);
    if (w->state != WORKER_ASKED)
        return; /* it has connected to this one meanwhile */
    w->state = WORKER_KNOWN;
    if (status == TT_ERR_NOT_FOUND && w->name)
        status = tt__fail(TT_ERR_PEER, "worker %s (id %d) has left", w->name, id);
    else if (status == TT_ERR_NOT_FOUND)
        status = tt__fail(status, "there is no worker with id %d: none has joined with it, or it has left", id);
    else if (!status && !keep_card(s, &card, false))
        status = TT_ERR_MEMORY;
    if (status)
        note_unreached(s, w);
    tt__messages_wake(s->base.messages);
}

static void *read_cards(void *arg) {
    store_network *s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->stop) {
        worker *w = s->asked;
        if (!w) {
            pthread_cond_wait(&s->asked_some, &s->lock);
            continue;
        }
        s->asked = w->next_asked;
        if (!s->asked)
            s->asked_end = &s->asked;
        read_worker_card(s, w);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

static tt_status ask_for_card(store_network *s, worker *w) {
    if (!s->has_reader)
        TT__TRY(tt__thread_create(&s->reader, read_cards, s, "the thread that looks for workers in the store"));
    s->has_reader = true;
    w->state = WORKER_ASKED;
    w->next_asked = NULL;
    *s->asked_end = w;
    s->asked_end = &w->next_asked;
    pthread_cond_signal(&s->asked_some);
    return TT_OK;
}

/* ---- operations */

static void store_unlock(tt__rpc_network *network) { pthread_mutex_unlock(network->lock); }

static bool store_progress(tt__rpc_network *network) {
    store_network *s = store_of(network);
    bool any = tt__messages_progress(network->messages);
    take_census(s, network->messages->now_ms);
    return any;
}

static void store_sleep(tt__rpc_network *network, int64_t ms) {
    store_network *s = store_of(network);
    int64_t left = take_census(s, tt__now_ms());
    tt__messages_wait(network->messages, ms < left ? ms : left);
}

static void store_wake(tt__rpc_network *network) { tt__messages_wake(network->messages); }

/* Begin to reach a worker that has no link. */
static tt_status begin_to_reach(store_network *s, worker *w) {
    if (!w->addresses)
        return ask_for_card(s, w);
    TT__TRY(tt__dial(s->dialling, w->id, w->addresses));
    w->state = WORKER_DIALLED;
    return TT_OK;
}

static tt__rpc_reach store_reach(tt__rpc_network *network, int id) {
    store_network *s = store_of(network);
    if (id == network->self)
        return TT__RPC_REACHED;
    if (id < 0 || id >= TT__RPC_STORE_IDS) {
        tt__fail(TT_ERR_NOT_FOUND, "there is no worker with id %d", id);
        return TT__RPC_UNREACHABLE;
    }
    worker *w = make_worker(s, id);
    if (!w)
        return TT__RPC_UNREACHABLE;
    if (w->state == WORKER_LINKED)
        return check_linked(s, w) ? TT__RPC_UNREACHABLE : TT__RPC_REACHED;
    if (w->state == WORKER_ASKED || w->state == WORKER_DIALLED)
        return TT__RPC_CONNECTING;
    if (w->state == WORKER_LOST || (w->failed_ms && tt__now_ms() - w->failed_ms < FAILED_MS)) {
        fail_worker(w);
        return TT__RPC_UNREACHABLE;
    }
    return begin_to_reach(s, w) ? TT__RPC_UNREACHABLE : TT__RPC_CONNECTING;
}

static tt_status store_check(tt__rpc_network *network, int id) {
    store_network *s = store_of(network);
    worker *w = known_worker(s, id);
    if (!w || id == network->self)
        return TT_OK;
    if (w->state == WORKER_LOST)
        return fail_worker(w);
    return w->state == WORKER_LINKED ? check_linked(s, w) : TT_OK;
}

/* Find a worker by name. Unless the known one is linked or being dialled, ask the store: another worker may have the
 * name by now. */
static tt_status store_find(tt__rpc_network *network, const char *name, int *id) {
    store_network *s = store_of(network);
    worker *w = find_named(s, name);
    tt__rpc_card card;
    if (!strcmp(name, s->cards.own.intro.name)) {
        *id = network->self;
        return TT_OK;
    }
    if (w && (w->state == WORKER_DIALLED || (w->state == WORKER_LINKED && !check_linked(s, w)))) {
        *id = w->id;
        return TT_OK;
    }
    pthread_mutex_unlock(&s->lock);
    tt_status status =
        strlen(name) < TT__RPC_NAME_SIZE ? tt__rpc_cards_find(&s->cards, -1, name, &card) : TT_ERR_NOT_FOUND;
    pthread_mutex_lock(&s->lock);
    if (status || has_other_name(s, &card))
        return status ? status : TT_ERR_NOT_FOUND;
    *id = card.id;
    return keep_card(s, &card, true) ? TT_OK : TT_ERR_MEMORY;
}

static tt_status store_name_of(tt__rpc_network *network, int id, char name[TT__RPC_NAME_SIZE]) {
    store_network *s = store_of(network);
    const char *host, *known = peer_name(s, id, &host);
    tt__rpc_card card;
    if (known) {
        snprintf(name, TT__RPC_NAME_SIZE, "%s", known);
        return TT_OK;
    }
    if (id < 0 || id >= TT__RPC_STORE_IDS)
        return TT_ERR_NOT_FOUND;
    pthread_mutex_unlock(&s->lock);
    tt_status status = tt__rpc_cards_find(&s->cards, id, NULL, &card);
    pthread_mutex_lock(&s->lock);
    if (status)
        return status;
    snprintf(name, TT__RPC_NAME_SIZE, "%s", card.intro.name);
    return keep_card(s, &card, false) ? TT_OK : TT_ERR_MEMORY;
}

static int store_next(tt__rpc_network *network, int after) {
    const store_network *s = store_of(network);
    for (int id = after < 0 ? 0 : after + 1; id <= s->highest || id <= network->self; id++) {
        const worker *w = s->workers[id];
        if (id == network->self || (w && w->state != WORKER_LOST && (w->addresses || w->state == WORKER_LINKED)))
            return id;
    }
    return -1;
}

/* ---- leaving */

static void stop_reader(store_network *s) {
    if (!s->has_reader)
        return;
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_signal(&s->asked_some);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->reader, NULL);
}

static void stop_dialling(store_network *s, bool quietly) {
    if (!s->dialling)
        return;
    if (!quietly)
        pthread_mutex_lock(&s->lock);
    tt__dialling_stop(s->dialling, quietly);
    if (!quietly)
        pthread_mutex_unlock(&s->lock);
}

/* Leave in this order: remove the keys, so that no worker finds this one; stop connecting; close the links. */
static void store_close(tt__rpc_network *network, bool quietly) {
    store_network *s = store_of(network);
    if (!quietly)
        tt__rpc_cards_remove_own(&s->cards);
    if (!quietly)
        stop_reader(s);
    stop_dialling(s, quietly);
    tt__messages_close(network->messages, quietly);
    tt__dialling_free(s->dialling);
    for (int id = 0; s->workers && id <= s->highest; id++)
        if (s->workers[id])
            free_worker(s, s->workers[id]);
    free(s->workers);
    if (!quietly) {
        pthread_cond_destroy(&s->asked_some);
        pthread_mutex_destroy(&s->lock);
    }
    free(s);
}

static const tt__rpc_network_ops store_network_ops = {
    .unlock = store_unlock,
    .progress = store_progress,
    .sleep = store_sleep,
    .wake = store_wake,
    .reach = store_reach,
    .check = store_check,
    .find = store_find,
    .name_of = store_name_of,
    .next = store_next,
    .close = store_close,
};

/* ---- joining */

static tt_status begin_engine(store_network *s, int64_t heartbeat_ms) {
    const tt__messages_config config = {.rank = s->base.self,
                                        .size = TT__RPC_STORE_IDS,
                                        .heartbeat_ms = heartbeat_ms ? heartbeat_ms : HEARTBEAT_MS,
                                        .lock = &s->lock,
                                        .world = s,
                                        .peer_name = peer_name,
                                        .advance = advance_store};
    TT__TRY(tt__messages_new(&s->base.messages, &config));
    TT__TRY(tt__messages_listen(s->base.messages, false, s->cards.own.addresses));
    return tt__dialling_begin(&s->dialling, &(tt__dialling_config){.messages = s->base.messages,
                                                                   .intro = &s->cards.own.intro,
                                                                   .user = s,
                                                                   .may_link = may_link,
                                                                   .linked = on_linked,
                                                                   .failed = on_failed});
}

static tt_status join_workers(store_network *s, const tt_rpc_init_args *args) {
    int64_t deadline_ms = tt__deadline_ms(args->join_timeout_ms ? args->join_timeout_ms : TT_DEFAULT_TIMEOUT_MS);
    TT__TRY(tt__rpc_cards_take_id(&s->cards));
    s->base.self = s->cards.own.id;
    TT__TRY(begin_engine(s, args->heartbeat_ms));
    return tt__rpc_cards_join(&s->cards, &s->base, !args->other_functions, deadline_ms);
}

static tt_status check_store_args(const tt_rpc_init_args *args) {
    const char *prefix = args->prefix ? args->prefix : "rpc";
    TT__TRY(tt__rpc_check_worker_name(args->name));
    if (!*prefix || strlen(prefix) >= TT__RPC_PREFIX_SIZE)
        return tt__fail(TT_ERR_INVALID, "a prefix of keys has 1 to %d bytes, not %zu", TT__RPC_PREFIX_SIZE - 1,
                        strlen(prefix));
    if (args->has_id && (args->id < 0 || args->id >= TT__RPC_STORE_IDS))
        return tt__fail(TT_ERR_INVALID, "the id of a worker is 0 to %d, not %d", TT__RPC_STORE_IDS - 1, args->id);
    if (args->heartbeat_ms < 0 || args->join_timeout_ms < 0)
        return tt__fail(TT_ERR_INVALID, "a time is below 0: heartbeat_ms %lld, join_timeout_ms %lld",
                        (long long)args->heartbeat_ms, (long long)args->join_timeout_ms);
    return TT_OK;
}

tt_status tt__rpc_network_of_store(tt__rpc_network **out, const tt_rpc_init_args *args) {
    *out = NULL;
    TT__TRY(check_store_args(args));
    store_network *s = calloc(1, sizeof *s);
    worker **workers = calloc(TT__RPC_STORE_IDS, sizeof *workers);
    if (!s || !workers) {
        free(s);
        free(workers);
        return tt__fail(TT_ERR_MEMORY, "no memory to be a worker");
    }
    s->base = (tt__rpc_network){.ops = &store_network_ops,
                                .lock = &s->lock,
                                .workers = TT__RPC_STORE_IDS,
                                .comes_and_goes = true,
                                .cpus_each = tt__cores()};
    s->cores = s->base.cpus_each;
    s->workers = workers;
    s->asked_end = &s->asked;
    pthread_mutex_init(&s->lock, NULL);
    tt__cond_init(&s->asked_some);
    tt__rpc_cards_begin(&s->cards, args);
    tt__saved_error why;
    tt_status status = join_workers(s, args);
    if (!status) {
        *out = &s->base;
        return TT_OK;
    }
    tt__error_save(&why);
    store_close(&s->base, false);
    tt__error_restore(&why);
    return status;
}
