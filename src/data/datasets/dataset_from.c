/* A data set by callback: the caller's function as a class. */
#include "data/datasets/dataset.h"

#include "base/args.h"
#include "base/error.h"

#include <stdlib.h>

typedef struct callback {
    int64_t size;
    tt_dataset_get_fn get;
    void *user;
} callback;

static int64_t dataset_callback_size(void *user) { return ((const callback *)user)->size; }

static tt_status dataset_callback_get(void *user, int64_t index, void *x, void *y) {
    const callback *c = user;
    return c->get(c->user, index, x, y);
}

tt_dataset *tt_dataset_from_with(const tt_dataset_from_args *args, size_t size) {
    static const char who[] = "tt_dataset_from";
    tt_dataset_from_args a;
    TT__ARGS_COPY(a, args, size);
    const tt_dataset_class cls = {.name = a.name,
                                  .size = dataset_callback_size,
                                  .get = dataset_callback_get,
                                  .destroy = free,
                                  .serial = a.serial};
    if (!a.get)
        return tt__fail_null(TT_ERR_INVALID, "%s: %s: get is NULL", who, a.name ? a.name : "a data set");
    callback *c = malloc(sizeof *c);
    if (!c)
        return tt__fail_null(TT_ERR_MEMORY, "%s: out of memory", who);
    *c = (callback){a.size, a.get, a.user};
    return tt__dataset_new(who, &cls, c, a.x, a.y);
}
