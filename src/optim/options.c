/* The options of groups, by name. */
#include "base/error.h"
#include "optim/optimizer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

tt_status tt__optim_check_number(const char *who, const char *name, double value, double least) {
    if (isfinite(value) && value >= least)
        return TT_OK;
    return tt__fail(TT_ERR_INVALID, "%s: expected a finite %s%s, got %g", who, name, least == 0 ? " of at least 0" : "",
                    value);
}

int tt__optim_option_index(const tt__optimizer_class *cls, const char *name) {
    for (int i = 0; name && i < cls->options; i++)
        if (!strcmp(cls->option_names[i], name))
            return i;
    return -1;
}

static int option_find(const char *who, const tt__optimizer_class *cls, const char *name) {
    int at = tt__optim_option_index(cls, name);
    if (at >= 0)
        return at;
    char known[400] = "";
    for (int i = 0; i < cls->options; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", cls->option_names[i]);
    }
    tt__fail(TT_ERR_NOT_FOUND, "%s: %s has no option \"%s\"; it has %s", who, cls->name, name ? name : "NULL", known);
    return -1;
}

tt_status tt__optim_option_put(const char *who, const tt__optimizer_class *cls, double *option, const char *name,
                               double value) {
    int at = option_find(who, cls, name);
    if (at < 0)
        return TT_ERR_NOT_FOUND;
    option[at] = value;
    return TT_OK;
}

int64_t tt_optimizer_group_count(const tt_optimizer *optimizer) {
    return optimizer ? (int64_t)optimizer->group_count : 0;
}

const char *tt_optimizer_option_name(const tt_optimizer *optimizer, int64_t i) {
    return optimizer && i >= 0 && i < optimizer->cls->options ? optimizer->cls->option_names[i] : NULL;
}

static tt_status check_group(const char *who, const tt_optimizer *o, int64_t group) {
    if (!o)
        return tt__fail(TT_ERR_INVALID, "%s: the optimizer is NULL", who);
    if (group < 0 || group >= (int64_t)o->group_count)
        return tt__fail(TT_ERR_NOT_FOUND, "%s: expected a group below %zu, got %lld", who, o->group_count,
                        (long long)group);
    return TT_OK;
}

tt_status tt_optimizer_get_option(const tt_optimizer *optimizer, int64_t group, const char *name, double *value) {
    static const char who[] = "tt_optimizer_get_option";
    TT__TRY(check_group(who, optimizer, group));
    int at = option_find(who, optimizer->cls, name);
    if (at < 0)
        return TT_ERR_NOT_FOUND;
    if (!value)
        return tt__fail(TT_ERR_INVALID, "%s: `value` is NULL", who);
    *value = optimizer->groups[group].option[at];
    return TT_OK;
}

/* Check that the options of `group` are possible with the new value. */
static tt_status try_option(const char *who, const tt_optimizer *o, const tt__optim_group *group, const char *name,
                            double value) {
    double option[TT__OPTIM_OPTIONS];
    memcpy(option, group->option, sizeof option);
    TT__TRY(tt__optim_option_put(who, o->cls, option, name, value));
    return o->cls->check(who, option);
}

tt_status tt_optimizer_set_option(tt_optimizer *optimizer, int64_t group, const char *name, double value) {
    static const char who[] = "tt_optimizer_set_option";
    size_t from = (size_t)group, to = from + 1;
    if (optimizer && group == TT_ALL_GROUPS) {
        from = 0;
        to = optimizer->group_count;
    } else {
        TT__TRY(check_group(who, optimizer, group));
    }
    for (size_t i = from; i < to; i++)
        TT__TRY(try_option(who, optimizer, &optimizer->groups[i], name, value));
    for (size_t i = from; i < to; i++)
        TT__TRY(tt__optim_option_put(who, optimizer->cls, optimizer->groups[i].option, name, value));
    return TT_OK;
}
