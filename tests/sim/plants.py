#!/usr/bin/env python3
"""Copies of the product's sources with bugs put in, to see whether the simulation finds them. Each bug has a number,
and is there only while sim_plant says so.

usage: plants.py files                 the sources that have any, below src/
       plants.py make SOURCE_FOLDER OUT_FOLDER   write the copies, and plants.c, the list
A bug whose place is not found any more is listed as such, and the test of the bugs fails until it has another.
"""
import pathlib
import sys

# What it is, the source, the text that is there, and what is there instead; or several texts.
PLANTS = [
    ("the next attempt does not wait until all nodes are rid of the last", "elastic/nodes_round.c",
     ("if (tt__node_lives(node) && node->gone <= r->attempt)", "t->of[id].gone > t->round->attempt);"),
     ("if (tt__node_lives(node) && node->gone <= (PLANTED ? -1 : r->attempt))",
      "PLANTED || t->of[id].gone > t->round->attempt);")),
    ("an old beat counts as a new one", "elastic/nodes_beat.c",
     "beats <= node->beats)", "(PLANTED ? beats < node->beats : beats <= node->beats))"),
    ("news are read under the number that follows theirs", "elastic/nodes_news.c",
     ("tt__talk_news_key(key, id, node->news_taken + 1);", "tt__talk_news_key(list[n++].key, id, k);"),
     ("tt__talk_news_key(key, id, node->news_taken + 1 + PLANTED);",
      "tt__talk_news_key(list[n++].key, id, k + PLANTED);")),
    ("a silent node is not lost", "elastic/nodes_beat.c",
     "bool too_long = silent", "bool too_long = !PLANTED && silent"),
    ("a node's first rank is the one before's last", "elastic/nodes_round.c",
     "node->first_rank = r->world;", "node->first_rank = r->world - (PLANTED && k > 0);"),
    ("two launchers may claim one number", "elastic/nodes_join.c",
     "if (claims != 1)", "if (claims != 1 && !PLANTED)"),
    ("who failed first is who was heard of first", "elastic/launcher_first.c",
     "workers[k].when.realtime_ns < workers[i].when.realtime_ns ||",
     "(!PLANTED && workers[k].when.realtime_ns < workers[i].when.realtime_ns) ||"),
    ("a renewed store keeps its old clients", "store/operations.c",
     "    if (tt__store_key_begins(tt__store_entry_key(entry), TT__STORE_LASTING))",
     "    if (PLANTED || tt__store_key_begins(tt__store_entry_key(entry), TT__STORE_LASTING))"),
    ("a renewed store keeps its old keys", "store/key_table.c",
     "tt__store_table_forget(tt__store_table *table, const char *lasting) {",
     "tt__store_table_forget(tt__store_table *table, const char *lasting) {\n    if (PLANTED)\n        return;"),
    ("one attempt too many", "elastic/launcher_another.c",
     "return l->job->restarts < l->job->max_restarts;", "return l->job->restarts < l->job->max_restarts + PLANTED;"),
    ("a signal between two attempts is forgotten", "elastic/launcher.c",
     "    l->got_signal = sig;\n",
     "    if (PLANTED && l->phase == TT__GONE)\n        return;\n    l->got_signal = sig;\n"),
    ("a phase has no deadline", "elastic/launcher_phase.c",
     "l->deadline_ms = tt__deadline_ms(timeout_ms);",
     "l->deadline_ms = PLANTED ? INT64_MAX : tt__deadline_ms(timeout_ms);"),
    ("that all nodes were rid of the last attempt is remembered for the next", "elastic/launcher_attempt.c",
     "l->all_gone = l->all_well = l->any_kept =",
     "l->all_gone = PLANTED && l->all_gone;\n    l->all_well = l->any_kept ="),
    ("that a round is ordered is remembered for the next", "elastic/launcher_attempt.c",
     "l->ordered = l->regroups =", "l->ordered = PLANTED && l->ordered;\n    l->regroups ="),
    ("the end waits for nodes that are lost", "elastic/nodes_thread.c",
     "if (tt__node_lives(&t->of[t->round->of[k].member]))",
     "if (PLANTED ? !t->of[t->round->of[k].member].done : tt__node_lives(&t->of[t->round->of[k].member]))"),
    ("news are deleted before they are read", "elastic/nodes_round.c",
     "    tt__talk_delete_news(t); /* of the attempt before",
     "    if (PLANTED)\n        t->news_of_before = t->news;\n"
     "    tt__talk_delete_news(t); /* of the attempt before"),
    ("node 0 leaves before the others have read all", "elastic/nodes_thread.c",
     "    if (t->nodes->member.coordinates)\n        tt__talk_wait_for_leavers(t);\n    else if (!t->cut)",
     "    if (t->nodes->member.coordinates) {\n        if (!PLANTED)\n            tt__talk_wait_for_leavers(t);\n"
     "    } else if (!t->cut)"),
    ("an attempt begins without the last node", "elastic/nodes_round.c",
     "return n >= m->max_nodes ||", "return n >= m->max_nodes - PLANTED ||"),
    ("that a failure follows from another is not told", "elastic/nodes.c",
     "(int)w->secondary, \"waited\"", "!PLANTED && w->secondary, \"waited\""),
    ("node 0 waits for ever when it can't reach the store", "elastic/nodes_thread.c",
     "if (t->cut) /* nobody", "if (!PLANTED && t->cut) /* nobody"),
    ("who has lost the job goes on with its workers", "elastic/launcher_attempt.c",
     "    l->rejoins = true;\n", "    l->rejoins = !PLANTED;\n"),
    ("rounds count from the beginning with another coordinator", "elastic/nodes_round.c",
     "    count_on(t);\n", "    if (!PLANTED)\n        count_on(t);\n"),
    ("a newcomer is not told of", "elastic/nodes_round.c",
     "if (!t->round || t->closed || t->done ||", "if (PLANTED || !t->round || t->closed || t->done ||"),
    ("a restart is not counted", "elastic/launcher_attempt.c",
     "int restarts = l->job->restarts + tt__launcher_attempt_failed(l);",
     "int restarts = l->job->restarts + (!PLANTED && tt__launcher_attempt_failed(l));"),
    ("what members announce is not repeated", "elastic/nodes_news.c",
     "if (take_common(t, id, what, news))", "if (take_common(t, id, what, news) && !PLANTED)"),
    ("a round is begun that may be over", "elastic/nodes_round.c",
     "        tt__talk_replaces(t) && !t->nodes->member.coordinates ? TT__BELIEVED",
     "        !PLANTED && tt__talk_replaces(t) && !t->nodes->member.coordinates ? TT__BELIEVED"),
    ("a round in which all have ended well is run again when a node comes", "elastic/launcher_another.c",
     "(l->all_well ||", "((!PLANTED && l->all_well) ||"),
    ("the store is renewed before what was told is written", "elastic/launcher_attempt.c",
     ("    if (l->nodes) {\n        tt__nodes_order_round(", "kept ? NULL : l->server"),
     ("    if (PLANTED && l->nodes && !kept)\n        tt__store_server_renew(l->server);\n"
      "    if (l->nodes) {\n        tt__nodes_order_round(", "kept || PLANTED ? NULL : l->server")),
    ("ranks are not asked for the next round when a node is lost or comes", "elastic/launcher_recovery.c",
     "        tell_worker(l, i, TT__JOB_WANTED,",
     "        if (!PLANTED)\n            tell_worker(l, i, TT__JOB_WANTED,"),
    ("a rank that survives is taken for one that waits", "elastic/launcher_recovery.c",
     "if (words.wants_round != next)", "if (words.wants_round != next && !PLANTED)"),
    ("ranks that go on are told the number of the round before", "elastic/launcher_recovery.c",
     ".number = number,", ".number = number - PLANTED,"),
    ("rounds of ranks that go on count from the beginning with another coordinator", "elastic/nodes_round.c",
     "    count_rounds_on(t);\n", "    if (!PLANTED)\n        count_rounds_on(t);\n"),
    ("the state of a round is rank 0's", "recovery/restore.c",
     "if (is_newer(&all[r], &all[root]))", "if (!PLANTED && is_newer(&all[r], &all[root]))"),
    ("commits of one number are taken for the same", "recovery/restore.c",
     "(!same || all[r].commits", "((!same && !PLANTED) || all[r].commits"),
    ("a newcomer keeps what it had", "recovery/restore.c",
     "    if (!status && s->lacks)\n", "    if (!status && s->lacks && !PLANTED)\n"),
    ("a launcher that ends before the others is taken for lost", "elastic/launcher_nodes.c",
     "if (l->done || l->is_last ||", "if (l->done || (l->is_last && !PLANTED) ||"),
    ("a launcher that ends is not replaced", "elastic/launcher_nodes.c",
     "if (tt__launcher_replaces(l) && event->node > 0 &&",
     "if (!PLANTED && tt__launcher_replaces(l) && event->node > 0 &&"),
    ("who waited for the next round may have failed first", "elastic/report.c",
     "w->waited ? 3 :", "w->waited && !PLANTED ? 3 :"),
    ("that a rank waited for the next round is not told", "elastic/nodes.c",
     "(int)w->waited, \"message\"", "!PLANTED && w->waited, \"message\""),
    ("ranks that join don't heed their launcher", "recovery/elastic.c",
     "tt__net_interrupt_by(e->standing.socket,", "tt__net_interrupt_by(PLANTED ? -1 : e->standing.socket,"),
    ("ranks wait for a round that can't come", "elastic/launcher_attempt.c",
     "if (s.waiting && !tt__launcher_may_go_on(l))", "if (!PLANTED && s.waiting && !tt__launcher_may_go_on(l))"),
    ("the store is renewed while what was told is on its way", "elastic/nodes_thread.c",
     "if (order->renewed && t->store && !t->cut)", "if (!PLANTED && order->renewed && t->store && !t->cut)"),
]


def pairs(old, new):
    return [(old, new)] if isinstance(old, str) else list(zip(old, new))


def sources():
    return sorted({plant[1] for plant in PLANTS})


def make(root, out):
    texts = {name: (root / name).read_text() if (root / name).exists() else "" for name in sources()}
    found = []
    for number, (_, name, old, new) in enumerate(PLANTS, 1):
        there = all(texts[name].count(text) == 1 for text, _ in pairs(old, new))
        found.append(there)
        for text, other in pairs(old, new) if there else ():
            texts[name] = texts[name].replace(text, other.replace("PLANTED", f"sim_has_plant({number})"))
    out.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (out / name.replace("/", "_")).write_text('#include "sim/plant.h"\n' + text)
    rows = "".join(f'    {{"{what}", "{name}", {"true" if there else "false"}}},\n'
                   for (what, name, _, _), there in zip(PLANTS, found))
    (out / "plants.c").write_text('#include "sim/plant.h"\n\n'
                                  f"const int sim_plant_count = {len(PLANTS)};\n"
                                  f"const sim_plant_row sim_plant_rows[] = {{\n{rows}}};\n")


if sys.argv[1] == "files":
    print(";".join(sources()))
else:
    make(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
