/* Reinforcement learning: observers play, each in an environment of its own, and ask the agent for every action; the
 * agent learns from what they have seen, by REINFORCE. Mirrors the example distributed/rpc/rl of PyTorch's, whose
 * environment is gym's CartPole-v1 (here it is written out):
 *
 *     class Observer:
 *         def run_episode(self, agent_rref, n_steps):
 *             state = self.env.reset()
 *             for step in range(n_steps):
 *                 action = agent_rref.rpc_sync().select_action(self.id, state)
 *                 state, reward, done, _ = self.env.step(action)
 *                 agent_rref.rpc_sync().report_reward(self.id, reward)
 *
 *     futs = [rpc_async(ob.owner(), run_episode, args=(ob, agent_rref, n_steps)) for ob in ob_rrefs]
 *     for fut in futs:
 *         fut.wait()
 *
 *   tutti run --nproc-per-node=3 build/examples/rpc_reinforce
 *
 * The agent draws the actions of each observer from a generator of its own, and discounts the rewards of each by
 * themselves, so that nothing depends on which observer is faster. */
#include "cart_pole.h"
#include "flags.h"
#include "rpc_workers.h"

#include <pthread.h>

static const char program_name[] = "rpc_reinforce";

static const char usage[] = "usage: tutti run --nproc-per-node=N rpc_reinforce [FLAGS]\n"
                            "\n"
                            "Ranks 1 to N-1 balance a pole; rank 0 chooses their actions, and learns. N: 2 to 64.\n"
                            "\n"
                            "  --episodes N    games of each observer (20)\n"
                            "  --steps N       the most steps of a game (200)\n"
                            "  --gamma X       what a reward is worth a step earlier (0.99)\n"
                            "  --lr X          learning rate (0.01)\n"
                            "  --seed N        of weights, actions and states to begin with (543)\n"
                            "  --help          this text\n";

enum { OBSERVERS_MAX = 63, STATE = 4 };

typedef struct Options {
    int64_t episodes, steps, seed;
    double gamma, lr;
} Options;

/* ---- an observer ---- */

static tt_generator *starts; /* of its games */

static tt_status choose_action(tt_rref *agent, const CartPole *c, bool *right) {
    TT_AUTO_SCOPE;
    const float state[STATE] = {(float)c->position, (float)c->speed, (float)c->angle, (float)c->turning};
    tt_rpc_value action;
    tt_tensor *x = tt_from_data(state, TT_SHAPE(STATE), TT_F32);
    if (tt_rref_sync(agent, "select_action", .args = TT_RPC_ARGS(tt_rpc_tensor(x)), .result = &action))
        return tt_last_status();
    *right = action.boolean;
    return TT_OK;
}

/* Play a game, and tell the agent what each step was worth. */
static tt_status run_episode(tt_rpc_call *call) {
    tt_rref *agent = tt_rpc_arg_rref(call, 0);
    CartPole cart = {0};
    tt_status status = reset_cart(&cart, starts);
    for (int64_t step = 0; step < tt_rpc_arg_int(call, 1) && !status; step++) {
        bool right = false;
        status = choose_action(agent, &cart, &right);
        if (status)
            break;
        push_cart(&cart, right);
        status = tt_rref_sync(agent, "report_reward", .args = TT_RPC_ARGS(tt_rpc_float(1)));
        if (cart_is_lost(&cart))
            break;
    }
    return status;
}
TT_RPC_FUNCTION(run_episode, "(rref agent, int steps)");

/* ---- the agent ---- */

/* What an observer has seen, done and won in a game. */
typedef struct Game {
    tt_generator *actions;
    float *states;   /* (steps,4) */
    int64_t *chosen; /* (steps) 1: to the right */
    float *returns;  /* (steps) rewards, then what came of them */
    int64_t steps, rewards;
} Game;

typedef struct Agent {
    const Options *options;
    tt_module *policy;
    tt_optimizer *adam;
    pthread_mutex_t lock; /* of the policy: a module runs in one thread at a time */
    Game games[OBSERVERS_MAX];
    int observers;
} Agent;

