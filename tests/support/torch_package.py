"""The package tutti_torch (bindings/torch), built for the PyTorch that runs a test, and programs whose ranks use it.
To be imported by tests of it, in place of torch: skips (77) where that is not installed."""
import contextlib
import fcntl
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

try:
    import late_job
    import torch
    from patience import DEADLINE
except ImportError as missing:
    print("skipped: cannot import torch:", missing)
    sys.exit(77)

BUILD = pathlib.Path(os.environ["TT_BUILD"])
VERSION = tuple(map(int, torch.__version__.split(".")[:2]))
PACKAGE = BUILD / "bindings" / f"torch-{VERSION[0]}.{VERSION[1]}"


@contextlib.contextmanager
def one_at_a_time():
    """Tests that run side by side need the same package."""
    PACKAGE.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{PACKAGE}.lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build():
    """Returns why it can't be built for lack of headers; None: it is built."""
    found = subprocess.run([sys.executable, "-I", ROOT / "bindings/torch/find_torch.py"], capture_output=True,
                           text=True, check=False)
    if found.returncode:
        return found.stderr.strip()
    if not os.access(BUILD, os.W_OK):  # another user's
        return None if any(PACKAGE.glob("tutti_torch/_C*.so")) else f"this user can't build the bindings in {BUILD}"
    configure = ["cmake", "-S", ROOT / "bindings/torch", "-B", PACKAGE, "-G", "Ninja", f"-DTUTTI_BUILD={BUILD}",
                 f"-DPython_EXECUTABLE={sys.executable}",
                 "-DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -DNDEBUG"]  # compiles in much less time
    with one_at_a_time():
        for command in (configure, ["cmake", "--build", PACKAGE, "-j2"]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(f"{command}: {done.stdout}{done.stderr}")
    return None


def environment(**more):
    """What a process that uses the package is started with."""
    path = f"{PACKAGE}:{pathlib.Path(__file__).parent}"
    return dict(os.environ, PYTHONPATH=path, OMP_NUM_THREADS="1", **more)


def start(world, program, *arguments, **more):
    """Start `program` on `world` ranks of `tutti run`; `more` joins their environment."""
    return subprocess.Popen([os.environ["TUTTI"], "run", "--standalone", f"--nproc-per-node={world}", sys.executable,
                             str(program), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=environment(**more))


def finish(job, count_ended=lambda: 0):
    """Wait for a job. It is late when DEADLINE has passed, no case has ended meanwhile (`count_ended`), and it is not
    the machine that is busy."""
    ended, starved = count_ended(), 0
    with job:
        while True:
            try:
                out, err = job.communicate(timeout=DEADLINE)
                return subprocess.CompletedProcess(job.args, job.returncode, out, err)
            except subprocess.TimeoutExpired as late:
                before, ended = (ended, starved), count_ended()
                starved = late_job.waited_for_cpu(job.pid)
                if ended == before[0] and starved - before[1] < DEADLINE / 4:
                    doing = late_job.what_they_do(job.pid)
                    job.kill()
                    raise AssertionError(f"{late}\n{doing}") from late


def launch(world, program, *arguments, **more):
    """Run `program` on `world` ranks of `tutti run`; `more` joins their environment."""
    return finish(start(world, program, *arguments, **more))


def said_so_far(folder, cases):
    """What the ranks said in the case that had not ended, for a job that did not end in time."""
    paths = sorted(pathlib.Path(folder).glob("*.*.err")) + sorted(pathlib.Path(folder).glob("*.*.out"))
    last = max((int(path.name.split(".")[0]) for path in paths), default=0)
    said = "".join(f"-- {path.name}\n{path.read_text(encoding='utf-8', errors='replace')[-4000:]}" for path in paths
                   if path.name.startswith(f"{last}."))
    return f"the last case that began: {cases[last]}\n{said}"


def launch_cases(world, program, cases):
    """Run all in one job of `world` ranks (one_job.py). `cases`: {case: (function, environment)}. Returns for each what
    launch() does, and -1 as the exit code where ranks have ended with different ones."""
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "cases").write_text(json.dumps(list(cases.values())), encoding="ascii")
        try:
            done = finish(start(world, program, f"@{folder}"), lambda: len(list(pathlib.Path(folder).glob("*.code"))))
        except AssertionError as late:
            raise AssertionError(f"{late}\n{said_so_far(folder, list(cases))}") from late
        if done.returncode:
            raise AssertionError(done.stdout + done.stderr)
        said = {}
        for number, case in enumerate(cases):
            codes, out, err = ([pathlib.Path(folder, f"{number}.{rank}.{kind}").read_text(encoding="utf-8")
                                for rank in range(world)] for kind in ("code", "out", "err"))
            code = int(codes[0]) if len(set(codes)) == 1 else -1
            said[case] = subprocess.CompletedProcess(case, code, "".join(out), "".join(err))
        return said


def main():
    """Build the package and run the tests of the program that calls this, or skip them."""
    if "TT_SANITIZED" in os.environ:
        print("skipped: Python does not load a sanitizer's runtime before the library that needs it")
        sys.exit(77)
    lacking = build()
    if lacking:
        print("skipped:", lacking)
        sys.exit(77)
    unittest.main(verbosity=1)
