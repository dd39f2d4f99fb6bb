"""mnist_convnet, as its users run it: it learns, on one rank and two; what it logs can be plotted; a run that is ended
in the middle of an epoch by a signal goes on to the very same bits; mistakes are one line."""
import csv
import os
import re
import signal
import subprocess
import sys
import tempfile

TUTTI, BUILD = os.environ["TUTTI"], os.environ["TT_BUILD"]
CONVNET = os.path.join(BUILD, "examples", "mnist_convnet")
PATIENCE = 0.9 * float(os.environ["TT_TIMEOUT"])
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1")
FEW = ["--data", "few", "--batch-size", "32"]


def fail(text):
    sys.exit("FAILED: " + text)


def command(ranks, *flags):
    return ([TUTTI, "run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []) + [CONVNET, *flags]


def train(ranks, *flags, code=0):
    done = subprocess.run(command(ranks, *flags), env=ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode != code:
        fail(f"{flags}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout if code == 0 else done.stderr


def read(path):
    with open(path, "rb") as file:
        return file.read()


def learns():
    out = train(2, "--data", "some", "--epochs", "2", "--batch-size", "32", "--metrics", "runs/two")
    line = r"^Epoch (\d), loss [\d.]+, accuracy [\d.]+ %, held-out loss [\d.]+, held-out accuracy ([\d.]+) %, \d+ sampl"
    epochs = re.findall(line, out, re.M)
    if [epoch for epoch, _ in epochs] != ["1", "2"] or "2 ranks" not in out:
        fail(f"expected a line for each of two epochs:\n{out}")
    if "TT_SANITIZED" not in os.environ and float(epochs[-1][1]) < 60:
        fail(f"expected at least 60 % of held-out digits:\n{out}")
    with open("runs/two/scalars.csv", newline="") as file:
        tags = {row["tag"] for row in csv.DictReader(file)}
    if not {"eval/loss", "eval/accuracy", "epoch"} <= tags:
        fail(f"expected curves of the evaluation, got {tags}")


def a_signal_in_the_middle():
    flags = [*FEW, "--epochs", "3", "--seed", "7", "--save-every", "1", "--checkpoint"]
    train(1, *flags, "whole")
    started = subprocess.Popen(command(1, *flags, "part"), env=ENVIRONMENT, stdout=subprocess.PIPE,
                               text=True)
    while not started.stdout.readline().startswith("Epoch 1, loss"):
        if started.poll() is not None:
            fail("it ended before its first epoch did")
    started.send_signal(signal.SIGTERM)  # somewhere in the second epoch: any place will do
    out = started.stdout.read()
    if started.wait(PATIENCE) != 0:
        fail(f"expected a good end after SIGTERM: {out}")
    # The seed is the checkpoint's.
    train(1, *FEW, "--epochs", "3", "--resume", "part", "--checkpoint", "part")
    if read("part") != read("whole"):
        fail(f"a run that was ended and resumed has other bits: {out}")


def write_idx(path, *shape):
    """A file without elements."""
    with open(path, "wb") as file:
        file.write(bytes([0, 0, 8, len(shape)]) + b"".join(size.to_bytes(4, "big") for size in shape))


def tells_mistakes():
    write_idx("none", 0, 28, 28)
    write_idx("unlabelled", 0)
    for flags, code, text in [(["--gamma"], 2, "a value is missing after --gamma"),
                              (["--momentum", "1"], 2, "unknown flag --momentum"),
                              (["--epochs", "0"], 2, "mnist_convnet: --epochs"),
                              (["--metrics", "few/train-labels-idx1-ubyte", *FEW], 1, "few/train-labels-idx1-ubyte"),
                              (["--resume", "missing", *FEW], 1, "missing"),
                              (["--images", "none", "--labels", "unlabelled"], 1, "none: it has no images"),
                              (["--images", "few/train-images-idx3-ubyte", "--labels", "few/train-labels-idx1-ubyte",
                                "--holdout", "200"], 1, "--holdout 200 leaves none of the 200 examples")]:
        told = train(1, *flags, code=code)
        if text not in told or len(told.splitlines()) != 1:
            fail(f"{flags}: expected one line with \"{text}\", got: {told}")
    if "--gamma" not in train(1, "--help"):
        fail("--help says nothing of --gamma")


def main():
    with tempfile.TemporaryDirectory(prefix="tutti-convnet-") as folder:
        os.chdir(folder)
        for name, examples in [("few", 200), ("some", 900)]:
            subprocess.run([TUTTI, "data", "digits", name, f"--train={examples}", "--test=50"], check=True,
                           capture_output=True)
        learns()
        a_signal_in_the_middle()
        tells_mistakes()


if __name__ == "__main__":
    main()
