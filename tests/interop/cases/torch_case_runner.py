"""Runs cases of PyTorch's own tests, each in a process of its own, which is forked from this one: that has imported
everything. Ranks fork from the case's process. For torch_c10d_runner.py and torch_rpc_runner.py."""
import collections
import json
import os
import pathlib
import shutil
import signal
import sys
import tempfile
import time
import unittest

JOBS = 2


def fork_ranks(case):
    """In place of MultiProcessTestCase._spawn_processes(): spawned ones would import all once more."""
    import torch
    case._start_processes(torch.multiprocessing.get_context("fork").Process)


def play(case, folder, log):
    """In the case's own process: run it, and leave what came of it in the folder."""
    os.setsid()
    for stream in (1, 2):
        os.dup2(log, stream)
    os.environ["TEMP_DIR"] = str(folder)
    for name in ("barrier", "test_dir", "init_dir"):
        (folder / name).mkdir()
    tempfile.tempdir = str(folder)
    result = unittest.TestResult()
    unittest.TestSuite([case]).run(result)
    wrong = [text for _, text in result.errors + result.failures]
    outcome = "fails" if wrong or result.unexpectedSuccesses else "is skipped" if result.skipped else "passes"
    (folder / "outcome").write_text(json.dumps([outcome, "\n".join(wrong)[-3000:]]))
    sys.stdout.flush()
    os._exit(0)


class Running:
    def __init__(self, case, limit, scratch):
        self.limit = limit
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=scratch))
        self.began = time.monotonic()
        self.log = os.open(self.folder / "log", os.O_RDWR | os.O_CREAT, 0o600)
        self.pid = os.fork()
        if self.pid == 0:
            play(case, self.folder, self.log)

    def ended(self):
        """What came of it; None: it runs."""
        late = time.monotonic() - self.began > self.limit
        if os.waitpid(self.pid, 0 if late and not os.killpg(self.pid, signal.SIGKILL) else os.WNOHANG) == (0, 0):
            return None
        try:
            os.killpg(self.pid, signal.SIGKILL)  # ranks that it has left
        except ProcessLookupError:
            pass
        said = self.folder / "outcome"
        outcome, text = json.loads(said.read_text()) if said.exists() else ["fails", ""]
        if outcome == "fails":
            text = (f"ended after {self.limit} s\n" if late else "") + text + self.said()
        os.close(self.log)
        shutil.rmtree(self.folder, ignore_errors=True)
        return [outcome, text]

    def said(self):
        size = os.fstat(self.log).st_size
        return os.pread(self.log, 6000, max(0, size - 6000)).decode(errors="replace")


def run(name, cases, out, limit, scratch):
    """Run `cases` (name -> case), each for at most `limit` seconds, and write what came of them to the file `out` as
    JSON: name -> [outcome, the end of what it said]."""
    outcomes, running, waiting = {}, {}, list(cases)
    while waiting or running:
        while waiting and len(running) < JOBS:
            case = waiting.pop(0)
            running[case] = Running(cases[case], limit, scratch)
        time.sleep(0.02)
        for case in list(running):
            outcome = running[case].ended()
            if outcome:
                outcomes[case] = outcome
                print(f"{time.monotonic() - running.pop(case).began:6.1f} s  {case} {outcome[0]}", flush=True)
    pathlib.Path(out).write_text(json.dumps(outcomes, indent=1))
    print(name, collections.Counter(outcome for outcome, _ in outcomes.values()))
