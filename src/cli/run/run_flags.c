/* Reading the flags of `tutti run`, by the table run_flags.def. */
#include "cli/run/run_flags.h"

#include "base/error.h"
#include "base/text/parse.h"

#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The table for help, completion and the search for names. */
const tt__flag tt__run_flags_table[] = {
#define HEADING(text) {.what = text},
#define FLAG(field, name_, letter_, kind, help, fallback, torchrun) \
    {.name = name_, .letter = letter_, kind, .what = help fallback},
#define SWITCH .value = NULL
#define TEXT(value_, offer_) .value = value_, .offer = offer_
#define CHOICE(value_, words) .value = value_, .offer = words
#define NUMBER(value_, least, most) .value = value_
#define SECONDS(least) .value = "SECONDS"
#define OR_NONE(kind) kind
#define MORE(text)
#define HIDDEN NULL
#define DEFAULT(text) " (default " text ")"
#define NONE
#include "cli/run/run_flags.def"
    {0}};

typedef enum flag_kind { KIND_SWITCH, KIND_TEXT, KIND_CHOICE, KIND_NUMBER, KIND_SECONDS } flag_kind;

/* How a flag's value is checked and kept. */
typedef struct flag_rule {
    size_t field, given; /* offsets in tt__run_flags */
    flag_kind kind;
    bool may_be_empty, is_own; /* is_own: torchrun does not have it */
    int64_t least, most;
    const char *fallback;
} flag_rule;

/* A rule for each row of the table above; those of headings are empty. */
static const flag_rule flag_rules[] = {
#define HEADING(text) {0},
#define FLAG(field_, name, letter, kind_, help, fallback_, torchrun) \
    {.field = offsetof(tt__run_flags, field_),                       \
     .given = offsetof(tt__run_flags, given.field_),                 \
     .is_own = torchrun,                                             \
     .fallback = fallback_,                                          \
     kind_},
#define SWITCH .kind = KIND_SWITCH
#define TEXT(value, offer) .kind = KIND_TEXT
#define CHOICE(value, words) .kind = KIND_CHOICE
#define NUMBER(value, least_, most_) .kind = KIND_NUMBER, .least = least_, .most = most_
#define SECONDS(least_) .kind = KIND_SECONDS, .least = least_, .most = 86400
#define OR_NONE(kind) kind, .may_be_empty = true
#define DEFAULT(text) text
#define NONE NULL
#define TORCHRUN(text) false
#define OURS true
#include "cli/run/run_flags.def"
};

enum { ROWS = sizeof flag_rules / sizeof *flag_rules };

/* The values as typed, by the rows of the table; NULL: not given. */
typedef struct typed_flags {
    const char *values[ROWS];
    tt__flag_source sources[ROWS];
    bool help;
} typed_flags;

static const flag_rule *rule_of(const tt__flag *flag) { return &flag_rules[flag - tt__run_flags_table]; }

static void keep_given(typed_flags *typed, const tt__flag *flag, const char *value, tt__flag_source source) {
    typed->values[flag - tt__run_flags_table] = value;
    typed->sources[flag - tt__run_flags_table] = source;
}

static void keep_typed(typed_flags *typed, const tt__flag *flag, const char *value) {
    keep_given(typed, flag, value, TT__FLAG_TYPED);
}

static tt__flag_source *given_field(const tt__run_flags *flags, const tt__flag *flag) {
    return (tt__flag_source *)((uintptr_t)flags + rule_of(flag)->given);
}

/* ---- values ---- */

static tt_status set_choice(const tt__flag *flag, const char *text, const char **value) {
    char words[160];
    if (tt__cli_choice(flag->offer, text) < 0)
        return tt__fail(TT_ERR_INVALID, "--%s: expected %s, got \"%.100s\"", flag->name,
                        tt__cli_choices_text(flag->offer, words, sizeof words), text);
    *value = text;
    return TT_OK;
}

static tt_status set_seconds(const char *label, const flag_rule *rule, const char *text, int64_t *ms) {
    double seconds;
    TT__TRY(tt__parse_f64(label, text, &seconds));
    if (!(seconds >= (double)rule->least && seconds <= (double)rule->most))
        return tt__fail(TT_ERR_INVALID, "%s: expected seconds from %lld to %lld, got \"%.100s\"", label,
                        (long long)rule->least, (long long)rule->most, text);
    *ms = (int64_t)(seconds * 1000);
    return TT_OK;
}

