"""gpt2_finetune with a tiny GPT-2: it learns, the same on one rank and two and for any accumulation; what it saves has
the published names and is a model again; mistakes are one line."""
import os
import re
import shutil
import tempfile

import tiny_gpt2
from example_runs import fail, read, run, stop, tells_mistakes

FLAGS = ["--data", "text", "--lr", "0.01", "--sample", "12", "--eval-every", "10"]


def held_out_losses(out):
    return [float(loss) for loss in re.findall(r"^step \d+: batch loss [\d.]+, val loss ([\d.]+), \d+ s$", out, re.M)]


def train(ranks, batch, accumulate, out):
    """20 steps of 8 texts each."""
    return run("gpt2_finetune", ranks, *FLAGS, "--model", "tiny", "--steps", "20", "--batch-size", str(batch),
               "--accumulate", str(accumulate), "--out", out)


def learns():
    whole = held_out_losses(train(1, 8, 1, "one"))
    if len(whole) != 2 or not whole[1] < whole[0] or whole[1] > 3:  # random weights: 5.6
        fail(f"expected two held-out losses, the second below 3, got {whole}")
    for ranks, batch, accumulate in [(2, 4, 1), (2, 1, 4)]:
        losses = held_out_losses(train(ranks, batch, accumulate, "two"))
        if any(abs(a - b) > 2e-3 for a, b in zip(losses, whole, strict=True)):
            fail(f"{ranks} ranks x {accumulate} x {batch} texts: {losses}, 1 rank x 8 texts: {whole}")
    return whole[1]


def saves(loss):
    found, expected = tiny_gpt2.read_header("one/model.safetensors"), tiny_gpt2.shapes()
    if found != expected:
        fail(f"expected {expected}, got {found}")
    out = run("gpt2_finetune", 1, *FLAGS, "--model", "one", "--steps", "1", "--lr", "0", "--out", "one",
              "--prompt", "the outer")
    if held_out_losses(out) != [loss]:
        fail(f"expected the held-out loss {loss} of the saved model:\n{out}")
    if not re.search(r"^saved in one\n--- sample\nthe outer.", out, re.M):
        fail(f"expected a text that goes on:\n{out}")


def goes_on():
    flags = [*FLAGS, "--model", "dropping", "--accumulate", "2", "--sample", "0", "--checkpoint"]
    run("gpt2_finetune", 1, *flags, "whole", "--steps", "6", "--out", "whole-out")
    run("gpt2_finetune", 1, *flags, "part", "--steps", "2", "--out", "part-out")
    run("gpt2_finetune", 1, *flags, "part", "--steps", "6", "--resume", "part", "--out", "part-out")
    if read("whole-out/model.safetensors") != read("part-out/model.safetensors"):
        fail("a resumed run has other bits")


def virtual_ranks_accumulate():
    flags = [*FLAGS, "--model", "dropping", "--steps", "3", "--virtual-ranks", "2", "--accumulate", "2"]
    for ranks in (1, 2):
        run("gpt2_finetune", ranks, *flags, "--out", f"virtual-{ranks}")
    if read("virtual-1/model.safetensors") != read("virtual-2/model.safetensors"):
        fail("two virtual ranks have other bits on one rank than on two")


def a_signal_is_no_end():
    """It saves the checkpoint, and neither a model nor a text."""
    out = stop("gpt2_finetune", *FLAGS, "--model", "tiny", "--steps", "1000000", "--eval-every", "2", "--out",
               "stopped", "--checkpoint", "stopped.safetensors", when="step 2:")
    if "--- sample" in out or "saved in" in out or os.listdir("stopped"):
        fail(f"expected no model and no text after a signal, got {os.listdir('stopped')}:\n{out}")
    run("gpt2_finetune", 1, *FLAGS, "--model", "tiny", "--steps", "2", "--resume", "stopped.safetensors", "--out",
        "stopped")


