"""mnist_trainer, as its users run it: what it prints, checkpoints that resume to the very same bits, mistakes told in
one line."""
import gzip
import os
import pty
import re
import struct
import subprocess
import sys
import tempfile

TUTTI, BUILD = os.environ["TUTTI"], os.environ["TT_BUILD"]
TRAINER = os.path.join(BUILD, "examples", "mnist_trainer")
TWO_RANKS = [TUTTI, "run", "--standalone", "--nproc-per-node=2"]
PATIENCE = 0.9 * float(os.environ["TT_TIMEOUT"])
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1")


def fail(text):
    sys.exit("FAILED: " + text)


def run(command, code=0):
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=PATIENCE)
    if (done.returncode == 0) != (code == 0):
        fail(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done


def train(ranks, *flags):
    return run((TWO_RANKS if ranks == 2 else []) + [TRAINER, *flags]).stdout


def read(path):
    with open(path, "rb") as f:
        return f.read()


def prints_what_it_should():
    # A sanitizer sees as much in a thirtieth of the digits, which are too few to learn from.
    few = "TT_SANITIZED" in os.environ
    out = train(2, "--lr", "0.1", "--epochs", "3", *(["--data", "small"] if few else []))
    saved = re.findall(r"^Epoch (\d+), checkpoint saved at (.*)$", out, re.M)
    if saved != [("2", "checkpoint.safetensors"), ("3", "checkpoint.safetensors")]:
        fail(f"expected checkpoints after epochs 2 and 3, each said once:\n{out}")
    line = (r"^Epoch (\d+), loss [\d.]+, accuracy [\d.]+ %, held-out loss [\d.]+, held-out accuracy ([\d.]+) %, "
            r"\d+ samples/s$")
    epochs = re.findall(line, out, re.M)
    if [e for e, _ in epochs] != ["1", "2", "3"] or len(out.splitlines()) != 6:
        fail(f"expected a first line, and one line an epoch:\n{out}")
    if float(epochs[-1][1]) < (30 if few else 95):
        fail(f"expected at least {30 if few else 95} % of held-out digits:\n{out}")


def resumes_to_the_same_bits():
    half, whole = ("1", "2") if "TT_SANITIZED" in os.environ else ("2", "4")
    momentum = ["--data", "small", "--lr", "0.02", "--momentum", "0.9", "--seed", "7"]
    train(2, *momentum, "--epochs", half, "--checkpoint", "a")
    out = train(2, *momentum[:-2], "--epochs", whole, "--resume", "a", "--checkpoint", "b")
    train(2, *momentum, "--epochs", whole, "--checkpoint", "c")
    train(2, *momentum, "--epochs", whole, "--checkpoint", "d", "--workers", "2")
    if read("c") != read("d"):
        fail("the same command gave other bits the second time, with two workers")
    if read("b") != read("c"):
        fail(f"--epochs {half}, then --epochs {whole} --resume gave other bits than --epochs {whole}")
    if f"Resumed after epoch {half} from a" not in out or "Epoch 1," in out or f"Epoch {whole}," not in out:
        fail(f"expected to go on after epoch {half}:\n{out}")
    if "nothing left to train" not in train(1, *momentum, "--epochs", whole, "--resume", "b"):
        fail("expected to hear that nothing is left to train")


def run_on_a_terminal(*flags):
    """What a terminal of its own shows, and the exit code."""
    parent, child = pty.openpty()
    done = subprocess.Popen([TRAINER, *flags], env=ENVIRONMENT, stdout=child, stderr=child)
    os.close(child)
    out = b""
    try:
        while chunk := os.read(parent, 65536):
            out += chunk
    except OSError:  # how a terminal says end of file
        pass
    os.close(parent)
    return out, done.wait(PATIENCE)


def works_alone_with_a_progress_bar():
    try:
        out, code = run_on_a_terminal("--epochs", "1", "--save-every", "0", "--data", "small")
    except OSError as none:
        print(f"there are no terminals here ({none}): the progress bar is not tested")
        return
    if code != 0 or b"\rEpoch 1 [" not in out or b"\r\x1b[KEpoch 1, loss" not in out:
        fail(f"expected a progress bar and a result: {out!r}")
    if os.path.exists("checkpoint.safetensors") and b"saved" in out:
        fail("--save-every 0 saved")
    images = idx("gray", 0x803, [6, 28, 28], bytes(6 * 784))
    labels = idx("eleventh", 0x801, [6], bytes([10, 0, 0, 0, 0, 0]))
    out, code = run_on_a_terminal("--images", images, "--labels", labels, "--batch-size", "1", "--epochs", "1")
    if code == 0 or b"Epoch 1 [" not in out or not re.search(rb"\ntutti: rank 0: .* got target\[0\] = 10\r?\n", out):
        fail(f"expected the error on a line of its own after the bar: {out!r}")


def idx(path, magic, dims, data):
    content = struct.pack(">I", magic) + b"".join(struct.pack(">I", d) for d in dims) + data
    with (gzip.open if path.endswith(".gz") else open)(path, "wb") as f:
        f.write(content)
    return path


def tells_mistakes():
    images = idx("images.gz", 0x803, [6, 28, 28], bytes(6 * 784))
    labels = idx("labels", 0x801, [6], bytes(6))
    few = idx("few", 0x801, [5], bytes(5))
    wrong = idx("wrong", 0x804, [6], bytes(6))
    short = idx("short", 0x803, [6, 28, 28], bytes(784))
    with open("hostile", "wb") as f:
        f.write(struct.pack("<Q", 10**8 + 1) + b"{}")
    with open("corrupt.gz", "wb") as f:
        f.write(read(images)[:40] + b"xxxxxxxx")
    cases = [
        (["--images", images, "--labels", few], "5"),
        (["--images", images, "--labels", wrong], "wrong"),
        (["--images", short, "--labels", labels], "short"),
        (["--images", "corrupt.gz", "--labels", labels], "corrupt.gz"),
        (["--images", "missing", "--labels", labels], "missing"),
        (["--images", images], "--labels"),
        (["--images", images, "--labels", labels, "--holdout", "6"], "--holdout 6"),
        (["--data", "nowhere"], "nowhere"),
        (["--data", ".", "--images", images, "--labels", labels], "exclude"),
        (["--holdout", "3"], "--holdout"),
        (["--resume", "missing"], "missing"),
        (["--resume", "hostile"], "hostile"),
        (["--resume", labels], "labels"),
        (["--epochs", "0"], "--epochs"),
        (["--epochs", "x"], "--epochs"),
        (["--workers", "-1"], "--workers"),
        (["--batch-size", ""], "--batch-size"),
        (["--lr", "nan"], "--lr"),
        (["--unknown"], "--unknown"),
        (["--lr"], "value is missing after --lr"),
        (["--batch-size", "100000000000"], "2147483647"),
        (["file"], "file"),
        (["--epochs", "1", "--checkpoint", "no/such/folder"], "no/such/folder"),
    ]
    for flags, text in cases:
        done = run([TRAINER, *flags], code=1)
        if len(done.stderr.splitlines()) != 1 or text not in done.stderr:
            fail(f"{flags}: expected one line with \"{text}\", got: {done.stderr}")
    if "--epochs" not in run([TRAINER, "--help"]).stdout:
        fail("--help says nothing of --epochs")


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    run([TUTTI, "data", "digits", "small", "--train", "1000", "--test", "100"])
    prints_what_it_should()
    resumes_to_the_same_bits()
    works_alone_with_a_progress_bar()
    tells_mistakes()
    os.chdir("/")
