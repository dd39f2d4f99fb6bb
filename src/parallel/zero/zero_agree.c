/* What must be alike on the ranks of a sharded optimizer: its stage, class, groups, their options and parameters. */
#include "base/text/format.h"
#include "parallel/zero/zero.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "reducer/text_agreement.h"

static const char who[] = "tt_zero_optimizer";

typedef struct text_list {
    char **texts;
    size_t count;
    bool failed;
} text_list;

TT_PRINTF(2, 3) static void add_text(text_list *list, const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (!list->failed)
        list->failed = tt__vformat_new(&list->texts[list->count], format, args) < 0;
    va_end(args);
    list->count += !list->failed;
}

static void describe_group(const tt__zero *z, size_t g, text_list *list) {
    const tt__optimizer_class *cls = z->optimizer->cls;
    const tt__optim_group *group = &z->optimizer->groups[g];
    for (int i = 0; i < cls->options; i++)
        add_text(list, "\"%s\" %.17g in group %zu", cls->option_names[i], group->option[i], g);
    for (size_t i = 0; i < group->count; i++) {
        const tt__optim_param *p = &group->params[i];
        add_text(list, "parameter %lld \"%s\" in group %zu", (long long)group->first + (long long)i,
                 tt__zero_param_of(z, p->low ? p->low : p->tensor)->name, g);
    }
}

static size_t text_room(const tt__zero *z) {
    size_t room = 2;
    for (size_t g = 0; z->optimizer && g < z->optimizer->group_count; g++)
        room += (size_t)z->optimizer->cls->options + z->optimizer->groups[g].count;
    return room;
}

static void describe_optimizer(const tt__zero *z, const char *failure, text_list *list) {
    add_text(list, "stage %d", z->stage);
    if (!z->optimizer) {
        add_text(list, "no optimizer (%s)", failure);
        return;
    }
    add_text(list, "%s with %zu groups", z->optimizer->cls->name, z->optimizer->group_count);
    for (size_t g = 0; g < z->optimizer->group_count; g++)
        describe_group(z, g, list);
}

tt_status tt__zero_agree_on_ready(tt_group *group, tt_status own) {
    static const char failed[] = "failed: ";
    char text[sizeof failed + TT__ERROR_TEXT_SIZE] = "ready";
    tt__saved_error saved;
    tt__error_save(&saved);
    if (own)
        snprintf(text, sizeof text, "%s%s", failed, saved.text);
    TT__TRY(tt__agree_on(group, who, (const char *const[]){text}, 1));
    if (own)
        tt__error_restore(&saved);
    return own;
}

tt_status tt__zero_agree(const tt__zero *z) {
    static const char no_memory[] = "no memory to compare with the other ranks";
    tt__saved_error saved;
    tt__error_save(&saved);
    text_list list = {.texts = calloc(text_room(z), sizeof(char *))};
    list.failed = !list.texts;
    describe_optimizer(z, saved.text, &list);
    tt_status status = list.failed ? tt__agree_on(z->group, who, (const char *const[]){no_memory}, 1)
                                   : tt__agree_on(z->group, who, (const char *const *)list.texts, list.count);
    if (!status && list.failed)
        status = tt__fail(TT_ERR_MEMORY, "%s: %s", who, no_memory);
    for (size_t i = 0; i < list.count; i++)
        free(list.texts[i]);
    free(list.texts);
    if (!status && !z->optimizer)
        tt__error_restore(&saved);
    return status;
}