/* Check the text of a value and set its field. */
static tt_status set_field(tt__run_flags *flags, const tt__flag *flag, const char *text) {
    const flag_rule *rule = rule_of(flag);
    void *field = (char *)flags + rule->field;
    char label[64];
    snprintf(label, sizeof label, "--%s", flag->name);
    switch (rule->kind) {
    case KIND_SWITCH:
        *(bool *)field = true;
        return TT_OK;
    case KIND_TEXT:
        *(const char **)field = text;
        return TT_OK;
    case KIND_CHOICE:
        return set_choice(flag, text, field);
    case KIND_NUMBER:
        return tt__parse_i64(label, text, rule->least, rule->most, field);
    case KIND_SECONDS:
        return set_seconds(label, rule, text, field);
    }
    return TT_OK;
}

/* Set every field: to the value that was typed, else to the default. */
static tt_status set_fields(tt__run_flags *flags, const typed_flags *typed) {
    for (int i = 0; i < ROWS; i++) {
        const flag_rule *rule = &flag_rules[i];
        const char *text = typed->values[i];
        bool given = text && (*text || !rule->may_be_empty);
        if (!given)
            text = rule->fallback;
        if (given)
            *given_field(flags, &tt__run_flags_table[i]) = typed->sources[i];
        if (text)
            TT__TRY(set_field(flags, &tt__run_flags_table[i], text));
    }
    return TT_OK;
}

/* ---- variables ---- */

/* The variable of --rdzv-id is PET_RDZV_ID. Returns `name`. */
static const char *variable_name(const tt__flag *flag, char name[64]) {
    int n = snprintf(name, 64, "PET_%s", flag->name);
    for (int c = 0; c < n; c++)
        name[c] = name[c] == '-' ? '_' : (char)toupper((unsigned char)name[c]);
    return name;
}

static const char *variable_value(const tt__flag *flag, char name[64]) {
    variable_name(flag, name);
    const char *value = secure_getenv(name);
    return value && *value && (flag->value || strcmp(value, "0") != 0) ? value : NULL;
}

static int read_environment(const char *command, typed_flags *typed) {
    char name[64];
    for (const tt__flag *flag = tt__run_flags_table; flag->name || flag->what; flag++) {
        const char *value = flag->name ? variable_value(flag, name) : NULL;
        if (!value)
            continue;
        if (!flag->value && strcmp(value, "1") != 0)
            return tt__cli_usage_error(command, "%s: expected 1 or 0, got \"%s\"", name, value);
        keep_given(typed, flag, value, TT__FLAG_VARIABLE);
    }
    return 0;
}

int tt__run_flags_error(const char *command, const tt__run_flags *flags) {
    const char *text = tt_last_error();
    for (const tt__flag *flag = tt__run_flags_table; flag->name || flag->what; flag++) {
        size_t n = flag->name ? strlen(flag->name) : 0;
        char name[64];
        if (n && *given_field(flags, flag) == TT__FLAG_VARIABLE && !strncmp(text, "--", 2) &&
            !strncmp(text + 2, flag->name, n) && strchr(":= ", text[2 + n]))
            return tt__cli_usage_error(command, "%s (%s gives --%s)", text, variable_name(flag, name), flag->name);
    }
    return tt__cli_usage_error(command, "%s", text);
}

/* ---- the command line ---- */

/* Return our name of a flag of another launcher (mpirun, srun, accelerate, DeepSpeed, torch.distributed); NULL: none is
 * known. */
static const char *guess_foreign(const char *arg) {
    static const struct {
        const char *instead, *theirs[16];
    } known[] = {
        {"nproc-per-node",
         {"-n", "-np", "--n", "--np", "--nprocs", "--ntasks", "--ntasks-per-node", "--ppn", "-ppn", "--npernode",
          "-npernode", "--num-procs", "--num-processes", "--num-gpus", "--gpus"}},
        {"nnodes", {"--nodes", "--num-nodes", "--num-machines"}},
        {"node-rank", {"--rank", "--machine-rank"}},
        {"master-addr", {"--main-process-ip", "--master"}},
        {"master-port", {"--main-process-port", "--port"}},
        {"ssh", {"-H", "-host", "--host", "--hosts"}},
        {"hostfile", {"-hostfile", "-machinefile", "--machinefile"}},
    };
    size_t n = strcspn(arg, "=");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        for (const char *const *theirs = known[i].theirs; *theirs; theirs++)
            if (strlen(*theirs) == n && !strncmp(arg, *theirs, n))
                return known[i].instead;
    return NULL;
}

