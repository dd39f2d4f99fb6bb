"""Examples with --device, on the fake of CUDA: the cpu's losses, on one rank and on two with a device each; a
checkpoint goes on elsewhere; a rank that is killed is replaced, and the losses stay the same; a device that isn't there
is one line."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile

import tiny_gpt2

TUTTI, BUILD = os.environ["TUTTI"], os.environ["TT_BUILD"]
FAKES = os.path.join(BUILD, "tests", "fake_cuda")
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", TT_BACKEND_PATH=FAKES, TT_CUDA_PATH=FAKES, FAKE_CUDA_SEED="0")
FEW = ["--images", "images", "--labels", "labels", "--holdout", "20", "--batch-size", "20", "--lr", "0.1"]


def fail(text):
    sys.exit("FAILED: " + text)


def run(program, ranks, *flags, code=0):
    start = [TUTTI, "run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
    done = subprocess.run([*start, os.path.join(BUILD, "examples", program), *flags], env=ENVIRONMENT,
                          encoding="latin-1", capture_output=True, timeout=0.9 * float(os.environ["TT_TIMEOUT"]))
    if done.returncode != code:
        fail(f"{program} {flags}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout if code == 0 else done.stderr


def losses(out):
    """Of each epoch: in training, and held out."""
    found = re.findall(r"^Epoch \d+, loss ([\d.]+), .*held-out loss ([\d.]+)", out, re.M)
    return [float(number) for epoch in found for number in epoch]


def same_losses(program, ranks, epochs, *flags):
    near, far = (losses(run(program, ranks, *FEW, *flags, "--epochs", str(epochs), "--save-every", "0", "--device",
                            device)) for device in ("cpu", "cuda"))
    if len(near) != 2 * epochs or len(far) != len(near) or any(abs(a - b) > 2e-4 for a, b in zip(near, far)):
        fail(f"{program} on {ranks} ranks: expected the cpu's losses {near}, got {far}")


def same_numbers(program, *flags):
    """All losses that are printed; what the program writes behind them it writes on the device, too."""
    found = []
    for device in ("cpu", "cuda"):
        out = run(program, 1, *flags, "--device", device)
        found.append([float(number) for number in re.findall(r"loss ([\d.]+)", out)])
    near, far = found
    if not near or len(near) != len(far) or any(abs(a - b) > 1e-3 for a, b in zip(near, far)):
        fail(f"{program}: expected the cpu's losses {near}, got {far}")


def rank_of(job, rank):
    """The process of a rank, by the variables it was started with; None: there is none (any more)."""
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            variables = (process / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if f"TEST_JOB={job}".encode() in variables and f"RANK={rank}".encode() in variables:
            return int(process.name)
    return None


def elastic_run(kills):
    """Train on two ranks; kill one behind the second epoch, if so."""
    job = f"{os.getpid()}-{kills}"
    start = [TUTTI, "run", "--standalone", "--nproc-per-node=2", "--max-restarts=1",
             os.path.join(BUILD, "examples", "mnist_trainer"), "--elastic", *FEW, "--epochs", "6", "--save-every", "0",
             "--device", "cuda"]
    out = ""
    with subprocess.Popen(start, env=dict(ENVIRONMENT, TEST_JOB=job), text=True, stdout=subprocess.PIPE) as launcher:
        for line in launcher.stdout:
            out += line
            if kills and line.startswith("Epoch 2,"):
                kills = False  # the epoch may come again
                os.kill(rank_of(job, 1), signal.SIGKILL)
    if launcher.returncode:
        fail(f"an elastic job: exit code {launcher.returncode}\n{out}")
    return losses(out)


def write_digits(count):
    """Images of one bright row each, whose place tells the digit, as IDX files."""
    with open("images", "wb") as file:
        file.write(bytes([0, 0, 8, 3]) + b"".join(size.to_bytes(4, "big") for size in (count, 28, 28)))
        for i in range(count):
            file.write(b"".join(bytes([255 if row == 2 * (i % 10) else 0]) * 28 for row in range(28)))
    with open("labels", "wb") as file:
        file.write(bytes([0, 0, 8, 1]) + count.to_bytes(4, "big") + bytes(i % 10 for i in range(count)))


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        write_digits(100)
        for ranks in (1, 2):
            same_losses("mnist_trainer", ranks, 2)
        run("mnist_trainer", 1, *FEW, "--epochs", "1", "--device", "cuda:1", "--checkpoint", "there")
        out = run("mnist_trainer", 1, *FEW, "--epochs", "2", "--resume", "there", "--checkpoint", "back")
        if "Resumed after epoch 1 from there" not in out or len(losses(out)) != 2:
            fail(f"expected a second epoch on the cpu:\n{out}")
        calm, killed = elastic_run(False), elastic_run(True)
        if len(calm) != 12 or killed[-2:] != calm[-2:]:
            fail(f"expected the losses of a run without a kill, {calm}, got {killed}")
        out = run("mnist_trainer", 1, *FEW, "--device", "cuda:7", code=1)
        if "there is no device cuda:7: CUDA has 2" not in out:
            fail(f"expected an error that names the device:\n{out}")
        write_digits(30)  # a convolution takes the fake a second for ten of them
        convnet = ["--holdout", "20", "--batch-size", "10"]
        near, far = (losses(run("mnist_convnet", 1, *FEW, *convnet, "--epochs", "1", "--save-every", "0", "--device",
                                device)) for device in ("cpu", "cuda"))
        if len(near) != 2 or any(abs(a - b) > 1e-3 for a, b in zip(near, far)):
            fail(f"mnist_convnet: expected the cpu's losses {near}, got {far}")
        same_numbers("gpt_char", "--layers", "1", "--width", "16", "--heads", "2", "--block", "16", "--steps", "2",
                     "--eval-every", "2", "--save-every", "0", "--sample", "5")
        same_numbers("lstm_text", "--emsize", "8", "--nhid", "8", "--bptt", "12", "--epochs", "1", "--dropout", "0",
                     "--write", "5")
        tiny_gpt2.write_model("tiny")
        with open("text", "w", encoding="ascii") as file:
            file.write("the outer thought of the south wind thou without them. " * 20)
        same_numbers("gpt2_finetune", "--data", "text", "--model", "tiny", "--out", "tuned", "--lr", "0.01", "--steps",
                     "2", "--eval-every", "2", "--batch-size", "2", "--sample", "5")
    print("ok")


main()