def replaces_files():
    """What else has the name of a file keeps its content, and the model's own files are left alone."""
    flags = [*FLAGS, "--steps", "1", "--sample", "0", "--model"]
    os.mkdir("linked")
    with open("mine", "w", encoding="ascii") as file:
        file.write("mine")
    os.link("mine", "linked/config.json")
    run("gpt2_finetune", 1, *flags, "tiny", "--out", "linked")
    if read("mine") != b"mine" or read("linked/config.json") != read("tiny/config.json"):
        fail("config.json was written through a link")
    names = ["config.json", "vocab.json", "merges.txt"]
    before = [os.stat(os.path.join("linked", name)) for name in names]
    run("gpt2_finetune", 1, *flags, "linked", "--out", "linked")
    after = [os.stat(os.path.join("linked", name)) for name in names]
    if [(at.st_ino, at.st_mtime_ns) for at in before] != [(at.st_ino, at.st_mtime_ns) for at in after]:
        fail("--out is --model: expected its other files to be left alone")


def pipes():
    """Where a file can't be written is told before training."""
    for name in ["config.json", "vocab.json", "merges.txt", "model.safetensors"]:
        folder = "pipe-" + name
        os.mkdir(folder)
        os.mkfifo(os.path.join(folder, name))
        yield ["--out", folder], 1, f"{folder}/{name}: expected a file, got a FIFO"


def learns_in_bf16():
    losses = held_out_losses(run("gpt2_finetune", 1, *FLAGS, "--model", "tiny", "--steps", "20", "--batch-size", "8",
                                 "--accumulate", "1", "--out", "bf16", "--amp", "bf16"))
    exact = held_out_losses(train(1, 8, 1, "one"))
    if losses == exact or any(abs(a - b) > 0.1 for a, b in zip(losses, exact, strict=True)):
        fail(f"expected losses a little other than those in f32, {exact}, got {losses}")


def broken_models():
    for name, file, text in [("headless", "config.json", "{}"), ("cut", "model.safetensors", "cut"),
                             ("wordless", "vocab.json", "[]")]:
        shutil.copytree("tiny", name)
        with open(os.path.join(name, file), "w", encoding="ascii") as broken:
            broken.write(text)
        yield ["--model", name], 1, f"{name}/{file}"
    shutil.copytree("tiny", "wordy")
    with open("wordy/vocab.json", encoding="utf-8") as file:
        words = file.read()
    with open("wordy/vocab.json", "w", encoding="utf-8") as file:
        file.write(words[:-1] + f', "more": {tiny_gpt2.WORDS}}}')
    yield ["--model", "wordy"], 1, "the model knows only 260"


def main():
    with tempfile.TemporaryDirectory(prefix="tutti-finetune-") as folder:
        os.chdir(folder)
        tiny_gpt2.write_model("tiny")
        tiny_gpt2.write_model("dropping", dropout=0.1)
        with open("text", "w", encoding="ascii") as file:
            file.write("the outer thought of the south wind thou without them. " * 20)
        saves(learns())
        learns_in_bf16()
        goes_on()
        virtual_ranks_accumulate()
        a_signal_is_no_end()
        replaces_files()
        tells_mistakes("gpt2_finetune", [*FLAGS, "--model", "tiny"], [
            *broken_models(),
            (["--top-p", "1"], 2, "unknown flag --top-p"),
            (["--accumulate", "0"], 2, "gpt2_finetune: --accumulate"),
            (["--model", "nowhere"], 1, "nowhere/"),
            (["--data", "nothing"], 1, "nothing"),
            (["--data", "tiny/merges.txt"], 1, "a longer text or a smaller --block"),
            (["--block", "25"], 1, "at most the 24 tokens"),
            (["--out", "text"], 1, "text/model.safetensors"),
            (["--out", "no/where"], 1, "can't make the folder no/where"),
            (["--amp", "f64"], 2, "--amp: expected bf16, got f64"),
            *pipes(),
        ])
        if "expected --model DIR and --data FILE" not in run("gpt2_finetune", 1, "--data", "text", code=2):
            fail("a missing --model is not told")
        if "--accumulate" not in run("gpt2_finetune", 1, "--help"):
            fail("--help says nothing of --accumulate")


if __name__ == "__main__":
    main()
