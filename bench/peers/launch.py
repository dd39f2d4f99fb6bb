#!/usr/bin/env python3
"""Starts a command N times with torchrun's environment: launch.py N COMMAND... (Debian's torchrun 1.13 does not start
under Python 3.11). Exit code: the first non-zero one."""
import os
import socket
import subprocess
import sys


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def launch(world, command, env=None, **popen):
    """Runs `command` as ranks 0..world-1; returns (exit code, what rank 0 printed)."""
    base = dict(env if env is not None else os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()),
                WORLD_SIZE=str(world), LOCAL_WORLD_SIZE=str(world))
    base.setdefault("OMP_NUM_THREADS", "1")
    ranks = [subprocess.Popen(command, env=dict(base, RANK=str(r), LOCAL_RANK=str(r)),
                              stdout=subprocess.PIPE if r == 0 else subprocess.DEVNULL, text=True, **popen)
             for r in range(world)]
    printed = ranks[0].communicate()[0]
    codes = [r.wait() for r in ranks]
    return next((code for code in codes if code), 0), printed


if __name__ == "__main__":
    if len(sys.argv) < 3 or not sys.argv[1].isdigit():
        sys.exit(__doc__)
    exit_code, text = launch(int(sys.argv[1]), sys.argv[2:])
    print(text, end="")
    sys.exit(exit_code)
