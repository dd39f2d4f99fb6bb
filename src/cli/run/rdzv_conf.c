#include "cli/run/rdzv_conf.h"

#include "base/error.h"
#include "base/text/parse.h"
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

static const tt__rdzv_conf defaults = {
    .join_ms = 600 * 1000, /* as torchrun's static rendezvous */
    .last_call_ms = 1000,
    .heartbeat_ms = 5000,
    .rejoin_ms = 60 * 1000,
    .is_host = -1,
};

static tt_status read_conf_seconds(int64_t *ms, const char *name, const char *value, double least) {
    char label[64];
    double seconds;
    snprintf(label, sizeof label, "--rdzv-conf: %s", name);
    TT__TRY(tt__parse_f64(label, value, &seconds));
    if (!(seconds >= least && seconds <= 1e6))
        return tt__fail(TT_ERR_INVALID, "%s: expected seconds from %g to 1000000, got \"%.40s\"", label, least, value);
    *ms = (int64_t)(seconds * 1000);
    return TT_OK;
}

static tt_status read_is_host(int *is_host, const char *value) {
    bool yes = tt__cli_choice("1 true True t yes y", value) >= 0,
         no = tt__cli_choice("0 false False f no n", value) >= 0;
    if (!yes && !no)
        return tt__fail(TT_ERR_INVALID, "--rdzv-conf: is_host: expected true or false, got \"%.40s\"", value);
    *is_host = yes;
    return TT_OK;
}

static tt_status read_conf_setting(tt__rdzv_conf *conf, const char *name, const char *value) {
    const struct {
        const char *name;
        int64_t *ms;
        double least;
    } periods[] = {{"timeout", &conf->join_ms, 1},
                   {"join_timeout", &conf->join_ms, 1},
                   {"last_call_timeout", &conf->last_call_ms, 0},
                   {"heartbeat", &conf->heartbeat_ms, 0.5},
                   {"rejoin", &conf->rejoin_ms, 0}};
    const struct {
        const char *name, **value;
    } texts[] = {{"protocol", &conf->protocol},
                 {"cacert", &conf->ca_file},
                 {"cert", &conf->cert_file},
                 {"key", &conf->key_file}};
    for (size_t i = 0; i < sizeof periods / sizeof *periods; i++)
        if (!strcmp(name, periods[i].name))
            return read_conf_seconds(periods[i].ms, name, value, periods[i].least);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!strcmp(name, texts[i].name))
            *texts[i].value = value;
    return strcmp(name, "is_host") != 0 ? TT_OK : read_is_host(&conf->is_host, value);
}

/* PyTorch's own tests put quotes around the whole value, which no shell has taken off. */
static size_t skip_quotes(const char **text) {
    size_t n = strlen(*text);
    if (n < 2 || ((*text)[0] != '\'' && (*text)[0] != '"') || (*text)[n - 1] != (*text)[0])
        return n;
    ++*text;
    return n - 2;
}

tt_status tt__rdzv_conf_read(tt__rdzv_conf *conf, const char *text) {
    *conf = defaults;
    if (!text)
        return TT_OK;
    size_t n = skip_quotes(&text);
    if (n >= sizeof conf->text)
        return tt__fail(TT_ERR_INVALID, "--rdzv-conf: expected at most %zu bytes, got %zu", sizeof conf->text - 1, n);
    memcpy(conf->text, text, n);
    for (char *rest = conf->text, *part; (part = strsep(&rest, ","));) {
        char *equals = strchr(part, '=');
        if (!*part)
            continue;
        if (!equals || equals == part)
            return tt__fail(TT_ERR_INVALID, "--rdzv-conf: expected NAME=VALUE,..., got \"%.*s\"",
                            n < 200 ? (int)n : 200, text);
        *equals = '\0';
        TT__TRY(read_conf_setting(conf, part, equals + 1));
    }
    return TT_OK;
}
