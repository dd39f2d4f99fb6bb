"""SIGKILL of either rank in the middle of training: the other ends within a second with an error that names the dead
rank, the launcher names it as the first failure and exits 137, and no process and no shared memory is left."""
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.environ["TT_SOURCE"], "tests", "support"))
from patience import DEADLINE, STRICT  # noqa: E402

TUTTI, BUILD = os.environ["TUTTI"], os.environ["TT_BUILD"]
TRAINER = os.path.join(BUILD, "examples", "mnist_trainer")


def fail(text):
    sys.exit("FAILED: " + text)


def read(path):
    try:
        with open(path, "rb") as f:
            return f.read()
    except OSError:
        return b""


def descendants(pid):
    """All processes below `pid`, from /proc."""
    parent = {}
    for entry in os.listdir("/proc"):
        stat = read(f"/proc/{entry}/stat") if entry.isdigit() else b""
        if stat:
            parent[int(entry)] = int(stat.rsplit(b")", 1)[1].split()[1])
    found, level = set(), {pid}
    while level:
        level = {p for p, above in parent.items() if above in level} - found
        found |= level
    return found


def workers(launcher):
    """rank -> pid of the trainers."""
    ranks = {}
    for pid in descendants(launcher):
        if os.path.basename(read(f"/proc/{pid}/cmdline").split(b"\0")[0]) == b"mnist_trainer":
            environment = dict(v.split(b"=", 1) for v in read(f"/proc/{pid}/environ").split(b"\0") if b"=" in v)
            ranks[int(environment[b"RANK"])] = pid
    return ranks


def alive(pid):
    state = read(f"/proc/{pid}/stat")
    return bool(state) and state.rsplit(b")", 1)[1].split()[0] not in (b"Z", b"X")


class Lines:
    """Reads a stream in a thread, noting when each line came."""

    def __init__(self, stream):
        self.lines, self.more = [], threading.Condition()
        self.thread = threading.Thread(target=self.run, args=(stream,), daemon=True)
        self.thread.start()

    def run(self, stream):
        for line in stream:
            with self.more:
                self.lines.append((time.monotonic(), line))
                self.more.notify_all()

    def wait_for(self, text):
        with self.more:
            if not self.more.wait_for(lambda: any(text in line for _, line in self.lines), DEADLINE):
                fail(f"no line with {text!r} came, but {self.lines}")
            return next((when, line) for when, line in self.lines if text in line)


def kill_rank(victim):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([TUTTI, "data", "digits", "small", "--train", "1000", "--test", "100"], cwd=folder, check=True,
                       stdout=subprocess.DEVNULL, timeout=DEADLINE)
        launcher = subprocess.Popen(
            [TUTTI, "run", "--standalone", "--nproc-per-node=2", "--settle-period=30", TRAINER, "--data", "small",
             "--epochs", "1000000", "--save-every", "0"],
            cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        out, err = Lines(launcher.stdout), Lines(launcher.stderr)
        out.wait_for("Epoch 1,")  # it is training
        ranks, family = workers(launcher.pid), descendants(launcher.pid)
        if set(ranks) != {0, 1}:
            fail(f"expected two workers, found {ranks}")
        if any(b"/dev/shm/" in read(f"/proc/{pid}/maps") for pid in ranks.values()):
            fail("memory is shared by a name, which would be left")
        killed = time.monotonic()
        os.kill(ranks[victim], signal.SIGKILL)
        when, line = err.wait_for("TT_ERR_PEER")
        if f"rank {1 - victim}: TT_ERR_PEER" not in line or f"rank {victim} " not in line:
            fail(f"expected an error of rank {1 - victim} that names rank {victim}, got: {line}")
        if when - killed > (1 if STRICT else DEADLINE):
            fail(f"the survivor knew after {when - killed:.2f} s")
        code = launcher.wait(DEADLINE)
        err.thread.join(DEADLINE)
        report = "".join(line for _, line in err.lines)
        if code != 137:
            fail(f"exit code {code}, expected 137\n{report}")
        if f"rank {victim} failed first: killed by SIGKILL" not in report:
            fail(f"the report does not name rank {victim} as the first failure:\n{report}")
        left = [pid for pid in family if alive(pid)]
        if left:
            fail(f"processes are left: {left}")
        print(f"rank {victim} killed: rank {1 - victim} said so after {(when - killed) * 1000:.0f} ms")


kill_rank(0)
kill_rank(1)
