"""resnet_cifar, as its users run it: no, one and several workers give the same bits; a run that is ended in the middle
of an epoch goes on to the bits of one that never stopped; it reads CIFAR-10's files on two ranks; mistakes are one
line."""
import csv
import json
import os
import re
import struct
import subprocess
import sys
import tempfile

TUTTI, BUILD = os.environ["TUTTI"], os.environ["TT_BUILD"]
RESNET = os.path.join(BUILD, "examples", "resnet_cifar")
PATIENCE = 0.9 * float(os.environ["TT_TIMEOUT"])
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1")
FEW = ["--train-size", "16", "--test-size", "4", "--batch-size", "4", "--epochs", "1", "--schedule", "onecycle"]


def fail(text):
    sys.exit("FAILED: " + text)


def train(ranks, *flags, code=0):
    launcher = [TUTTI, "run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
    done = subprocess.run([*launcher, RESNET, *flags], env=ENVIRONMENT, capture_output=True, text=True,
                          timeout=PATIENCE)
    if done.returncode != code:
        fail(f"{flags}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout if code == 0 else done.stderr


def tensors(path):
    """The header without its metadata, which counts evaluations, and the bytes of all tensors."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        header.pop("__metadata__")
        return header, file.read()


def the_same_bits():
    out = train(1, *FEW, "--workers", "0", "--checkpoint", "none")
    if not re.search(r"^Epoch 1, .* samples/s, waited [\d.]+ % for data$", out, re.M):
        fail(f"expected how long the loader was waited for:\n{out}")
    train(1, *FEW, "--workers", "4", "--checkpoint", "four")
    if tensors("none") != tensors("four"):
        fail("4 workers give other bits than none")
    train(1, *FEW, "--workers", "1", "--max-steps", "2", "--checkpoint", "part")
    if tensors("part")[0].keys() - tensors("four")[0].keys() or "loader.position" not in tensors("part")[0]:
        fail("expected a checkpoint with the loader's state")
    out = train(1, *FEW, "--workers", "4", "--resume", "part", "--checkpoint", "part")
    if "Resumed" not in out or tensors("part") != tensors("four"):
        fail(f"a run that was ended and resumed has other bits:\n{out}")


def write_cifar(folder, images):
    """Files as CIFAR-10's binary version has them, of a few images: a label, then 3072 pixels."""
    os.mkdir(folder)
    for name in [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]:
        with open(os.path.join(folder, name), "wb") as file:
            for image in range(images):
                file.write(bytes([image % 10]) + bytes((image * 40 + pixel) % 256 for pixel in range(3072)))


def two_ranks():
    out = train(2, *FEW, "--data", "cifar", "--save-every", "0", "--metrics", "runs/two")
    if "15 images and 3 held out, 2 ranks" not in out or "held-out accuracy" not in out:
        fail(f"expected two ranks to train on the files' images:\n{out}")
    with open("runs/two/scalars.csv", newline="") as file:
        tags = {row["tag"] for row in csv.DictReader(file)}
    if not {"eval/loss", "eval/accuracy", "epoch"} <= tags:
        fail(f"expected curves of the evaluation, got {tags}")


def tells_mistakes():
    with open("cifar/test_batch.bin", "ab") as file:
        file.write(b"more")
    for flags, code, text in [(["--gamma", "1"], 2, "unknown flag --gamma"),
                              (["--epochs"], 2, "a value is missing after --epochs"),
                              (["--workers=-1"], 2, "resnet_cifar: --workers: expected a whole number from 0"),
                              (["--schedule", "step"], 2, "expected cosine or onecycle, got step"),
                              (["--data", "nowhere"], 1, "nowhere"),
                              (["--data", "cifar"], 1, "test_batch.bin"),
                              (["--resume", "cifar/test_batch.bin"], 1, "cifar/test_batch.bin")]:
        told = train(1, *flags, code=code)
        if text not in told or len(told.splitlines()) != 1:
            fail(f"{flags}: expected one line with \"{text}\", got: {told}")
    if "--schedule" not in train(1, "--help"):
        fail("--help says nothing of --schedule")


def main():
    with tempfile.TemporaryDirectory(prefix="tutti-resnet-") as folder:
        os.chdir(folder)
        the_same_bits()
        write_cifar("cifar", 3)
        two_ranks()
        tells_mistakes()


if __name__ == "__main__":
    main()
