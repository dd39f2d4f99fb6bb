/* A node of a torchrun job without a launcher: takes orders from stdin, a word a line, and writes what its agent says
 * as lines of JSON.
 *
 *   torch_node HOST PORT RUN_ID MIN MAX ADDRESS WORKERS ROLE LAST_CALL_MS KEEP_ALIVE_MS naive|aware [own] */
#include "elastic/torch_agent.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kinds[] = {
    [TT__TORCH_BEGIN] = "begin", [TT__TORCH_CHANGED] = "changed", [TT__TORCH_ENDED] = "ended",
    [TT__TORCH_WAITS] = "waits", [TT__TORCH_OVER] = "over",       [TT__TORCH_FAILED] = "failed"};

static void show(const tt__torch_event *event) {
    const tt__torch_assignment *a = &event->assignment;
    printf("{\"event\": \"%s\", \"text\": \"", kinds[event->kind]);
    for (const char *c = event->text; *c; c++)
        putchar(*c == '"' || *c == '\\' || *c == '\n' ? '\'' : *c);
    printf("\", \"round\": %lld, \"node\": %d, \"nodes\": %d, \"rank\": %d, \"world\": %d, \"role_rank\": %d, "
           "\"role_world\": %d, \"master\": \"%s\", \"port\": %d, \"agent_store\": %s}\n",
           (long long)a->round, a->node, a->nodes, a->ranks.first_rank, a->ranks.world, a->ranks.first_role_rank,
           a->ranks.role_world, a->master_addr, a->master_port, a->agent_store ? "true" : "false");
    fflush(stdout);
}

static void obey(tt__torch_agent *agent, const char *word) {
    if (!strcmp(word, "again"))
        tt__torch_agent_again(agent);
    else if (!strcmp(word, "leave"))
        tt__torch_agent_leave(agent);
    else
        tt__torch_agent_finish(agent, !strcmp(word, "fail"));
}

int main(int argc, char **argv) {
    if (argc < 12)
        return 2;
    const tt__torch_config config = {
        .host = argv[1],
        .port = atoi(argv[2]),
        .run_id = argv[3],
        .settings = {atoi(argv[4]), atoi(argv[5]), atoi(argv[9]), atoi(argv[10]), 3},
        .address = argv[6],
        .workers = atoi(argv[7]),
        .role = argv[8],
        .times = !strcmp(argv[11], "naive") ? TT__TORCH_NAIVE : TT__TORCH_AWARE,
        .join_ms = 60000,
        .close_ms = 10000,
        .exit_ms = 60000,
        .read_ms = 30000,
        .own_store = argc > 12,
    };
    tt__torch_agent *agent;
    tt__torch_event event = {0};
    if (tt__torch_agent_start(&agent, &config)) {
        fprintf(stderr, "%s\n", tt_last_error());
        return 1;
    }
    struct pollfd fds[] = {{.fd = tt__torch_agent_fd(agent), .events = POLLIN}, {.fd = 0, .events = POLLIN}};
    while (event.kind != TT__TORCH_OVER && event.kind != TT__TORCH_FAILED && poll(fds, 2, -1) > 0) {
        char word[32];
        while (tt__torch_agent_next(agent, &event)) {
            show(&event);
            if (event.kind == TT__TORCH_OVER || event.kind == TT__TORCH_FAILED)
                break;
        }
        if (fds[1].revents && (!fgets(word, sizeof word, stdin) || !strchr(word, '\n')))
            break;
        if (fds[1].revents) {
            *strchr(word, '\n') = '\0';
            obey(agent, word);
        }
    }
    tt__torch_agent_free(agent);
    return event.kind == TT__TORCH_FAILED;
}