static Agent agent = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* The game of whoever calls; calls of one observer come one after the other. NULL: recorded. */
static Game *game_of(const tt_rpc_call *call, Agent **called) {
    const tt_rpc_value *value = tt_rref_local(tt_rpc_arg_rref(call, 0));
    int caller = tt_rpc_caller(call);
    *called = value ? value->object.at : NULL;
    return value && caller > 0 ? &(*called)->games[caller - 1] : NULL;
}

/* x (4), the state -> how likely each action is (2) */
static tt_tensor *likelihoods(Agent *a, tt_tensor *x) {
    TT_NO_GRAD;
    pthread_mutex_lock(&a->lock);
    tt_tensor *y = tt_softmax(tt_module_forward(a->policy, x), 0);
    pthread_mutex_unlock(&a->lock);
    return y;
}

static tt_status select_action(tt_rpc_call *call) {
    Agent *a;
    Game *g = game_of(call, &a);
    tt_tensor *x = tt_rpc_arg_tensor(call, 1);
    if (!g)
        return tt_fail(TT_ERR_INVALID, "expected an observer to ask the agent, got worker %d", tt_rpc_caller(call));
    if (g->steps == a->options->steps)
        return tt_fail(TT_ERR_STATE, "an observer has at most %" PRId64 " steps", a->options->steps);
    const float *likely = tt_tensor_f32(likelihoods(a, x)), *drawn = tt_tensor_f32(tt_rand(TT_SHAPE(1), g->actions));
    if (!likely || !drawn)
        return tt_last_status();
    memcpy(g->states + g->steps * STATE, tt_tensor_f32(x), STATE * sizeof(float));
    bool right = drawn[0] >= likely[0];
    g->chosen[g->steps++] = right;
    return tt_rpc_return(call, tt_rpc_bool(right));
}
TT_RPC_FUNCTION(select_action, "(rref agent, tensor state) -> bool");

static tt_status report_reward(tt_rpc_call *call) {
    Agent *a;
    Game *g = game_of(call, &a);
    if (!g || g->rewards == g->steps)
        return tt_fail(TT_ERR_STATE, "expected a reward for each action, got more");
    g->returns[g->rewards++] = (float)tt_rpc_arg_float(call, 1);
    return TT_OK;
}
TT_RPC_FUNCTION(report_reward, "(rref agent, float reward)");

/* Rewards become what was won from each step on; returns the sum of rewards. */
static double discount(Game *g, double gamma) {
    double from_here = 0, won = 0;
    for (int64_t i = g->steps; i-- > 0;) {
        won += (double)g->returns[i];
        from_here = (double)g->returns[i] + gamma * from_here;
        g->returns[i] = (float)from_here;
    }
    return won;
}

/* x (n) -> mean 0, standard deviation 1 */
static tt_tensor *normalized(tt_tensor *x) {
    tt_tensor *deviation = tt_sqrt(tt_var(x, 1));
    return tt_div(tt_sub(x, tt_mean(x)), tt_add_scalar(deviation, 1.1920928955078125e-07));
}

/* Learn from the games of all observers, which begin anew then: steps that won more than others become likelier. */
static tt_status finish_episode(Agent *a, double *loss_value) {
    TT_AUTO_SCOPE;
    tt_tensor *states[OBSERVERS_MAX], *chosen[OBSERVERS_MAX], *returns[OBSERVERS_MAX];
    for (int i = 0; i < a->observers; i++) {
        Game *g = &a->games[i];
        states[i] = tt_from_data(g->states, TT_SHAPE(g->steps, STATE), TT_F32);
        chosen[i] = tt_from_data(g->chosen, TT_SHAPE(g->steps), TT_I64);
        returns[i] = tt_from_data(g->returns, TT_SHAPE(g->steps), TT_F32);
        g->steps = g->rewards = 0;
    }
    tt_tensor *unlikely = tt_cross_entropy(tt_module_forward(a->policy, tt_cat(states, a->observers, 0)),
                                           tt_cat(chosen, a->observers, 0), .reduction = TT_REDUCTION_NONE);
    tt_tensor *loss = tt_mean(tt_mul(unlikely, normalized(tt_cat(returns, a->observers, 0))));
    tt_optimizer_zero_grad(a->adam);
    if (tt_backward(loss) || tt_item(loss, loss_value))
        return tt_last_status();
    return tt_optimizer_step(a->adam);
}

