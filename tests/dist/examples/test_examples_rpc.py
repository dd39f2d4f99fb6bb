"""The examples of RPC, as their users run them: they learn, with the same losses each time, on two to four workers;
mistakes are told by the worker that made them, and the others end."""
import os
import re
import subprocess
import tempfile

import example_runs
from example_runs import TUTTI, fail, run

# NAME: ranks, lines, by how much the last loss is smaller than the first (None: the loss says nothing)
EXAMPLES = {
    "rpc_parameter_server": (3, 40, 0.5),
    "rpc_batch_server": (4, 60, 0.8),
    "rpc_reinforce": (3, 20, None),
    "rpc_rnn": (2, 40, 0.5),
    "rpc_pipeline": (3, 20, 0.5),
}


def losses(out):
    return {what: float(loss) for what, loss in re.findall(r"^(.*): .*\bloss (-?[\d.]+)$", out, re.M)}


def learns(name):
    ranks, lines, falls = EXAMPLES[name]
    first, second = losses(run(name, ranks)), losses(run(name, ranks))
    if len(first) != lines or first.keys() != second.keys():
        fail(f"{name}: expected {lines} losses, got {first} and {second}")
    if any(abs(first[what] - second[what]) > 2e-5 for what in first):
        fail(f"{name}: two runs differ: {first}, {second}")
    by_batch = [loss for _, loss in sorted(first.items(), key=lambda found: int(found[0].split()[-1]))]
    if falls is not None and by_batch[0] - by_batch[-1] < falls:
        fail(f"{name}: expected the loss to fall by {falls}: {by_batch}")


def fails(name, ranks, text, *flags):
    """One worker's own error ends the job."""
    told = run(name, ranks, *flags, code=1)
    if text not in told:
        fail(f"{name} on {ranks} ranks {flags}: expected \"{text}\", got: {told}")


def tells_mistakes():
    fails("rpc_pipeline", 2, "expected 3 ranks, got 2: tutti run --nproc-per-node=3 rpc_pipeline")
    fails("rpc_pipeline", 3, "--splits: expected at most 64, which divide --batch-size 64, got 3", "--splits", "3")
    fails("rpc_parameter_server", 3, "in nowhere", "--data", "nowhere")
    fails("rpc_batch_server", 3, "trainer1 (id 1), train(): --batch-size: a trainer has fewer digits",
          "--batch-size", "2000")
    fails("rpc_rnn", 2, "a text of 4 characters is too short", "--data", "text")
    for name in EXAMPLES:
        least = 3 if name == "rpc_pipeline" else 2
        example_runs.tells_mistakes(name, [], [
            (["--nonsense", "1"], 2, "unknown flag --nonsense"),
            ([], 1, f"got 1: tutti run --nproc-per-node={least} {name}"),
        ])
        if "--help" not in run(name, 1, "--help"):
            fail(f"{name}: expected its usage")


def reads_files():
    subprocess.run([TUTTI, "data", "digits", "digits", "--train=64", "--test=64"], check=True, capture_output=True)
    if len(losses(run("rpc_parameter_server", 2, "--data", "digits", "--batches", "3"))) != 3:
        fail("expected three losses of a trainer that has two batches an epoch")


def main():
    with tempfile.TemporaryDirectory(prefix="tutti-rpc-") as folder:
        os.chdir(folder)
        with open("text", "w", encoding="ascii") as file:
            file.write("abcd")
        for name in EXAMPLES:
            learns(name)
        tells_mistakes()
        reads_files()


if __name__ == "__main__":
    main()
