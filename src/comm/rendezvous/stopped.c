#include "comm/rendezvous/stopped.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "base/process/proc_state.h"
#include "base/text/plain_text.h"
#include "net/job/job_socket.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONNECT_MS = 200, INTERVALS = 16 /* of a heartbeat */, RANK_MS = 4 /* between questions, for each rank */ };

tt_status tt__stopped_begin(tt__stopped *stopped, int world, int64_t heartbeat_ms) {
    int64_t interval_ms = heartbeat_ms / INTERVALS;
    *stopped = (tt__stopped){.world = world,
                             .patience_ms = heartbeat_ms - heartbeat_ms / 4,
                             .interval_ms = interval_ms > (int64_t)RANK_MS * world ? interval_ms : RANK_MS * world,
                             .socket = -1,
                             .ranks = calloc((size_t)world, sizeof *stopped->ranks)};
    return stopped->ranks ? TT_OK : tt__fail(TT_ERR_MEMORY, "no memory for the states of %d ranks", world);
}

static void stopped_hang_up(tt__stopped *stopped) {
    if (stopped->socket >= 0)
        close(stopped->socket);
    stopped->socket = -1;
    stopped->asked = false;
}

void tt__stopped_end(tt__stopped *stopped) {
    if (!stopped->ranks)
        return;
    stopped_hang_up(stopped);
    free(stopped->ranks);
    stopped->ranks = NULL;
}

/* Note the launcher's answer about a rank. One that a debugger of this host holds does not count as stopped. */
static void stopped_note_rank(tt__stopped *stopped, const tt__job_rank *told) {
    if (told->rank < 0 || told->rank >= stopped->world)
        return;
    tt__stopped_rank *rank = &stopped->ranks[told->rank];
    unsigned char is_stopped;
    memcpy(&is_stopped, &told->stopped, 1); /* another process wrote it: it may be any byte */
    rank->pid = told->node == stopped->node ? (pid_t)told->pid : 0;
    rank->now = is_stopped && (!rank->pid || tt__proc_state(rank->pid) == 'T');
    rank->has_run = told->activity != rank->activity;
    rank->activity = told->activity;
    snprintf(rank->hostname, sizeof rank->hostname, "%.*s", (int)sizeof told->hostname - 1, told->hostname);
    tt__make_plain_name(rank->hostname);
}

/* All ranks of an answer are known. If this process itself was stopped, times count from now. */
static void stopped_note_end(tt__stopped *stopped) {
    int64_t now = tt__now_ms(), gap = now - stopped->heard_ms;
    for (int r = 0; r < stopped->world; r++) {
        tt__stopped_rank *rank = &stopped->ranks[r];
        if (!rank->now)
            rank->since_ms = 0;
        else if (!rank->since_ms || rank->has_run || gap > stopped->patience_ms)
            rank->since_ms = now;
        rank->now = false;
    }
    stopped->heard_ms = now;
    stopped->asked = false;
}

static void stopped_take_answer(tt__stopped *stopped) {
    tt__job_packet packet;
    int memory, got = 0;
    while (stopped->asked && (got = tt__job_receive(stopped->socket, &packet, &memory)) > 0) {
        if (memory >= 0)
            close(memory);
        if (packet.kind == TT__JOB_INFO)
            stopped->node = packet.info.node;
        else if (packet.kind == TT__JOB_RANK)
            stopped_note_rank(stopped, &packet.rank);
        else if (packet.kind == TT__JOB_END)
            stopped_note_end(stopped);
    }
    if (got < 0)
        stopped_hang_up(stopped);
}

static void stopped_ask_launcher(tt__stopped *stopped) {
    const char *name = getenv("TT_JOB_SOCKET");
    tt__job_packet packet = {.list.bare = 1};
    stopped->asked_ms = tt__now_ms();
    if (stopped->socket < 0 && (!name || tt__job_socket_connect(&stopped->socket, name, CONNECT_MS) ||
                                fcntl(stopped->socket, F_SETFL, O_NONBLOCK)))
        return;
    stopped->asked = tt__job_send(stopped->socket, TT__JOB_LIST, &packet, -1);
    if (!stopped->asked)
        stopped_hang_up(stopped);
}

void tt__stopped_look(tt__stopped *stopped) {
    stopped_take_answer(stopped);
    if (!stopped->asked && tt__now_ms() - stopped->asked_ms >= stopped->interval_ms)
        stopped_ask_launcher(stopped);
}

tt_status tt__stopped_check(const tt__stopped *stopped, int r) {
    const tt__stopped_rank *rank = &stopped->ranks[r];
    int64_t ms = rank->since_ms ? tt__now_ms() - rank->since_ms : 0;
    char where[96];
    if (ms < stopped->patience_ms || !rank->since_ms)
        return TT_OK;
    if (rank->pid)
        snprintf(where, sizeof where, "pid %d", (int)rank->pid);
    else
        snprintf(where, sizeof where, "host %s", rank->hostname);
    return tt__fail(TT_ERR_PEER, "rank %d (%s) is frozen: stopped by a signal for %lld ms, before it joined", r, where,
                    (long long)ms);
}
