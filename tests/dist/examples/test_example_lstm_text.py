"""lstm_text, as its users run it: it learns a simple text, on two ranks too, whose held-out result is that of one; a
run that is resumed has the bits of one that never stopped; it writes what it has learnt; mistakes are one line."""
import math
import os
import re
import tempfile

import example_runs
from example_runs import fail, read, stop

SMALL = ["--emsize", "16", "--nhid", "24", "--bptt", "10"]


def train(ranks, *flags, code=0):
    return example_runs.run("lstm_text", ranks, *flags, code=code)


def losses(out):
    line = r"^Epoch \d+, loss ([\d.]+), perplexity ([\d.]+), held-out loss ([\d.]+), held-out perplexity ([\d.]+), "
    found = [[float(number) for number in numbers] for numbers in re.findall(line, out, re.M)]
    for loss, perplexity, tested, test_perplexity in found:
        if abs(math.log(perplexity) - loss) > 0.01 or abs(math.log(test_perplexity) - tested) > 0.01:
            fail(f"expected perplexities to be those of the losses:\n{out}")
    return [(numbers[0], numbers[2]) for numbers in found]


def learns():
    """The seven-letter text can only be told by who remembers more than a letter."""
    with open("abc.txt", "w", encoding="ascii") as file:
        file.write("abcabd\n" * 600)
    flags = [*SMALL, "--data", "abc.txt", "--dropout", "0", "--lr", "5", "--epochs", "8"]
    out = train(2, *flags, "--batch-size", "4", "--write", "70", "--temperature", "0.1")
    seen = losses(out)
    if len(seen) != 8 or "2 ranks" not in out or "5 different characters" not in out:
        fail(f"expected a line for each of eight epochs:\n{out}")
    if "TT_SANITIZED" not in os.environ and (seen[-1][1] > 0.2 or "\nabcabd\nabcabd\n" not in out.split("---")[1]):
        fail(f"expected a held-out loss below 0.2, and the text to be written:\n{out}")


def held_out_on_any_number_of_ranks():
    """Untrained, as the rate is 0: the same model on one rank and three."""
    flags = [*SMALL, "--data", "abc.txt", "--lr", "0", "--epochs", "1", "--batch-size", "2", "--write", "0"]
    one, three = losses(train(1, *flags)), losses(train(3, *flags))
    if abs(one[0][1] - three[0][1]) > 1e-3:
        fail(f"the held-out loss differs: {one} on one rank, {three} on three")


def resumes():
    flags = [*SMALL, "--batch-size", "8", "--write", "40"]
    whole = train(1, *flags, "--epochs", "3", "--checkpoint", "whole")
    train(1, *flags, "--epochs", "1", "--checkpoint", "part")
    part = train(1, *flags, "--epochs", "3", "--checkpoint", "part", "--resume", "part")
    if read("part") != read("whole") or whole.split("---")[1] != part.split("---")[1]:
        fail(f"a run that was resumed has other bits or another text:\n{whole}{part}")


def a_signal_is_no_end():
    """It saves the checkpoint, in the middle of an epoch, too, and writes no text."""
    flags = [*SMALL, "--batch-size", "2", "--checkpoint", "stopped", "--epochs"]
    out = stop("lstm_text", *flags, "1000000", when="Epoch 1, loss")
    if "\n---\n" in out or [name for name in os.listdir(".") if ".tmp-" in name]:
        fail(f"expected no text and no half-written checkpoint after a signal:\n{out}")
    train(1, *flags, "3", "--resume", "stopped", "--write", "0")


def tells_mistakes():
    for name, text in [("short.txt", "a short text"), ("empty.txt", "")]:
        with open(name, "w", encoding="ascii") as file:
            file.write(text)
    example_runs.tells_mistakes("lstm_text", [], [
        (["--gamma", "1"], 2, "unknown flag --gamma"),
        (["--bptt"], 2, "a value is missing after --bptt"),
        (["--nhid", "0"], 2, "lstm_text: --nhid: expected a whole number from 1"),
        (["--temperature", "0"], 2, "--temperature: expected a number above 0"),
        (["--dropout", "2"], 1, "dropout"),
        (["--data", "nowhere.txt"], 1, "nowhere.txt"),
        (["--data", "short.txt"], 1, "short.txt: 11 characters give 0 windows"),
        (["--data", "empty.txt"], 1, "empty.txt is empty"),
        (["--prompt", "~"], 1, "not among the 47"),
        (["--resume", "abc.txt"], 1, "abc.txt"),
    ])
    if "--bptt" not in train(1, "--help"):
        fail("--help says nothing of --bptt")


def main():
    with tempfile.TemporaryDirectory(prefix="tutti-lstm-") as folder:
        os.chdir(folder)
        learns()
        held_out_on_any_number_of_ranks()
        resumes()
        a_signal_is_no_end()
        tells_mistakes()


if __name__ == "__main__":
    main()
