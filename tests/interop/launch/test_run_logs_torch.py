"""tutti run writes what the current torchrun writes, where it writes it: both run the same program with the same flags,
and their output, their files and what these hold are compared. Also error files: PyTorch's @record writes what our
report reads, and PyTorch reads what our library writes."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest

TUTTI = os.environ["TUTTI"]
PYTHON = os.path.join(os.environ["TT_SOURCE"], "build", "peers", "torch", "bin", "python3")
TIMEOUT = 0.3 * float(os.environ["TT_TIMEOUT"])

TALKER = """
import os, sys
for stream, name in ((1, "out"), (2, "err")):
    for i in range(200):
        os.write(stream, f"{name} {os.environ['RANK']} line {i}\\n".encode())
    if "BAR" in os.environ:
        os.write(stream, b"a bar 10%\\ra bar 20%\\r\\n\\n")
    os.write(stream, b"an apple, please\\n")
    os.write(stream, b"no end" if "BAR" in os.environ else b"")
"""


def environment(**more):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("TORCHELASTIC", "PET_"))}
    return dict(env, PYTHON_EXEC=PYTHON, OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore", **more)


def launch(launcher, *args, **more):
    return subprocess.run([*launcher, *args], env=environment(**more), stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=TIMEOUT)


OURS, THEIRS = [TUTTI, "run"], [PYTHON, "-m", "torch.distributed.run"]


def files_of(folder):
    """What is in a folder of logs: contents by path below the run's folder."""
    found = {}
    (run,) = os.listdir(folder)
    for place, _, names in os.walk(os.path.join(folder, run)):
        for name in names:
            path = os.path.join(place, name)
            with open(path, errors="replace") as file:
                found[os.path.relpath(path, os.path.join(folder, run))] = file.read()
    return run, found


def lines_of(text):
    """Lines, in no order across ranks; torchrun leaves out the end of a last line that has none, we do not."""
    own = [line for line in re.split(r"\n|(?<=no end)(?=\[)", text) if not line.startswith(("tutti run:", "W1", "*"))]
    return sorted(line for line in own if line)


class Logs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.program = os.path.join(cls.folder.name, "talker.py")
        with open(cls.program, "w") as file:
            file.write(TALKER)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def compare(self, *flags, **more):
        """Run both; the same lines, the same files, the same in them."""
        said = []
        for launcher in (OURS, THEIRS):
            logs = tempfile.mkdtemp(dir=self.folder.name)
            result = launch(launcher, "--nproc-per-node=3", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0",
                            "--rdzv-id=mine", f"--log-dir={logs}", *flags, self.program, **more)
            self.assertEqual(result.returncode, 0, result.stderr)
            run, files = files_of(logs)
            self.assertRegex(run, "^mine_[A-Za-z0-9_]+$")
            said.append((lines_of(result.stdout), lines_of(result.stderr),
                         {name: lines_of(text) if "filtered" in name else text for name, text in files.items()}))
        self.maxDiff = None
        for ours, theirs in zip(*said):
            self.assertEqual(ours, theirs)
        return said[0]

    def test_redirects(self):
        self.compare("-r", "3")
        self.compare("--redirects=0:1,2:3")

    def test_tee(self):
        out, err, files = self.compare("-t", "3", BAR="1")
        self.assertIn("[default2]:out 2 line 199", out)
        self.assertIn("[default1]:no end", err)
        self.assertEqual(sorted(files), [f"attempt_0/{i}/{s}.log" for i in range(3) for s in ("stderr", "stdout")])
        self.compare("--tee", "1:2,2:1", "--redirects", "0:3")

    def test_filters(self):
        self.compare("--tee=3", "--local-ranks-filter=1,2", "--duplicate-stdout-filters=apple,,line 19",
                     "--duplicate_stderr_filters", "apple,,, please")
        self.compare("--tee=1", "--local_ranks_filter=0")
        self.compare("--tee=3", "--duplicate-stdout-filters", "apple,line 19")

    def test_prefix(self):
        self.compare("--tee=3", "--log-line-prefix-template",
                     "$hostname:${rank}/${local_rank}${nothing}$$ ${role_name} ", "--role=trainer")
        self.compare("--tee=1", TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE="<${rank}> ")


RECORDED = """
import os, sys, time
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    if os.environ["RANK"] == "1":
        raise ValueError("rank one has had enough")
try:
    main()
finally:
    # Rank 1 fails first, but ends only after rank 0, which sees nothing better to do than to fail, too.
    if os.environ["RANK"] == "1":
        while not os.path.exists(sys.argv[1]):
            time.sleep(0.01)
while os.environ["RANK"] == "0":
    path = os.environ["TORCHELASTIC_ERROR_FILE"].replace("/0/error", "/1/error")
    if os.path.exists(path) and time.time() > os.stat(path).st_mtime + 2:
        os.close(os.open(sys.argv[1], os.O_CREAT))
        os._exit(5)
    time.sleep(0.01)
"""

# What ChildFailedError makes of our library's error file.
READER = """
import sys
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure
failure = ProcessFailure(local_rank=0, pid=1, exitcode=1, error_file=sys.argv[1])
print(failure.timestamp)
print(ChildFailedError("trainer", {0: failure}))
"""


class Errors(unittest.TestCase):
    def test_record(self):
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(folder, "fails.py")
            with open(script, "w") as file:
                file.write(RECORDED)
            result = launch(OURS, "--nproc-per-node=2", f"--log-dir={folder}/logs", "--redirects=3",
                            "--settle-period=60", script, os.path.join(folder, "end"))
            self.assertEqual(result.returncode, 1, result.stderr)
            self.assertIn("tutti run: rank 1 failed first: exit code 1", result.stderr)
            self.assertIn("ValueError: rank one has had enough", result.stderr)
            self.assertIn('raise ValueError("rank one has had enough")', result.stderr)

    def test_ours_is_read(self):
        with tempfile.TemporaryDirectory() as folder:
            before = int(time.time())
            result = launch(OURS, f"--log-dir={folder}/logs", os.path.join(os.environ["TT_PROGRAMS"], "report_error"))
            self.assertEqual(result.returncode, 3, result.stderr)
            _, files = files_of(os.path.join(folder, "logs"))
            (name,) = [name for name in files if name.endswith("0/error.json")]
            path = os.path.join(folder, "copy.json")
            with open(path, "w") as file:
                file.write(files[name])
            message = json.loads(files[name])["message"]["message"]
            self.assertIn("-1", message)
            said = subprocess.run([PYTHON, "-c", READER, path], capture_output=True, text=True, timeout=TIMEOUT)
            self.assertEqual(said.returncode, 0, said.stderr)
            self.assertGreaterEqual(int(said.stdout.split()[0]), before)
            self.assertIn(message, said.stdout)


if __name__ == "__main__":
    if not os.access(PYTHON, os.X_OK):
        print("skipped: ./dev setup --torch fetches PyTorch")
        sys.exit(77)
    unittest.main()
