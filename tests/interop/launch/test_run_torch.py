"""tutti run starts PyTorch's DDP scripts: gloo meets through the store that the launcher serves; an exception of rank 1
is in the report."""

import os
import subprocess
import sys
import tempfile

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_ddp.py")

# DistributedSampler(16 elements, shuffle, seed 0) on two ranks, batches of 4, what all_gather shows: rank 0's four,
# then rank 1's.
EXPECTED = [
    [120, 90, 110, 130, 100, 60, 80, 50],
    [20, 150, 40, 70, 140, 0, 30, 10],
    [50, 60, 110, 70, 150, 40, 20, 120],
    [10, 90, 100, 130, 0, 80, 30, 140],
]


def launch(*args, flags=("--standalone",)):
    env = dict(os.environ, PYTHON_EXEC=sys.executable, OMP_NUM_THREADS="1")
    command = [os.environ["TUTTI"], "run", "--nproc-per-node=2", *flags, SCRIPT, *args]
    return subprocess.run(command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=0.9 * float(os.environ["TT_TIMEOUT"]))


def check(condition, what, result):
    if not condition:
        sys.exit(f"{what}\nexit code {result.returncode}\nstdout:\n{result.stdout}\nstderr:\n{result.stderr}")


def test_training():
    with tempfile.TemporaryDirectory() as folder:
        result = launch("train", folder)
    check(result.returncode == 0, "the DDP loop failed", result)
    for rank in range(2):
        check(f"rank {rank} of 2 saw {EXPECTED}" in result.stdout, f"rank {rank} saw something else", result)


def test_what_people_paste():
    flags = ("--nnodes=1", "--node_rank=0", "--rdzv_backend=c10d", "--rdzv_endpoint=localhost:0", "--rdzv_id=5")
    with tempfile.TemporaryDirectory() as folder:
        result = launch("train", folder, flags=flags)
    check(result.returncode == 0, "the DDP loop failed with c10d flags", result)


def test_exception():
    result = launch("fail")
    check(result.returncode == 1, "expected rank 1's exit code", result)
    report = result.stderr[result.stderr.find("tutti run: rank 1 failed first: exit code 1"):]
    check(report.startswith("tutti run: rank 1"), "the report does not name rank 1", result)
    check("| ValueError: rank one has had enough\n" in report, "the report does not show the exception", result)


def test_restart():
    """The second attempt trains as the first did, with nothing of it in the store."""
    with tempfile.TemporaryDirectory() as folder:
        result = launch("fail-once", folder, flags=("--standalone", "--max-restarts=2"))
    check(result.returncode == 0, "the second attempt failed", result)
    for rank in range(2):
        check(result.stdout.count(f"rank {rank} of 2 saw {EXPECTED}") == 2, f"rank {rank} saw something else", result)
    check(result.stderr.count("starting again") == 1, "expected one restart", result)
    check("attempt 1 of 3: rank 1 (pid " in result.stderr, "the restart does not name rank 1", result)
    check("| ValueError: rank one has had enough\n" in result.stderr, "the exception is not shown", result)


def main():
    try:
        import torch.distributed  # noqa: F401
    except ImportError as error:
        print(f"skipped: PyTorch is not installed ({error})")
        sys.exit(77)
    test_training()
    test_what_people_paste()
    test_exception()
    test_restart()


main()
