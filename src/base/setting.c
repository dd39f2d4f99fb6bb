#include "base/setting.h"

#include "base/error.h"
#include "base/text/parse.h"

#include <stdatomic.h>
#include <stdlib.h>

static const double longest_s = 86400;

static const struct {
    const char *variable;
    double otherwise;
} times[TT__SETTING_TIMES] = {
    [TT__WAIT_NOTICE] = {"TT_WAIT_NOTICE", 5},
    [TT__CRASH_STACKS] = {"TT_CRASH_STACKS", 1},
};

static const struct {
    const char *variable;
    bool otherwise;
} switches[TT__SETTING_SWITCHES] = {
    [TT__DEBUG] = {"TT_DEBUG", false},
    [TT__BACKEND_CHECK] = {"TT_BACKEND_CHECK", true},
};

static tt_status read_time(tt__setting_time setting, double *s) {
    const char *variable = times[setting].variable, *text = getenv(variable);
    double value = times[setting].otherwise;
    *s = value;
    if (!text || !*text)
        return TT_OK;
    if (tt__parse_f64(variable, text, &value) || !(value >= 0 && value <= longest_s))
        return tt__fail(TT_ERR_INVALID, "%s: expected seconds from 0 to %.0f, got \"%.100s\"", variable, longest_s,
                        text);
    *s = value;
    return TT_OK;
}

static tt_status read_switch(tt__setting_switch setting, bool *on) {
    const char *variable = switches[setting].variable, *text = getenv(variable);
    *on = switches[setting].otherwise;
    if (!text || !*text)
        return TT_OK;
    if ((*text != '0' && *text != '1') || text[1])
        return tt__fail(TT_ERR_INVALID, "%s: expected 1 or 0, got \"%.100s\"", variable, text);
    *on = *text == '1';
    return TT_OK;
}

/* Log the recorded error, once for each setting. */
static void warn_of_setting(_Atomic bool *warned) {
    if (!atomic_exchange(warned, true))
        tt__log(TT_LOG_WARNING, "%s; the default holds", tt_last_error());
}

double tt__setting_seconds(tt__setting_time setting) {
    static _Atomic bool warned[TT__SETTING_TIMES];
    tt__saved_error before;
    double s;
    tt__error_save(&before);
    if (read_time(setting, &s))
        warn_of_setting(&warned[setting]);
    tt__error_restore(&before);
    return s;
}

bool tt__setting_is_on(tt__setting_switch setting) {
    static _Atomic bool warned[TT__SETTING_SWITCHES];
    tt__saved_error before;
    bool on;
    tt__error_save(&before);
    if (read_switch(setting, &on))
        warn_of_setting(&warned[setting]);
    tt__error_restore(&before);
    return on;
}

tt_status tt__settings_check(void) {
    double s;
    bool on;
    for (int i = 0; i < TT__SETTING_TIMES; i++)
        TT__TRY(read_time((tt__setting_time)i, &s));
    for (int i = 0; i < TT__SETTING_SWITCHES; i++)
        TT__TRY(read_switch((tt__setting_switch)i, &on));
    return TT_OK;
}

int64_t tt__wait_notice_ns(void) {
    static _Atomic int64_t known = -1;
    int64_t ns = atomic_load_explicit(&known, memory_order_relaxed);
    if (ns >= 0)
        return ns;
    ns = (int64_t)(tt__setting_seconds(TT__WAIT_NOTICE) * 1e9);
    atomic_store_explicit(&known, ns, memory_order_relaxed);
    return ns;
}
