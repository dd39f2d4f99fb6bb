#include "parallel/carried.h"

#include "base/error.h"
#include "base/log.h"
#include "comm/group.h"
#include "reducer/text_agreement.h"

#include <stdlib.h>

/* ---- making ---- */

bool tt__pin_for_copies(const tt_device *device, void *host, size_t bytes) {
    tt__saved_error saved;
    if (!device->queue || !bytes)
        return false;
    tt__error_save(&saved);
    bool pinned = device->queue->pin(device, host, bytes) == TT_OK;
    if (!pinned)
        tt__log(TT_LOG_INFO, "copies to and from %s are slower: %s", device->name, tt_last_error());
    tt__error_restore(&saved);
    return pinned;
}

static tt_status alloc_far(tt__carried *c, const char *who) {
    const tt_device *device = c->device;
    void *zeros = calloc(1, c->bytes + 1);
    if (!zeros)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for %zu bytes", who, c->bytes);
    c->data = device->alloc(device, c->bytes ? c->bytes : 1);
    tt_status status = c->data ? device->from_host(device, c->data, zeros, c->bytes) : tt_last_status();
    free(zeros);
    return status ? tt__fail_prefix("%s", who) : TT_OK;
}

tt_status tt__carried_make(tt__carried *c, tt_group *group, const tt_device *device, size_t bytes, const char *who) {
    const bool host = tt__device_is_host(device), far = !host && device->queue && tt__group_takes(group, device->type);
    if (!far && !tt__group_takes(group, TT_DEVICE_CPU))
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "%s: the back end %s takes no memory of %s: tt_module_to_device() to the group's device "
                        "first, or use the native engine",
                        who, tt_get_backend(group), device->name);
    *c = (tt__carried){.device = device, .bytes = bytes};
    if (!far)
        TT__TRY(tt_group_alloc_with(TT_ARGS(tt_group_alloc_args, &c->near, group, bytes, .file = who)));
    if (host) {
        c->data = c->near;
        return TT_OK;
    }
    tt_status status = alloc_far(c, who);
    if (status)
        tt__abort_with_error(group);
    if (far)
        c->near = c->data;
    else if (!status)
        c->pinned = tt__pin_for_copies(device, c->near, bytes);
    return status;
}

bool tt__carried_free(tt__carried *c, tt_group *group, const char *who) {
    if (!c->device)
        return true;
    const bool host = tt__device_is_host(c->device), staged = c->near && !tt__carried_is_far(c);
    tt_ignore(tt__carried_settle(c));
    if (!host && c->data) { /* after this no copy uses the memory: copies have ended, or never will */
        tt_ignore(tt_device_synchronize(c->device));
        if (c->pinned)
            c->device->queue->unpin(c->device, c->near);
        c->device->free(c->device, c->data);
    }
    bool ok = !staged || !tt_group_free_with(TT_ARGS(tt_group_free_args, group, c->near, .file = who));
    *c = (tt__carried){.device = NULL};
    return ok;
}

/* ---- copies ---- */

static bool has_twin(const tt__carried *c) { return c->near != c->data; }

tt_status tt__carried_settle(tt__carried *c) {
    bool done;
    void *mark = c->mark;
    c->mark = NULL;
    return mark ? c->device->queue->sent(c->device, mark, true, &done) : TT_OK;
}

tt_status tt__carried_send(tt__carried *c, size_t at, size_t bytes) {
    const tt_device *device = c->device;
    if (!has_twin(c) || !bytes)
        return TT_OK;
    TT__TRY(tt__carried_settle(c));
    return device->queue ? device->queue->send(device, tt__carried_near(c, at), tt__carried_at(c, at), bytes, &c->mark)
                         : device->to_host(device, tt__carried_near(c, at), tt__carried_at(c, at), bytes);
}

tt_status tt__carried_receive(tt__carried *c, size_t at, size_t bytes) {
    const tt_device *device = c->device;
    if (!has_twin(c) || !bytes)
        return TT_OK;
    TT__TRY(tt__carried_settle(c));
    if (!device->queue)
        return device->from_host(device, tt__carried_at(c, at), tt__carried_near(c, at), bytes);
    TT__TRY(device->queue->receive(device, tt__carried_at(c, at), tt__carried_near(c, at), bytes));
    return device->queue->mark(device, &c->mark);
}
