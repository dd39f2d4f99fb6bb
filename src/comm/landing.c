#include "comm/landing.h"

#include "base/error.h"
#include "comm/callback.h"
#include "comm/work.h"

#include <stdlib.h>
#include <string.h>

struct tt__landing {
    _Atomic int refs;     /* of the work's owner, of the callback, and of those that wait */
    pthread_mutex_t lock; /* of what follows */
    bool happened;
    tt_status status;
    char *text; /* of its error; or NULL */
    tt_status (*end)(void *user, tt_status work);
    void *user;
    tt__callback *callback; /* until the work has it */
};

static void landing_on_done(tt_status status, int source, void *user) {
    (void)source;
    tt_ignore(tt__landing_happen(user, status));
    tt__landing_drop(user);
}

tt__landing *tt__landing_new(tt_status (*end)(void *user, tt_status work), void *user) {
    tt__landing *l = calloc(1, sizeof *l);
    tt__callback *callback = calloc(1, sizeof *callback);
    if (!l || !callback) {
        free(l);
        free(callback);
        return tt__fail_null(TT_ERR_MEMORY, "no memory for an asynchronous call");
    }
    *callback = (tt__callback){.fn = landing_on_done, .user = l};
    *l = (tt__landing){.refs = 2, .end = end, .user = user, .callback = callback};
    pthread_mutex_init(&l->lock, NULL);
    return l;
}

void tt__landing_drop(tt__landing *l) {
    if (!l || atomic_fetch_sub(&l->refs, 1) > 1)
        return;
    pthread_mutex_destroy(&l->lock);
    free(l->callback);
    free(l->text);
    free(l);
}

void tt__landing_set(tt__landing *l, tt_work *work, tt_status status) {
    if (!work) {
        tt_ignore(tt__landing_happen(l, status));
        atomic_store(&l->refs, 1); /* nobody else has it */
        tt__landing_drop(l);
        return;
    }
    tt__callback *callback = l->callback;
    l->callback = NULL;
    work->landing = l;
    work->group->engine->add_callback(work, callback);
}

tt__landing *tt__landing_hold(const tt_work *work) {
    tt__landing *l = work->landing;
    if (l)
        atomic_fetch_add(&l->refs, 1);
    return l;
}

tt_status tt__landing_happen(tt__landing *l, tt_status status) {
    pthread_mutex_lock(&l->lock);
    if (!l->happened) {
        l->happened = true;
        tt_status ended = l->end(l->user, status);
        if (!status && ended) {
            l->status = ended;
            l->text = strdup(tt_last_error());
        }
    }
    tt_status own = l->status;
    pthread_mutex_unlock(&l->lock);
    if (status || !own)
        return status;
    return tt__fail(own, "%s", l->text ? l->text : tt_status_text(own));
}
