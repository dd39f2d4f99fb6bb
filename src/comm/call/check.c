/* Checks of arguments that the public calls share. */
#include "comm/call/call.h"

#include "comm/group.h"
#include "comm/in_callback.h"
#include "comm/op.h"
#include "comm/reduce/reduce_tree.h"

#include <stdio.h>
#include <string.h>

tt_status tt__check_group(tt_group *group, tt_work **work) {
    if (work)
        *work = NULL;
    return tt__group_usable(group);
}

static tt_status check_types(const tt_group *group, const tt_call *call, const char *name) {
    if (!tt_dtype_size(call->dtype))
        return tt__fail(TT_ERR_INVALID, "%s: expected an element type, got %d", name, (int)call->dtype);
    if ((unsigned)call->reduce_op >= TT__REDUCE_OPS)
        return tt__fail(TT_ERR_INVALID, "%s: expected a reduce op, got %d", name, (int)call->reduce_op);
    if (!tt__op_is(call->op, TT__OP_P2P) && (call->root < 0 || call->root >= group->size))
        return tt__fail(TT_ERR_INVALID, "%s: expected a root from 0 to %d, got %d", name, group->size - 1, call->root);
    return TT_OK;
}

static tt_status check_count(const tt_group *group, const tt_call *call, const char *name, const void *buf) {
    if (call->count < 0)
        return tt__fail(TT_ERR_INVALID, "%s: expected a count of 0 or more elements, got %lld", name,
                        (long long)call->count);
    if ((size_t)call->count > PTRDIFF_MAX / tt_dtype_size(call->dtype) / (size_t)group->size)
        return tt__fail(TT_ERR_INVALID, "%s: %lld elements of %s are more than memory can hold", name,
                        (long long)call->count, tt_dtype_name(call->dtype));
    if (!buf && call->count)
        return tt__fail(TT_ERR_INVALID, "%s: the buffer of %lld elements is NULL", name, (long long)call->count);
    return TT_OK;
}

tt_status tt__check_call(tt_group *group, const tt_call *call, const void *buf) {
    const char *name = tt_op_name(call->op);
    TT__TRY(tt__group_usable(group));
    TT__TRY(check_types(group, call, name));
    TT__TRY(check_count(group, call, name, buf));
    const char *refusal = call->reduce_op == TT_SUM ? NULL : tt__reduce_refusal(call->dtype, call->reduce_op);
    return refusal ? tt__fail(TT_ERR_UNSUPPORTED, "%s: %s", name, refusal) : TT_OK;
}

static tt_status check_offsets(const tt_group *group, const tt_call *call, const tt__lists_of *lists) {
    const char *name = tt_op_name(call->op);
    int64_t most = PTRDIFF_MAX / (int64_t)tt_dtype_size(call->dtype);
    for (int i = 0; i < group->size; i++) {
        int64_t offset = lists->offsets[i];
        if (offset < 0)
            return tt__fail(TT_ERR_INVALID, "%s: expected %soffsets of 0 or more elements, got %lld of rank %d", name,
                            lists->of, (long long)offset, i);
        if (lists->counts[i] && offset > most - lists->counts[i])
            return tt__fail(TT_ERR_INVALID, "%s: offset %lld, of rank %d, is beyond what memory can hold", name,
                            (long long)offset, i);
    }
    return TT_OK;
}

static tt_status sum_counts(const tt_group *group, const tt_call *call, const tt__lists_of *lists, int64_t *sum) {
    *sum = 0;
    for (int i = 0; i < group->size; i++) {
        int64_t count = lists->counts[i];
        if (count < 0)
            return tt__fail(TT_ERR_INVALID, "%s: expected %scounts of 0 or more elements, got %lld of rank %d",
                            tt_op_name(call->op), lists->of, (long long)count, i);
        if (count > PTRDIFF_MAX - *sum)
            return tt__fail(TT_ERR_INVALID, "%s: the counts' sum is more than memory can hold", tt_op_name(call->op));
        *sum += count;
    }
    return TT_OK;
}

