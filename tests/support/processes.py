"""Processes as /proc has them."""
import collections
import contextlib
import pathlib


def processes_below(pid):
    """The ids of a process's descendants."""
    children = collections.defaultdict(list)
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            text = stat.read_text(encoding="ascii", errors="replace")
            children[int(text.rsplit(")", 1)[1].split()[1])].append(int(text.split(" ", 1)[0]))
    found = [pid]
    for one in found:
        found += children[one]
    return found[1:]
