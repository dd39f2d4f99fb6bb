#include "cli/run/run_torch.h"

#include "base/error.h"
#include "base/parse.h"
#include "net/net.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* torchrun's defaults, but for read_timeout, its 60 s: who ends a launcher waits for as long as a call takes. */
enum { LAST_CALL_S = 30, CLOSE_S = 30, KEEP_ALIVE_S = 5, KEEP_ALIVE_MAX = 3, READ_S = 20, EXIT_S = 300 };
enum { MAX_SECONDS = 1000000, VALUE_SIZE = 24 };

/* The value of a name in --rdzv-conf; false: it is not there. */
static bool conf_value(const char *conf, const char *name, char value[VALUE_SIZE]) {
    size_t length = strlen(name);
    for (const char *part = conf; part && *part; part += strcspn(part, ",") + (part[strcspn(part, ",")] == ',')) {
        size_t n = strcspn(part, ",");
        if (n > length && !strncmp(part, name, length) && part[length] == '=') {
            snprintf(value, VALUE_SIZE, "%.*s", (int)(n - length - 1), part + length + 1);
            return true;
        }
    }
    return false;
}

static bool torch_is_asked(const tt__run_flags *flags) {
    char value[VALUE_SIZE];
    if (flags->rdzv_backend && !strcmp(flags->rdzv_backend, "etcd")) /* its protocol is http or https */
        return false;
    return conf_value(flags->rdzv_conf, "protocol", value) && strcmp(value, "tutti") != 0;
}

static tt_status conf_number(const char *conf, const char *name, int64_t otherwise, int64_t *number) {
    char value[VALUE_SIZE], what[48];
    *number = otherwise;
    if (!conf_value(conf, name, value))
        return TT_OK;
    snprintf(what, sizeof what, "--rdzv-conf: %s", name);
    return tt__parse_i64(what, value, 1, MAX_SECONDS, number);
}

static tt_status conf_ms(const char *conf, const char *name, int64_t otherwise, int64_t *ms) {
    TT__TRY(conf_number(conf, name, otherwise, ms));
    *ms *= 1000;
    return TT_OK;
}

static tt_status read_torch_times(tt__torch_job *torch, const char *conf) {
    int64_t missed;
    tt__torch_config *config = &torch->config;
    TT__TRY(conf_ms(conf, "last_call_timeout", LAST_CALL_S, &config->settings.last_call_ms));
    TT__TRY(conf_ms(conf, "close_timeout", CLOSE_S, &config->close_ms));
    TT__TRY(conf_ms(conf, "keep_alive_interval", KEEP_ALIVE_S, &config->settings.keep_alive_ms));
    TT__TRY(conf_number(conf, "keep_alive_max_attempt", KEEP_ALIVE_MAX, &missed));
    TT__TRY(conf_ms(conf, "read_timeout", READ_S, &config->read_ms));
    config->settings.keep_alive_max = (int)missed;
    config->exit_ms = EXIT_S * 1000;
    return TT_OK;
}

/* torch, or torch1: what the first node writes, those of PyTorch 1.x can read no other times. */
static tt_status read_protocol(tt__torch_job *torch, const char *conf) {
    char value[VALUE_SIZE] = "";
    conf_value(conf, "protocol", value);
    torch->config.times = !strcmp(value, "torch1") ? TT__TORCH_NAIVE : TT__TORCH_AWARE;
    if (!strcmp(value, "torch") || !strcmp(value, "torch1"))
        return TT_OK;
    return tt__fail(TT_ERR_INVALID, "--rdzv-conf: protocol: expected tutti, torch or torch1, got \"%s\"", value);
}

