"""What the processes of a job do that is late: whether they wait for a CPU, which only a busy machine makes them do for
long, or for each other."""
import collections
import os
import pathlib


def descendants(pid):
    """`pid`, and the processes below it."""
    found = [pid]
    for path in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [each for child in path.read_text(encoding="ascii").split() for each in descendants(int(child))]
        except OSError:  # the thread has ended
            pass
    return found


def what_it_does(pid):
    """One process's line: how long its threads have run and waited for a CPU, and where in the kernel they are."""
    ran = waited = 0
    places = collections.Counter()
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*"):
        try:
            times = (task / "schedstat").read_text(encoding="ascii").split()
            ran, waited = ran + int(times[0]), waited + int(times[1])
            state = (task / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
            places[f"{state} {(task / 'wchan').read_text(encoding='ascii')}"] += 1
        except (OSError, IndexError):  # the thread has ended, or the kernel doesn't tell
            pass
    where = ", ".join(f"{count} in {place}" for place, count in places.most_common())
    return f"process {pid} ran for {ran / 1e9:.1f} s and waited {waited / 1e9:.1f} s for a CPU; threads: {where}"


def what_they_do(pid):
    return "\n".join(what_it_does(each) for each in descendants(pid) if os.path.exists(f"/proc/{each}"))


def waited_for_cpu(pid):
    """For how many seconds the threads of a job have waited for a CPU altogether."""
    waited = 0
    for path in (path for each in descendants(pid) for path in pathlib.Path(f"/proc/{each}/task").glob("*/schedstat")):
        try:
            waited += int(path.read_text(encoding="ascii").split()[1])
        except (OSError, IndexError):
            pass
    return waited / 1e9