tt_status tt__check_lists(tt_group *group, const tt_call *call, const void *buf, const tt__lists_of *lists) {
    tt_call even = *call;
    int64_t sum;
    TT__TRY(tt__group_usable(group));
    if (!lists->counts)
        return tt__fail(TT_ERR_INVALID, "%s: a list of counts is NULL", tt_op_name(call->op));
    TT__TRY(sum_counts(group, call, lists, &sum));
    even.count = sum / group->size;
    TT__TRY(tt__check_call(group, &even, buf));
    if (!buf && sum)
        return tt__fail(TT_ERR_INVALID, "%s: the buffer of %lld elements is NULL", tt_op_name(call->op),
                        (long long)sum);
    return lists->offsets ? check_offsets(group, call, lists) : TT_OK;
}

/* ---- devices */

/* "cuda:1". Returns `text`. */
static const char *device_text(const tt_call *call, char *text, size_t size) {
    snprintf(text, size, call->device == TT_DEVICE_CPU ? "%s" : "%s:%d", tt_device_type_name(call->device),
             call->device_index);
    return text;
}

/* "cpu, cuda" */
static const char *devices_text(unsigned devices, char *text, size_t size) {
    size_t n = 0;
    for (int type = 0; type < 32 && n < size; type++)
        if (devices & TT_DEVICE_BIT(type))
            n += (size_t)snprintf(text + n, size - n, "%s%s", n ? ", " : "", tt_device_type_name((tt_device_type)type));
    return text;
}

static tt_status check_place(const tt_call *call) {
    const char *name = tt_op_name(call->op);
    if (!strcmp(tt_device_type_name(call->device), "?"))
        return tt__fail(TT_ERR_INVALID, "%s: expected a .device as tt_device_type has them, got %d", name,
                        (int)call->device);
    if (call->device == TT_DEVICE_CPU && call->stream)
        return tt__fail(TT_ERR_INVALID, "%s: .stream is a device's queue, but .device says cpu", name);
    if (call->device_index < 0)
        return tt__fail(TT_ERR_INVALID, "%s: expected a .device_index of 0 or more, got %d", name, call->device_index);
    return TT_OK;
}

/* Check that .device, .device_index and .stream fit each other, and that the group's engine takes such memory. */
static tt_status check_call_device(const tt_group *group, const tt_call *call) {
    unsigned devices = group->engine->devices ? group->engine->devices : TT_DEVICE_BIT(TT_DEVICE_CPU);
    bool on_host = call->op == TT_OP_BARRIER || call->op == TT_OP_MONITORED_BARRIER;
    char place[48], taken[64];
    TT__TRY(check_place(call));
    if (call->op == TT_OP_MONITORED_BARRIER && call->device != TT_DEVICE_CPU)
        return tt__fail(TT_ERR_UNSUPPORTED, "monitored_barrier: it waits on the host, and takes no .device");
    if (devices & TT_DEVICE_BIT(call->device) || (on_host && call->device == TT_DEVICE_CPU))
        return TT_OK;
    return tt__fail(TT_ERR_UNSUPPORTED,
                    "%s: the back end %s takes memory of %s, and the call says %s. Copy the elements there, or use a "
                    "back end that takes them where they are",
                    tt_op_name(call->op), group->engine->name, devices_text(devices, taken, sizeof taken),
                    device_text(call, place, sizeof place));
}

tt_status tt__submit_checked(tt_group *group, tt_call *call, tt_work **work) {
    if (__builtin_expect(call->device || call->stream || group->engine->devices, 0))
        TT__TRY(check_call_device(group, call));
    if (!work)
        TT__TRY(tt__may_wait(tt_op_name(call->op)));
    if (call->device == TT_DEVICE_CPU)
        call->device_index = 0;
    call->timeout_ms = tt__timeout_of(group, call->timeout_ms);
    return group->engine->submit(group, call, work);
}