static tt_status read_torch_is_host(tt__torch_job *torch, const char *conf) {
    static const char *const words[] = {"1", "true", "t", "yes", "y", "0", "false", "f", "no", "n"};
    char value[VALUE_SIZE];
    if (!conf_value(conf, "is_host", value))
        return TT_OK;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (tt__equal_ignoring_case(value, words[i])) {
            torch->host = i < 5 ? TT__TORCH_HOST_YES : TT__TORCH_HOST_NO;
            return TT_OK;
        }
    return tt__fail(TT_ERR_INVALID, "--rdzv-conf: is_host: expected true or false, got \"%s\"", value);
}

/* "2" or "2:4". */
static tt_status read_node_range(tt__job *job, const char *nnodes) {
    char least[24];
    int64_t min, max;
    const char *colon = nnodes ? strchr(nnodes, ':') : NULL;
    snprintf(least, sizeof least, "%.*s", colon ? (int)(colon - nnodes) : 20, nnodes ? nnodes : "1");
    TT__TRY(tt__parse_i64("--nnodes", least, 1, TT__TORCH_MAX_NODES, &min));
    max = min;
    if (colon)
        TT__TRY(tt__parse_i64("--nnodes: MAX", colon + 1, min, TT__TORCH_MAX_NODES, &max));
    if (max < 2)
        return tt__fail(TT_ERR_INVALID, "--rdzv-conf=protocol=torch: expected --nnodes=2 or more, or MIN:MAX, got one "
                                        "node, which needs no others");
    job->torch->config.settings.min_nodes = (int)min;
    job->torch->config.settings.max_nodes = (int)max;
    job->nodes = (int)max;
    job->node = 0;
    return TT_OK;
}

/* This node's name for the others: what --local-addr says, or as the name service has it. */
static tt_status find_own_address(tt__torch_job *torch, const char *given) {
    static char own[NI_MAXHOST];
    struct addrinfo *list = NULL;
    if (given && *given) {
        torch->config.address = given;
        return TT_OK;
    }
    if (gethostname(own, sizeof own - 1) || !*own)
        return tt__fail(TT_ERR_SYSTEM, "this host has no name: expected --local-addr=ADDRESS, under which other nodes "
                                       "find it");
    if (!tt__net_resolve(own, NULL, AI_CANONNAME, &list) && list && list->ai_canonname)
        snprintf(own, sizeof own, "%s", list->ai_canonname);
    if (list)
        freeaddrinfo(list);
    torch->config.address = own;
    return TT_OK;
}

static bool is_on(const char *name) {
    const char *value = secure_getenv(name);
    return value && !strcmp(value, "1");
}

tt_status tt__run_torch_read(tt__job *job, const tt__run_flags *flags) {
    const char *conf = flags->rdzv_conf;
    if (!torch_is_asked(flags))
        return TT_OK;
    job->torch = tt__torch_job_new();
    if (!job->torch)
        return TT_ERR_MEMORY;
    TT__TRY(read_protocol(job->torch, conf));
    if (!flags->rdzv_backend || strcmp(flags->rdzv_backend, "c10d") != 0 || !flags->rdzv_endpoint ||
        !*flags->rdzv_endpoint || flags->standalone)
        return tt__fail(TT_ERR_INVALID, "--rdzv-conf=protocol=torch: expected --rdzv-backend=c10d and "
                                        "--rdzv-endpoint=HOST:PORT, the same on all nodes");
    if (!flags->store_auth || strcmp(flags->store_auth, "none") != 0)
        return tt__fail(TT_ERR_INVALID,
                        "--rdzv-conf=protocol=torch: expected --store-auth=none, since PyTorch's agents "
                        "can prove no secret: whoever reaches the store can take part in the job");
    TT__TRY(read_node_range(job, flags->nnodes));
    TT__TRY(read_torch_times(job->torch, conf));
    TT__TRY(read_torch_is_host(job->torch, conf));
    TT__TRY(find_own_address(job->torch, flags->local_addr));
    job->torch->config.own_store = is_on("TORCH_DISABLE_SHARE_RDZV_TCP_STORE");
    job->torch->config.identical = is_on("TORCH_ELASTIC_WORKER_IDENTICAL");
    return TT_OK;
}
