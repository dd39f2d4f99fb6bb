/* Slurm: what srun tells its tasks. A batch script and an interactive shell have most of the same variables, but are no
 * tasks of a step. */
#include "base/error.h"
#include "base/text/parse.h"
#include "comm/rendezvous/launchers.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- lists of hosts: items between commas, each a text with any number of groups "[a,b-c]" */

enum { NUMBER_MAX = 18 /* digits */, GROUPS_MAX = 16 };

/* A part of a group: its numbers, and how many digits they have at least. */
typedef struct host_range {
    uint64_t first, last;
    int width;
} host_range;

static const char *parse_digits(const char *at, uint64_t *number, int *digits) {
    *number = 0;
    for (*digits = 0; isdigit((unsigned char)*at); at++) {
        if (++*digits > NUMBER_MAX)
            return NULL;
        *number = *number * 10 + (uint64_t)(*at - '0');
    }
    return *digits ? at : NULL;
}

/* Read the range at `at`; returns what follows: ',' or ']'. NULL: no range. */
static const char *parse_host_range(const char *at, host_range *range) {
    int digits;
    at = parse_digits(at, &range->first, &range->width);
    if (!at)
        return NULL;
    range->last = range->first;
    if (*at == '-')
        at = parse_digits(at + 1, &range->last, &digits);
    return at && range->last >= range->first && (*at == ',' || *at == ']') ? at : NULL;
}

/* Count the numbers of the group after "[": 0: it is none. *end: behind its "]". */
static uint64_t group_count(const char *at, const char **end) {
    host_range range;
    uint64_t count = 0;
    for (;; at++) {
        at = parse_host_range(at, &range);
        if (!at)
            return 0;
        count += range.last - range.first + 1;
        if (count > UINT32_MAX)
            return 0;
        if (*at == ']')
            break;
    }
    *end = at + 1;
    return count;
}

/* Find number `n` of the group after "[". */
static host_range group_number(const char *at, uint64_t n) {
    host_range range = {0};
    while ((at = parse_host_range(at, &range)) && n > range.last - range.first) {
        n -= range.last - range.first + 1;
        at++;
    }
    range.first += n;
    return range;
}

/* Count the hosts of the item at `at`, and the numbers of each of its groups. 0: it makes no sense. */
static uint64_t item_count(const char *at, uint64_t counts[GROUPS_MAX], int *groups, const char **end) {
    uint64_t count = 1;
    const char *start = at;
    *groups = 0;
    while (*at && *at != ',') {
        if (*at == ']' || isspace((unsigned char)*at))
            return 0;
        if (*at++ != '[')
            continue;
        if (*groups == GROUPS_MAX)
            return 0;
        uint64_t numbers = group_count(at, &at);
        if (!numbers || __builtin_mul_overflow(count, numbers, &count))
            return 0;
        counts[(*groups)++] = numbers;
    }
    *end = at;
    return at == start ? 0 : count;
}

/* Write host number `n` of an item. The last group counts fastest. */
static int item_write(const char *at, const char *end, uint64_t n, const uint64_t *counts, int groups, char *host,
                      size_t size) {
    uint64_t numbers[GROUPS_MAX];
    size_t used = 0;
    for (int g = groups; g--; n /= counts[g])
        numbers[g] = n % counts[g];
    for (int g = 0; at < end;) {
        int written;
        if (*at == '[') {
            host_range number = group_number(at + 1, numbers[g++]);
            written = snprintf(host + used, size - used, "%0*llu", number.width, (unsigned long long)number.first);
            at = strchr(at, ']') + 1;
        } else {
            written = snprintf(host + used, size - used, "%c", *at++);
        }
        used += (size_t)written;
        if (used >= size)
            return -1;
    }
    return 1;
}

int tt__slurm_host(const char *list, uint64_t n, char *host, size_t size) {
    uint64_t counts[GROUPS_MAX];
    int groups;
    for (const char *at = list, *end;; at = end + 1) {
        uint64_t count = item_count(at, counts, &groups, &end);
        if (!count)
            return -1;
        if (n < count)
            return item_write(at, end, n, counts, groups, host, size);
        n -= count;
        if (!*end)
            return 0;
    }
}

int tt__slurm_tasks(const char *text, uint64_t node) {
    for (const char *at = text; at;) {
        uint64_t tasks, nodes = 1;
        int digits;
        at = parse_digits(at, &tasks, &digits);
        if (at && !strncmp(at, "(x", 2)) {
            at = parse_digits(at + 2, &nodes, &digits);
            at = at && *at == ')' ? at + 1 : NULL;
        }
        if (!at || (*at && *at != ',') || tasks > INT32_MAX)
            return -1;
        if (node < nodes)
            return (int)tasks;
        node -= nodes;
        at = *at ? at + 1 : NULL;
    }
    return -1;
}