static int refuse_unknown(const char *command, const char *arg) {
    int n = (int)strcspn(arg, "=");
    if (!strncmp(arg, "--help=", 7))
        return tt__cli_usage_error(command, "--help takes no value, got \"%s\"", arg + 7);
    const char *foreign = guess_foreign(arg), *guess = foreign ? foreign : tt__cli_guess_flag(arg, tt__run_flags_table);
    return tt__cli_usage_error(command, "unknown flag %.*s%s%s%s (a program's own flags stand after it)", n, arg,
                               guess ? "; did you mean --" : "", guess ? guess : "", guess ? "?" : "");
}

/* Find the flag that begins with `arg`, "--nproc" or "--nproc=2"; NULL: there is none. Several: *others is a second
 * one. */
static const tt__flag *find_beginning(const char *arg, const tt__flag **others) {
    const tt__flag *found = NULL;
    size_t n = strcspn(arg, "=");
    *others = NULL;
    if (strncmp(arg, "--", 2) != 0 || n < 3)
        return NULL;
    for (const tt__flag *flag = tt__run_flags_table; flag->name || flag->what; flag++) {
        if (!flag->name || strncmp(arg + 2, flag->name, n - 2) != 0)
            continue;
        if (!found || (rule_of(found)->is_own && !rule_of(flag)->is_own)) {
            found = flag;
            *others = NULL;
        } else if (rule_of(found)->is_own || !rule_of(flag)->is_own) {
            *others = flag;
        }
    }
    return found;
}

const tt__flag *tt__run_flag_named(const char *arg) {
    const tt__flag *flag = tt__cli_find_flag(tt__run_flags_table, arg), *other = NULL;
    return flag ? flag : find_beginning(arg, &other);
}

/* torchrun has no other flag with an "h", so it takes "--he", too. */
static bool is_help(const char *arg) {
    return !strcmp(arg, "-h") || (strlen(arg) > 2 && !strncmp("--help", arg, strlen(arg)));
}

/* Take the flag at argv[*i], and its value. */
static int take_flag(const char *command, typed_flags *typed, int argc, char **argv, int *i) {
    char *arg = argv[*i], letter[] = {arg[0], arg[1], '\0'};
    tt__cli_normalise_flag(arg);
    if (is_help(arg)) {
        typed->help = true;
        return 0;
    }
    const tt__flag *flag = tt__cli_find_flag(tt__run_flags_table, arg), *other = NULL;
    if (!flag && arg[1] != '-' && arg[2]) { /* "-t3" */
        flag = tt__cli_find_flag(tt__run_flags_table, letter);
        if (flag && flag->value) {
            keep_typed(typed, flag, arg + 2 + (arg[2] == '='));
            return 0;
        }
        return refuse_unknown(command, arg);
    }
    const char *foreign = guess_foreign(arg);
    if (!flag && !(foreign && !strcmp(foreign, "ssh"))) /* "--host" begins --hostfile, but is mpirun's list of hosts */
        flag = find_beginning(arg, &other);
    if (!flag)
        return refuse_unknown(command, arg);
    if (other)
        return tt__cli_usage_error(command, "%.*s could be --%s or --%s: write more of it", (int)strcspn(arg, "="), arg,
                                   flag->name, other->name);
    const char *value = strchr(arg, '=');
    if (!flag->value) {
        if (value)
            return tt__cli_usage_error(command, "--%s takes no value, got \"%s\"", flag->name, value + 1);
        keep_typed(typed, flag, "1");
        return 0;
    }
    if (!value && *i + 1 >= argc)
        return tt__cli_usage_error(command, "--%s: expected a value after it", flag->name);
    keep_typed(typed, flag, value ? value + 1 : argv[++*i]);
    return 0;
}

int tt__run_flags_parse(const char *command, tt__run_flags *flags, int argc, char **argv, int *program) {
    typed_flags typed = {0};
    int i = 1, status = read_environment(command, &typed);
    for (; !status && i < argc && argv[i][0] == '-' && argv[i][1]; i++) {
        if (!strcmp(argv[i], "--")) {
            i++;
            break;
        }
        status = take_flag(command, &typed, argc, argv, &i);
    }
    *program = i;
    *flags = (tt__run_flags){.help = typed.help};
    if (!status && !typed.help && set_fields(flags, &typed))
        status = tt__run_flags_error(command, flags);
    return status;
}
