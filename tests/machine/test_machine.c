/* Explores the launcher's machine (src/launch/machine): tries every order of events that its surroundings may give it,
 * for small jobs, up to a number of states. After each step the machine must keep what its diagrams promise. From each
 * state that was reached it must end within a few steps, in surroundings that do what they are told.
 *
 *   TT_MACHINE_STATES=N   how many states of each job, instead of the few that gate */
#include "machine/surroundings.h"

enum { STATES = 60000, SANITIZED_STATES = 4000, WAY_OUT = 80, TABLE = 1 << 22, TEXT = 4000 };

static const char *const happening_names[HAPPENINGS] = {
    "fails",        "succeeds",       "follows",     "gets able",   "wants a round",  "leaves some",
    "clears",       "can't kill",     "keeper dies", "time passes", "reads",          "user's signal",
    "round comes",  "no round comes", "other fails", "other waits", "other's signal", "other lost",
    "other leaves", "self lost",      "all gone",    "all kept",    "last",           "regroup",
    "newcomer",     "missed",         "again",       "over",        "deposed"};

/* A job that is explored. */
typedef struct job_case {
    const char *name;
    tt__machine_job job;
    bool serves;
} job_case;

/* A state that was reached, and how. */
typedef struct reached {
    world world;
    int from; /* index; -1: the beginning */
    happening what;
    int worker;
} reached;

static bool table_add(uint64_t *table, uint64_t number) {
    size_t at = (size_t)number & (TABLE - 1);
    while (table[at] && table[at] != number)
        at = (at + 1) & (TABLE - 1);
    bool is_new = !table[at];
    table[at] = number;
    return is_new;
}

static void print_path(const reached *list, int at) {
    if (at < 0)
        return;
    print_path(list, list[at].from);
    if (list[at].from >= 0)
        printf("  %s%s\n", happening_names[list[at].what],
               list[at].what <= WANTS_ROUND ? list[at].worker ? " (worker 1)" : " (worker 0)" : "");
}

/* ---- ways out */

static void end_living(world *w) {
    for (int i = 0; i < WORKERS; i++)
        if (w->life[i] >= ALIVE && w->life[i] <= WAITING && !trouble) {
            happens(w, w->workers[i].sent_signal ? FAILS : SUCCEEDS, i);
            return;
        }
}

/* What well-meaning surroundings do next. */
static void go_on_well(world *w) {
    bool kept = w->m.attempt.phase == TT__ATTEMPT_OVER || w->m.attempt.phase == TT__NO_ATTEMPT;
    if (w->reading)
        happens(w, READS, 0);
    else if (w->killed && w->attempt)
        happens(w, CLEARS, 0);
    else if (living(w) && !kept)
        end_living(w);
    else if (w->attempt && !living(w))
        happens(w, CLEARS, 0);
    else if (w->joining || w->ordered)
        happens(w, NO_ROUND_COMES, 0);
    else if (w->said_gone && w->m.membership.coordinates)
        happens(w, ALL_GONE, 0);
    else if (w->said_gone)
        happens(w, LAST, 0);
    else
        happens(w, TIME_PASSES, 0);
}

static bool has_way_out(const world *from) {
    world w = copy_of(from);
    point_to_own(&w);
    for (int i = 0; i < WAY_OUT && w.m.ending.stage != TT__DONE && !trouble; i++)
        go_on_well(&w);
    bool done = w.m.ending.stage == TT__DONE;
    if (!done && !trouble)
        printf("stuck: phase %d, member %d, verdict %d, stage %d, damage %d, signal %d; lives %d %d, attempt %d, "
               "killed %d, "
               "gone %d\n",
               (int)w.m.attempt.phase, (int)w.m.membership.state, (int)w.m.membership.verdict.kind,
               (int)w.m.ending.stage, (int)w.m.ending.damage, w.m.ending.own_signal, (int)w.life[0], (int)w.life[1],
               w.attempt, w.killed, w.said_gone);
    drop(&w);
    return done || trouble;
}

/* ---- exploring */

/* Try what may happen in state `at`. Returns false if something is wrong. */
static bool explore_state(reached *list, int *count, int most, int at, uint64_t *table) {
    for (int k = 0; k < HAPPENINGS * WORKERS && *count < most; k++) {
        happening what = (happening)(k / WORKERS);
        int worker = k % WORKERS;
        if (!may_happen(&list[at].world, what, worker))
            continue;
        reached *next = &list[*count];
        *next = (reached){.world = copy_of(&list[at].world), .from = at, .what = what, .worker = worker};
        point_to_own(&next->world);
        happens(&next->world, what, worker);
        bool is_new = table_add(table, number_of(&next->world) | 1);
        if (!trouble && is_new && !has_way_out(&next->world))
            trouble = trouble ? trouble : "there is no way out";
        if (trouble) {
            printf("%s, after:\n", trouble);
            print_path(list, *count);
            return false;
        }
        if (is_new)
            ++*count;
        else
            drop(&next->world);
    }
    return true;
}

static bool explore(const job_case *c, int most) {
    reached *list = calloc((size_t)most + 1, sizeof *list);
    uint64_t *table = calloc(TABLE, sizeof *table);
    int count = 1, at = 0;
    bool well = list && table;
    if (!well)
        return false;
    serves = c->serves;
    list[0] = (reached){.from = -1};
    tt__machine_begin(&list[0].world.m, &c->job, list[0].world.workers, WORKERS);
    list[0].world.now_ms = 1000;
    if (c->job.alone)
        give(&list[0].world, (tt__event){.kind = TT__ON_BEGIN});
    else
        list[0].world.joining = true;
    for (; at < count && count < most && well; at++)
        well = explore_state(list, &count, most, at, table);
    printf("%s: %s, %d states, %d of them explored\n", well ? "ok  " : "FAIL", c->name, count, at);
    for (int i = 0; i < count + !well; i++)
        drop(&list[i].world);
    free(list);
    free(table);
    return well;
}

int main(void) {
    const tt__machine_job base = {.max_restarts = 1, .settle_ms = SETTLE_MS, .grace_ms = GRACE_MS};
    job_case cases[] = {{"a job of one node", base, true},
                        {"node 0 of two, which have numbers", base, true},
                        {"node 1 of two, which have numbers", base, false},
                        {"who serves the store, with another", base, true},
                        {"who does not, with another", base, false},
                        {"who serves the store, of nodes that come and go", base, true},
                        {"who does not, of nodes that come and go", base, false},
                        {"one of two nodes, without restarts", base, true}};
    const char *states = getenv("TT_MACHINE_STATES");
    int most = states ? atoi(states) : getenv("TT_SANITIZED") ? SANITIZED_STATES : STATES, failed = 0;
    cases[0].job.alone = true;
    cases[1].job.numbered = cases[2].job.numbered = cases[7].job.numbered = true;
    cases[5].job.elastic = cases[6].job.elastic = true;
    cases[7].job.max_restarts = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++, trouble = NULL)
        failed += !explore(&cases[i], most);
    return failed != 0;
}