/* ---- the task */

/* Steps of one job run beside each other, as do jobs with numbers one after the other: strides that share no factor
 * with the number of ports keep them apart. */
int tt__slurm_port(int64_t job, int64_t step) {
    enum { FIRST = 10000, PORTS = 20000, STRIDE = 7919 };
    return FIRST + (int)((job % PORTS + step % PORTS * STRIDE) % PORTS);
}

/* The first of the variables that is set, or NULL; *name (may be NULL) is its name. */
static const char *slurm_value(const tt__environment *environment, const char *const *names, const char **name) {
    for (; *names; names++) {
        const char *value = tt__environment_value(environment, *names);
        if (name)
            *name = *names;
        if (value)
            return value;
    }
    return NULL;
}

static const char *const size_names[] = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS", NULL};
static const char *const nodes_names[] = {"SLURM_STEP_NUM_NODES", "SLURM_NNODES", NULL};
static const char *const list_names[] = {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST", NULL};
static const char *const tasks_names[] = {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE", NULL};
static const char *const job_names[] = {"SLURM_JOB_ID", "SLURM_JOBID", NULL};

/* Larger step numbers are not of srun: a batch script, an interactive shell, processes beside the job. */
enum { STEP_MAX = 0x7fffffff };

static tt_status find_place(const tt__environment *environment, tt__launched *launched, int64_t step) {
    const char *nodes = slurm_value(environment, nodes_names, NULL), *list_name;
    const char *list = slurm_value(environment, list_names, &list_name),
               *job = slurm_value(environment, job_names, NULL);
    int64_t number = 0;
    if (job) {
        TT__TRY(tt__parse_i64("SLURM_JOB_ID", job, 0, UINT32_MAX, &number));
        launched->port = tt__slurm_port(number, step);
        snprintf(launched->job, sizeof launched->job, "slurm-%s-%lld", job, (long long)step);
    }
    if (nodes && !strcmp(nodes, "1")) {
        snprintf(launched->host, sizeof launched->host, "127.0.0.1");
        launched->whence = "all of the step's tasks are on this node; the port follows from SLURM_JOB_ID";
        return TT_OK;
    }
    if (list && tt__slurm_host(list, 0, launched->host, sizeof launched->host) != 1)
        return tt__fail(TT_ERR_INVALID, "%s: expected a list of hosts such as node[01-03,05], got \"%.100s\"",
                        list_name, list);
    launched->whence = "the first host of SLURM_STEP_NODELIST; the port follows from SLURM_JOB_ID";
    return TT_OK;
}

tt_status tt__slurm_look(const tt__environment *environment, tt__launched *launched, bool *is_task) {
    const char *rank = tt__environment_value(environment, "SLURM_PROCID");
    const char *step = tt__environment_value(environment, "SLURM_STEP_ID");
    const char *local = tt__environment_value(environment, "SLURM_LOCALID");
    const char *node = tt__environment_value(environment, "SLURM_NODEID"), *size_name;
    const char *size = slurm_value(environment, size_names, &size_name);
    const char *tasks = slurm_value(environment, tasks_names, NULL);
    int64_t r, n, s, l, at;
    *is_task = false;
    if (!rank || !step || !local || !size || strtoll(step, NULL, 10) > STEP_MAX)
        return TT_OK;
    TT__TRY(tt__parse_i64("SLURM_PROCID", rank, 0, INT32_MAX, &r));
    TT__TRY(tt__parse_i64(size_name, size, 1, INT32_MAX, &n));
    TT__TRY(tt__parse_i64("SLURM_STEP_ID", step, 0, STEP_MAX, &s));
    TT__TRY(tt__parse_i64("SLURM_LOCALID", local, 0, INT32_MAX, &l));
    *launched = (tt__launched){.name = "srun",
                               .rank_name = "SLURM_PROCID",
                               .is_srun = true,
                               .size_name = size_name,
                               .rank = (int)r,
                               .world = (int)n,
                               .local_rank = (int)l};
    if (node && tasks) {
        TT__TRY(tt__parse_i64("SLURM_NODEID", node, 0, INT32_MAX, &at));
        int here = tt__slurm_tasks(tasks, (uint64_t)at);
        launched->local_world = here > 0 ? here : 0;
        if (here > 0 && (l >= here || here > n))
            return tt__fail(TT_ERR_INVALID, "SLURM_LOCALID=%s on a node with %d of the step's %s tasks", local, here,
                            size);
    }
    *is_task = true;
    return find_place(environment, launched, s);
}
