"""A worker of test_torchrun_mixed.py, without PyTorch where that is not what is tested. It writes what it was told into
FOLDER, a file for each time that its rank was started, and then does as it was asked:

  sum       all-reduces over gloo
  fail WHO  the first time, when all are there, the one of WHO ("tutti", "torchrun") that has local rank 0 fails
  always WHO   as fail, each time
  world N   ends when there are N ranks; when there are others it waits for its end
  after N M   ends when there are N ranks and there have been M before
"""

import json
import os
import sys
import time

NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",
         "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT",
         "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE", "WHO")


def note(folder):
    """Which start of its rank, in a world of this size, is it?"""
    told = {name: os.environ.get(name) for name in NAMES}
    part = os.path.join(folder, f".part-{os.getpid()}")
    with open(part, "w") as file:
        json.dump(told, file)
    turn = 0
    while True:
        path = os.path.join(folder, f"world-{told['WORLD_SIZE']}-turn-{turn}-rank-{told['RANK']}")
        try:
            os.link(part, path)  # whole, when others see it
            os.unlink(part)
            return turn
        except FileExistsError:
            turn += 1


def wait_for_all(folder, turn):
    world = int(os.environ["WORLD_SIZE"])
    names = [f"world-{world}-turn-{turn}-rank-{rank}" for rank in range(world)]
    while not all(os.path.exists(os.path.join(folder, name)) for name in names):
        time.sleep(0.05)


def wait_for_end():
    """Until a signal comes or whoever started this is gone."""
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.1)


def seen(folder, world):
    return any(name.startswith(f"world-{world}-") for name in os.listdir(folder))


def all_reduce():
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo")
    value = torch.ones(1) * (dist.get_rank() + 1)
    dist.all_reduce(value)
    sys.stdout.write(f"rank {dist.get_rank()} of {dist.get_world_size()}: {int(value)}\n")
    sys.stdout.flush()
    dist.destroy_process_group()


def main():
    folder, what, *more = sys.argv[1:]
    turn = note(folder)
    if what == "sum":
        all_reduce()
    elif what in ("fail", "always"):
        wait_for_all(folder, turn)
        if turn == 0 or what == "always":
            if os.environ["WHO"] == more[0] and os.environ["LOCAL_RANK"] == "0":
                raise ValueError("not this time")
            wait_for_end()
    elif os.environ["WORLD_SIZE"] != more[0] or (what == "after" and not seen(folder, more[1])):
        wait_for_end()


main()
