"""Programs whose output is lost, on a full disk, say so, and fail."""
import os
import subprocess
import tempfile

import tiny_gpt2
from example_runs import BUILD, PATIENCE, TUTTI, fail

DIGITS = ["--data", "digits", "--epochs", "1", "--save-every", "0"]
PROGRAMS = {
    "gpt_char": ["--layers", "1", "--width", "16", "--heads", "2", "--block", "16", "--steps", "1", "--sample", "5",
                 "--save-every", "0"],
    "gpt2_finetune": ["--model", "tiny", "--data", "text", "--steps", "1", "--sample", "5"],
    "lstm_text": ["--emsize", "8", "--nhid", "8", "--epochs", "1", "--write", "5"],
    "mnist_convnet": DIGITS,
    "mnist_trainer": DIGITS,
    "resnet_cifar": ["--train-size", "4", "--test-size", "4", "--batch-size", "4", "--epochs", "1", "--save-every", "0",
                     "--workers", "0"],
}


def loses(name, flags):
    with open("/dev/full", "wb") as full:
        done = subprocess.run([os.path.join(BUILD, "examples", name), *flags], stdout=full, stderr=subprocess.PIPE,
                              text=True, env=dict(os.environ, OMP_NUM_THREADS="1"), timeout=PATIENCE)
    if done.returncode != 1 or "writing the output failed" not in done.stderr or done.stderr.count("\n") != 1:
        fail(f"{name}: expected to be told that its output is lost, got exit code {done.returncode}: {done.stderr}")


def main():
    with tempfile.TemporaryDirectory(prefix="tutti-full-") as folder:
        os.chdir(folder)
        tiny_gpt2.write_model("tiny")
        with open("text", "w", encoding="ascii") as file:
            file.write("the outer thought of the south wind thou without them. " * 20)
        subprocess.run([TUTTI, "data", "digits", "digits", "--train=64", "--test=64"], check=True, capture_output=True)
        for name, flags in PROGRAMS.items():
            loses(name, flags)


if __name__ == "__main__":
    main()