/* Let all observers play a game, at once. */
static tt_status play(tt_rpc *rpc, tt_rref *self, const Agent *a) {
    tt_future *played[OBSERVERS_MAX] = {0};
    tt_status status = TT_OK;
    for (int i = 0; i < a->observers && !status; i++)
        status = tt_rpc_async(&played[i], rpc, NULL, "run_episode", .to_id = i + 1,
                              .args = TT_RPC_ARGS(tt_rpc_rref(self), tt_rpc_int(a->options->steps)));
    return wait_for_calls(played, a->observers, status);
}

static tt_status train(tt_rpc *rpc, Agent *a) {
    tt_rref *self = tt_rref_new(rpc, tt_rpc_object(a, NULL, "agent"));
    tt_status status = self ? TT_OK : tt_last_status();
    for (int64_t episode = 0; episode < a->options->episodes && !status; episode++) {
        double loss, won = 0;
        status = play(rpc, self, a);
        for (int i = 0; i < a->observers; i++)
            won += discount(&a->games[i], a->options->gamma) / a->observers;
        if (!status)
            status = finish_episode(a, &loss);
        if (!status)
            printf("episode %" PRId64 ": mean reward %.2f, loss %.6f\n", episode, won, loss);
    }
    tt_rref_free(self);
    return status;
}

static tt_status make_agent(Agent *a, int observers) {
    const Options *o = a->options;
    a->observers = observers;
    tt_manual_seed((uint64_t)o->seed);
    a->policy = tt_nn_sequential(tt_nn_linear(STATE, 128), tt_nn_relu(), tt_nn_linear(128, 2));
    a->adam = tt_adam(tt_module_parameters(a->policy), o->lr);
    for (int i = 0; i < observers; i++) {
        Game *g = &a->games[i];
        g->actions = tt_generator_new((uint64_t)(o->seed + i + 1));
        g->states = calloc((size_t)o->steps, STATE * sizeof *g->states);
        g->chosen = calloc((size_t)o->steps, sizeof *g->chosen);
        g->returns = calloc((size_t)o->steps, sizeof *g->returns);
        if (!g->actions || !g->states || !g->chosen || !g->returns)
            return tt_fail(TT_ERR_MEMORY, "no memory for games of %" PRId64 " steps", o->steps);
    }
    return a->adam ? TT_OK : tt_last_status();
}

static void free_agent(Agent *a) {
    for (int i = 0; i < a->observers; i++) {
        tt_generator_free(a->games[i].actions);
        free(a->games[i].states);
        free(a->games[i].chosen);
        free(a->games[i].returns);
    }
    tt_optimizer_free(a->adam);
    tt_module_free(a->policy);
}

static tt_status be_agent(tt_rpc **rpc, tt_group *world, const Options *o) {
    agent.options = o;
    tt_status status = make_agent(&agent, tt_get_world_size(world) - 1);
    if (!status)
        status = become_worker(rpc, world, "agent", "observer");
    return status ? status : train(*rpc, &agent);
}

/* ---- both ---- */

static tt_status be_observer(tt_rpc **rpc, tt_group *world, const Options *o) {
    starts = tt_generator_new((uint64_t)(o->seed + 1000 + tt_get_rank(world)));
    return starts ? become_worker(rpc, world, "agent", "observer") : tt_last_status();
}

int main(int argc, char **argv) {
    Options o = {.episodes = 20, .steps = 200, .seed = 543, .gamma = 0.99, .lr = 0.01};
    const Flag flags[] = {
        {"episodes", .integer = &o.episodes, .min = 1},
        {"steps", .integer = &o.steps, .min = 2},
        {"gamma", .real = &o.gamma},
        {"lr", .real = &o.lr},
        {"seed", .integer = &o.seed},
    };
    tt_rpc *rpc = NULL;
    tt_group *world = NULL;
    if (!parse_flags(flags, sizeof flags / sizeof *flags, usage, argc, argv))
        return 2;
    tt_status status = join_ranks(&world, 2, OBSERVERS_MAX + 1);
    if (!status)
        status = tt_get_rank(world) ? be_observer(&rpc, world, &o) : be_agent(&rpc, world, &o);
    int code = end_worker(rpc, world, status); /* until then observers may call the agent */
    free_agent(&agent);
    tt_generator_free(starts);
    return code;
}
