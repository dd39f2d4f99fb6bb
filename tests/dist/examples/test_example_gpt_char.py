"""gpt_char, as its users run it: it learns on one rank and two, what it saved goes on to the very same bits and writes
the same text; mistakes are one line."""
import os
import re
import tempfile

from example_runs import fail, read, run, stop, tells_mistakes

SMALL = ["--layers", "1", "--width", "32", "--heads", "2", "--block", "16", "--batch-size", "4"]
FEW = [*SMALL, "--data", "text", "--sample", "20", "--seed", "7"]


def learns():
    out = run("gpt_char", 2, *FEW, "--steps", "80", "--eval-every", "40", "--warmup", "5", "--lr", "0.01", "--prompt",
              "the sea ", "--metrics", "runs/two", "--save-every", "0")
    losses = re.findall(r"^step (\d+): batch loss [\d.]+, val loss ([\d.]+), \d+ s$", out, re.M)
    if [step for step, _ in losses] != ["40", "80"] or "2 ranks" not in out:
        fail(f"expected a line for each of two evaluations:\n{out}")
    if float(losses[1][1]) > 1:  # a text of few words, again and again; without learning: above 2.6
        fail(f"expected a held-out loss below 1:\n{out}")
    sample = out.partition("--- sample\n")[2]
    if not sample.startswith("the sea ") or len(sample) != len("the sea ") + 20 + 1:
        fail(f"expected the prompt and 20 characters:\n{out}")
    if "eval/loss" not in read("runs/two/scalars.csv").decode() or os.path.exists("gpt_char.safetensors"):
        fail("expected curves and no checkpoint")


def goes_on(ranks):
    """Rates and evaluations are the same for any number of steps."""
    constant = ["--lr", "0.01", "--min-lr", "0.01", "--warmup", "0"]
    flags = [*FEW, *constant, "--eval-every", "1", "--dropout", "0.1", "--checkpoint"]
    whole = run("gpt_char", ranks, *flags, "whole", "--steps", "8")
    run("gpt_char", ranks, *flags, "part", "--steps", "3", "--sample", "0")
    part = run("gpt_char", ranks, *flags, "part", "--steps", "8", "--resume", "part")
    if read("part") != read("whole"):
        fail(f"{ranks} ranks: a resumed run has other bits")
    again = run("gpt_char", ranks, *flags, "again", "--steps", "8", "--resume", "whole")
    samples = {text.partition("--- sample\n")[2] for text in (whole, part, again)}
    if len(samples) != 1 or os.path.exists("again"):
        fail(f"{ranks} ranks: expected the same sample, and no training, from the same weights: {samples}")


def a_signal_is_no_end():
    """It saves the checkpoint, and writes no text."""
    out = stop("gpt_char", *FEW, "--steps", "1000000", "--eval-every", "2", "--checkpoint", "stopped", when="step 2:")
    if "--- sample" in out:
        fail(f"expected no text after a signal:\n{out}")
    run("gpt_char", 1, *FEW, "--steps", "2", "--resume", "stopped")


def learns_in_bf16():
    """Nearly the same as in f32."""
    flags = [*FEW, "--steps", "40", "--eval-every", "40", "--warmup", "0", "--lr", "0.01", "--save-every", "0"]
    losses = [float(re.search(r"val loss ([\d.]+)", run("gpt_char", 1, *flags, *amp))[1])
              for amp in ([], ["--amp", "bf16"])]
    if losses[0] == losses[1] or abs(losses[0] - losses[1]) > 0.1:
        fail(f"expected a loss a little other than {losses[0]}, that in f32, got {losses[1]}")


def main():
    with tempfile.TemporaryDirectory(prefix="tutti-gpt-char-") as folder:
        os.chdir(folder)
        with open("text", "w", encoding="ascii") as file:
            file.write("the sea and the sun, the sea and the moon; " * 50)
        with open("empty", "w", encoding="ascii"):
            pass
        learns()
        goes_on(1)
        goes_on(2)
        a_signal_is_no_end()
        learns_in_bf16()
        if "4 different" in run("gpt_char", 1, *SMALL, "--steps", "1", "--sample", "5"):
            fail("expected the built-in text")
        tells_mistakes("gpt_char", FEW, [
            (["--blocks", "3"], 2, "unknown flag --blocks"),
            (["--lr"], 2, "a value is missing after --lr"),
            (["--steps", "0"], 2, "gpt_char: --steps"),
            (["--dropout", "much"], 2, "gpt_char: --dropout"),
            (["--min-lr", "1"], 2, "--min-lr is above --lr"),
            (["text"], 2, "expected flags only, got text"),
            (["--amp", "f16"], 2, "--amp: expected bf16, got f16"),
            (["--data", "missing"], 1, "missing"),
            (["--data", "empty"], 1, "text"),
            (["--block", "10000"], 1, "a longer text or a smaller --block"),
            (["--heads", "3"], 1, "32"),
            (["--prompt", "Z"], 1, "--prompt"),
            (["--prompt", ""], 1, "--prompt"),
            (["--resume", "missing"], 1, "missing"),
            (["--resume", "whole", "--width", "48"], 1, "whole"),
        ])
        if "--temperature" not in run("gpt_char", 1, "--help"):
            fail("--help says nothing of --temperature")


if __name__ == "__main__":
    main()
