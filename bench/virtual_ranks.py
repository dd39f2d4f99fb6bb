#!/usr/bin/env python3
"""Virtual ranks: the SHA-256 of trained parameters over numbers of ranks, transports, back ends, bucket caps and
resumes, and what they cost. An MLP (784-512-10), MNIST's convolutional net with batch norm and dropout, and a GPT of 4
blocks of width 256, two epochs each, as 24 virtual ranks.

  bench/virtual_ranks.py [--build BUILD] [--models mlp,convnet,gpt] [--steps N]

Exit code 1: hashes differ, or a kill left no checkpoint. Costs are medians of N steps (200; of gpt a tenth) with and
without virtual ranks that take turns in the same processes, on the same examples: without, a rank's shards are one
batch."""
import argparse
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Digits, or texts of 64 tokens; a shard's batch. The last batch of an epoch is smaller.
SIZES = {"mlp": (4800 + 24, 8), "convnet": (1200 + 24, 4), "gpt": (216, 2)}
TRANSPORTS = {"shm": {}, "tcp": {"TT_TRANSPORT": "tcp"}}


def launch(build, ranks, *arguments, **variables):
    environment = dict(os.environ, OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1",
                       OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", **variables)
    return subprocess.run([build / "bin" / "tutti", "run", "--standalone", f"--nproc-per-node={ranks}",
                           build / "tests" / "dist" / "virtual_train", "real=1", *arguments],
                          env=environment, capture_output=True, text=True, check=False)


def train(build, ranks, *arguments, **variables):
    done = launch(build, ranks, *arguments, "save=trained", **variables)
    if done.returncode:
        sys.exit(f"{ranks} ranks, {arguments}, {variables}:\n{done.stdout}{done.stderr}")
    return hashlib.sha256(pathlib.Path("trained").read_bytes()).hexdigest()


def resume(build, before, after, *arguments):
    """Kill one of `before` ranks in the middle of the second epoch, and go on on `after`."""
    pathlib.Path("checkpoint").unlink(missing_ok=True)
    done = launch(build, before, *arguments, "checkpoint=checkpoint", "every=1", "die=8")
    if not done.returncode or not pathlib.Path("checkpoint").exists():
        sys.exit(f"{before} ranks were to end without success, and leave a checkpoint:\n{done.stderr}")
    return train(build, after, *arguments, "resume=checkpoint")


def runs(build, arguments):
    """Each run's name, and its hash."""
    for ranks in [1, 2, 3, 4, 6, 8]:
        for name, variables in TRANSPORTS.items():
            if ranks > 1 or name == "shm":
                yield f"{ranks} ranks, {name}", train(build, ranks, *arguments, **variables)
        for mpi in ["mpi-openmpi", "mpi-mpich"]:
            if ranks > 1 and (build / "lib" / "tutti" / f"libtutti-backend-{mpi}.so").exists():
                yield f"{ranks} ranks, {mpi}", train(build, ranks, *arguments, "backend=" + mpi)
                break
        else:
            if ranks > 1:
                yield f"{ranks} ranks, mpi", "left out: no back end mpi was built"
    yield "4 ranks, bucket cap 64 KiB", train(build, 4, *arguments, "cap=65536")
    for before, after in [(2, 3), (4, 1), (3, 8)]:
        yield f"killed on {before} ranks, resumed on {after}", resume(build, before, after, *arguments)


def costs(build, model, steps):
    for ranks, shards in [(2, 2), (2, 4)]:
        done = launch(build, ranks, "model=" + model, f"virtual={shards}", "batch=16", "examples=512", f"cost={steps}")
        if done.returncode:
            sys.exit(done.stderr)
        yield f"{model}: V = {shards} on {ranks} ranks, 16 examples a shard: {done.stdout.strip()}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=ROOT / "build", type=pathlib.Path)
    parser.add_argument("--models", default="mlp,convnet,gpt")
    parser.add_argument("--steps", default=200, type=int)
    chosen = parser.parse_args()
    build, good = chosen.build.resolve(), True
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for model in chosen.models.split(","):
            examples, batch = SIZES[model]
            first = None
            for name, result in runs(build, ["model=" + model, f"examples={examples}", f"batch={batch}"]):
                print(f"{model:8} {name:34} {result}", flush=True)
                first = first or result
                good = good and (result == first or result.startswith("left out"))
        for model in chosen.models.split(","):
            for line in costs(build, model, chosen.steps if model != "gpt" else max(chosen.steps // 10, 1)):
                print(line, flush=True)
        os.chdir("/")
    print("the same bits" if good else "THE BITS DIFFER")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
