#include "cli/run/run_logs.h"

#include "base/error.h"
#include "base/text/parse.h"

#include <stdlib.h>
#include <string.h>

static bool says_any(const char *text) { return text && *text; }

/* "3": for all workers; "0:1,12:3": for local ranks 0 and 12, no stream of the others. */
static tt_status read_streams(const char *flag, const char *text, int workers, uint8_t *streams) {
    if (!says_any(text))
        return TT_OK;
    if (text[0] >= '0' && text[0] <= '3' && !text[1]) {
        memset(streams, text[0] - '0', (size_t)workers);
        return TT_OK;
    }
    for (const char *at = text; at;) {
        char *colon;
        unsigned long worker = strtoul(at, &colon, 10);
        bool good = *at >= '0' && *at <= '9' && *colon == ':' && colon[1] >= '0' && colon[1] <= '3' &&
                    (!colon[2] || colon[2] == ',');
        if (!good)
            return tt__fail(TT_ERR_INVALID,
                            "%s: expected 0 (nothing), 1 (stdout), 2 (stderr), 3 (both), or LOCAL_RANK:0..3,..., got "
                            "\"%.100s\"",
                            flag, text);
        if (worker < (unsigned long)workers)
            streams[worker] = (uint8_t)(colon[1] - '0');
        at = colon[2] ? colon + 3 : NULL;
    }
    return TT_OK;
}

static tt_status read_ranks_filter(tt__logs *logs, const char *text, int workers) {
    if (!says_any(text))
        return TT_OK;
    memset(logs->hidden, true, (size_t)workers);
    for (const char *at = text; at;) {
        char *end;
        unsigned long worker = strtoul(at, &end, 10);
        if (*at < '0' || *at > '9' || end - at > 9 || (*end && *end != ','))
            return tt__fail(TT_ERR_INVALID, "--local-ranks-filter: expected local ranks as 0,1,2, got \"%.100s\"",
                            text);
        if (worker < (unsigned long)workers)
            logs->hidden[worker] = false;
        at = *end ? end + 1 : NULL;
    }
    return TT_OK;
}

/* Split at single commas; a double one is a comma. Returns an array that ends with NULL, in one piece with its texts;
 * NULL: no memory. */
static char **split_filters(const char *text) {
    size_t n = strlen(text), count = 1, i = 0;
    char **filters = calloc(1, (n + 2) * sizeof *filters + n + 1);
    char *out = filters ? (char *)(filters + n + 2) : NULL;
    if (!filters)
        return NULL;
    filters[0] = out;
    for (; i < n; i++) {
        if (text[i] != ',') {
            *out++ = text[i];
        } else if (text[i + 1] == ',') {
            *out++ = text[i++];
        } else {
            *out++ = '\0';
            filters[count++] = out;
        }
    }
    return filters;
}

static tt_status read_filters(tt__logs *logs, const tt__run_flags *flags) {
    const char *const texts[] = {flags->duplicate_stdout_filters, flags->duplicate_stderr_filters};
    for (int i = 0; i < 2; i++)
        if (says_any(texts[i]) && !(logs->filters[i] = split_filters(texts[i])))
            return tt__fail(TT_ERR_MEMORY, "no memory for filters");
    return TT_OK;
}

tt_status tt__run_logs_read(tt__logs *logs, tt__job *job, const tt__run_flags *flags) {
    const char *prefix = says_any(flags->log_line_prefix_template) ? flags->log_line_prefix_template
                                                                   : getenv("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
    size_t n = (size_t)job->workers;
    if (flags->logs_specs && strcmp(flags->logs_specs, "default") != 0)
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "--logs-specs names a plug-in of torchrun's, written in Python, which tutti run does not load: "
                        "--log-dir, --redirects and --tee say where output goes");
    *logs = (tt__logs){.files = calloc(n, 1), .tee = calloc(n, 1), .hidden = calloc(n, sizeof *logs->hidden)};
    if (!logs->files || !logs->tee || !logs->hidden)
        return tt__fail(TT_ERR_MEMORY, "no memory for the output of %d workers", job->workers);
    logs->prefix = says_any(prefix) ? prefix : "[${role_name}${local_rank}]:";
    TT__TRY(read_streams("--redirects", flags->redirects, job->workers, logs->files));
    TT__TRY(read_streams("--tee", flags->tee, job->workers, logs->tee));
    TT__TRY(read_ranks_filter(logs, flags->local_ranks_filter, job->workers));
    TT__TRY(read_filters(logs, flags));
    job->logs = logs;
    return TT_OK;
}

tt_status tt__run_logs_make(tt__logs *logs, const tt__job *job, const tt__run_flags *flags) {
    const char *base = says_any(flags->log_dir) ? flags->log_dir : NULL;
    bool wanted = base != NULL, to_null = base && !strcmp(base, "/dev/null");
    for (int i = 0; i < job->workers; i++) {
        logs->files[i] |= logs->tee[i]; /* what is teed goes through its file */
        wanted = wanted || logs->files[i];
    }
    if (!wanted || to_null) {
        memset(logs->files, 0, (size_t)job->workers);
        return TT_OK;
    }
    if (tt__logs_make(logs, base, job->run_id))
        return base ? tt__fail_prefix("--log-dir") : TT_ERR_IO;
    tt__cli_note("run", "the workers' logs are in %s", logs->dir);
    return TT_OK;
}

void tt__run_logs_free(tt__logs *logs) {
    free(logs->dir);
    free(logs->files);
    free(logs->tee);
    free(logs->hidden);
    free(logs->filters[0]);
    free(logs->filters[1]);
    *logs = (tt__logs){0};
}
