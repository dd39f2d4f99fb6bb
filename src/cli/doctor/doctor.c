/* tutti doctor: print what is recognised of this place, and what is wrong with it. */
#include "cli/doctor/doctor.h"

#include "base/text/json.h"
#include "cli/cli.h"
#include "launch/local/terminal.h"

#include <stdlib.h>
#include <string.h>

enum { JSON = 1, ENDPOINT, SSH, HOSTFILE, ROOT };

static const tt__flag doctor_flags[] = {
    TT__VALUE("rdzv-endpoint", ENDPOINT, "HOST:PORT",
              "try this store, too: what `tutti run --rdzv-endpoint` is to be given on this node"),
    TT__VALUE("ssh", SSH, "HOSTS",
              "look at these hosts as well, as `tutti run --ssh` takes them: is this command there, is their clock "
              "this one's?"),
    TT__VALUE("hostfile", HOSTFILE, "FILE", "the same for the hosts of a file, one a line"),
    TT__SWITCH("json", JSON, "print JSON"),
    {.name = "root", .id = ROOT, .value = "FOLDER"}, /* for tests: stands before /proc, /sys and /dev */
    {0}};

static int doctor_main(int argc, char **argv);

const tt__command tt__cmd_doctor = {
    .name = "doctor",
    .what = "say what is recognised of this place, and how to mend what is wrong",
    .usage = "[--json] [--rdzv-endpoint HOST:PORT] [--ssh HOSTS | --hostfile FILE]",
    .text = "Look at the place where a program would run, as this process sees it: which launcher started it, and the "
            "rank, world and meeting place that follow; names, addresses and ports; limits, cores, memory, the clock; "
            "GPUs and what they need; libraries. Each line begins with ok, warn or WRONG, and below it stands what to "
            "do.\n"
            "\n"
            "Run it in the way of the program: srun tutti doctor, mpirun -n 2 tutti doctor, tutti run tutti doctor.",
    .flags = doctor_flags,
    .notes = "It changes nothing. The exit code is 1 where something is WRONG, 0 otherwise.",
    .run = doctor_main,
};

static int verdict_count(const tt__doctor *doctor, tt__finding_level verdict) {
    int n = 0;
    for (int i = 0; i < doctor->n; i++)
        n += doctor->findings[i].verdict == verdict;
    return n;
}

/* ---- printing */

static const char *const verdict_words[] = {"ok", "warn", "WRONG"};

static void print_finding(const tt__finding *finding, int columns) {
    static const tt__colour colours[] = {TT__GREEN, TT__YELLOW, TT__RED};
    char text[1280];
    printf("%s%-5s%s ", tt__terminal_colour(1, colours[finding->verdict]), verdict_words[finding->verdict],
           tt__terminal_colour(1, TT__PLAIN));
    snprintf(text, sizeof text, "%s: %s", finding->check, finding->found);
    tt__cli_print_wrapped(stdout, text, columns, 6, 8);
    if (!*finding->fix)
        return;
    snprintf(text, sizeof text, "%s", finding->fix);
    printf("      -> ");
    tt__cli_print_wrapped(stdout, text, columns, 9, 9);
}

static void print_findings(const tt__doctor *doctor) {
    int columns = tt__terminal_columns(1), wrong = verdict_count(doctor, TT__BAD),
        warned = verdict_count(doctor, TT__DOUBTFUL);
    for (int i = 0; i < doctor->n; i++)
        print_finding(&doctor->findings[i], columns);
    if (!wrong && !warned)
        printf("Nothing is wrong.\n");
    else
        printf("%d wrong, %d to think about.\n", wrong, warned);
}

/* JSON is UTF-8; text of the environment and of files may not be. */
static json_t *json_text(const char *text) {
    json_t *value = json_string(text);
    return value ? value : json_string("(not UTF-8)");
}

static int print_json(const tt__doctor *doctor) {
    const tt__launched *l = &doctor->launched;
    json_t *checks = json_array();
    for (int i = 0; i < doctor->n; i++) {
        const tt__finding *finding = &doctor->findings[i];
        json_array_append_new(checks, json_pack("{s:s, s:s, s:o, s:o}", "check", finding->check, "verdict",
                                                verdict_words[finding->verdict], "found", json_text(finding->found),
                                                "fix", json_text(finding->fix)));
    }
    json_t *launcher = l->name ? json_pack("{s:s, s:i, s:i, s:i, s:i}", "name", l->name, "rank", l->rank, "world",
                                           l->world, "local_rank", l->local_rank, "local_world", l->local_world)
                               : json_null();
    json_t *root = json_pack("{s:o, s:o, s:i, s:i}", "launcher", launcher, "checks", checks, "wrong",
                             verdict_count(doctor, TT__BAD), "warnings", verdict_count(doctor, TT__DOUBTFUL));
    int failed = root ? tt__json_dumpf(root, stdout, JSON_COMPACT) : -1;
    json_decref(root);
    printf("\n");
    return failed;
}

static int doctor_main(int argc, char **argv) {
    static tt__doctor doctor;
    const char *endpoint = NULL, *ssh = NULL, *hostfile = NULL;
    bool json = false;
    doctor = (tt__doctor){.root = "", .environment = &tt__own_environment};
    for (int c; (c = tt__cli_next_flag(&tt__cmd_doctor, argc, argv, NULL)) != -1;) {
        if (c == 'h' || c == '?')
            return c == 'h' ? TT__EXIT_OK : TT__EXIT_USAGE;
        if (c == JSON)
            json = true;
        else if (c == ENDPOINT)
            endpoint = optarg;
        else if (c == SSH)
            ssh = optarg;
        else if (c == HOSTFILE)
            hostfile = optarg;
        else
            doctor.root = optarg;
    }
    if (ssh && hostfile)
        return tt__cli_usage_error("doctor", "--ssh and --hostfile were given: expected one of them");
    tt__doctor_place(&doctor, endpoint);
    tt__doctor_network(&doctor);
    tt__doctor_machine(&doctor);
    if ((ssh || hostfile) && tt__doctor_hosts(&doctor, ssh, hostfile))
        return tt__cli_usage_error("doctor", "%s", tt_last_error());
    tt__doctor_parts(&doctor);
    if (json && print_json(&doctor)) {
        tt__cli_error("doctor", "no memory for the JSON");
        return TT__EXIT_FAILED;
    }
    if (!json)
        print_findings(&doctor);
    return verdict_count(&doctor, TT__BAD) ? TT__EXIT_FAILED : TT__EXIT_OK;
}
