#include "cli/bench/bench_flags.h"

#include "base/error.h"
#include "base/text/parse.h"
#include "comm/native/native.h"
#include "net/secure/secret.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tt_status tt__bench_parse_size(char *text, size_t *bytes) {
    static const char suffixes[] = "KMG";
    size_t n = strlen(text);
    const char *suffix = n ? strchr(suffixes, text[n - 1]) : NULL;
    int64_t value;
    int shift = suffix ? 10 * (int)(suffix - suffixes + 1) : 0;
    if (suffix)
        text[n - 1] = '\0';
    tt_status status = tt__parse_i64("--sizes", text, 1, (INT64_C(1) << 40) >> shift, &value);
    if (!status)
        *bytes = (size_t)value << shift;
    return status;
}

static tt_status take_sizes(char *list, tt__bench_flags *flags) {
    char *rest = NULL;
    flags->size_count = 0;
    for (char *text = strtok_r(list, ",", &rest); text; text = strtok_r(NULL, ",", &rest)) {
        if (flags->size_count == TT__BENCH_SIZES)
            return TT_ERR_INVALID;
        TT__TRY(tt__bench_parse_size(text, &flags->sizes[flags->size_count]));
        flags->size_count++;
    }
    return flags->size_count ? TT_OK : TT_ERR_INVALID;
}

tt_status tt__bench_flag_take(int c, char *value, int least_world, tt__bench_flags *flags) {
    tt__wire wire;
    switch (c) {
    case 'w':
        return tt__parse_i64("--world", value, least_world, 64, &flags->world);
    case 'i':
        return tt__parse_i64("--iterations", value, 1, 100000000, &flags->iterations);
    case 's':
        return take_sizes(value, flags);
    case 't':
        snprintf(flags->transport, sizeof flags->transport, "%.8s", value);
        return strcmp(value, "auto") && strcmp(value, "shm") && strcmp(value, "tcp") ? TT_ERR_INVALID : TT_OK;
    case 'W':
        return tt__wire_named(value, &wire) && !setenv("TT_WIRE", value, 1) ? TT_OK : TT_ERR_INVALID;
    default: /* 'n' */
        flags->no_pin = true;
        return TT_OK;
    }
}

int tt__bench_flags_read(const tt__command *command, int argc, char **argv,
                         tt_status (*take)(int c, char *value, void *settings), void *settings) {
    char value[1024];
    const char *flag;
    for (int c; (c = tt__cli_next_flag(command, argc, argv, &flag)) != -1;) {
        if (c == '?')
            return TT__EXIT_USAGE;
        if (c == 'h')
            return TT__EXIT_OK;
        snprintf(value, sizeof value, "%s", optarg ? optarg : ""); /* argv stays whole: the ranks get it */
        if (take(c, value, settings))
            return tt__cli_usage_error(command->name, "%s: not understood: \"%s\"", flag, optarg);
    }
    return -1;
}

const char *tt__bench_wire(const tt_group *group) {
    return group->native && group->native->world->messages ? tt__messages_wire(group->native->world->messages) : "none";
}
