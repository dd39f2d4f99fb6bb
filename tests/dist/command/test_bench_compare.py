"""tutti-bench: each comparison prints one JSON object a line, and says what is wrong with its flags. What they measure
is not judged here, except for what the arithmetic fixes."""
import json
import os
import shlex
import subprocess
import unittest

PROGRAM = os.path.join(os.environ["TT_BUILD"], "bench", "tutti-bench")
# Who is called: (arguments, part of what it says).
WRONG = {
    "": [("zer", 'unknown comparison "zer"; did you mean "zero"?')],
    "pipeline": [
        ("--frobnicate", "unknown flag --frobnicate"),
        ("x", 'unexpected argument "x"'),
        ("--model x", '--model: expected gpt, resnet18 or mlp, got "x"'),
        ("--schedule x", '--schedule: expected zero-bubble, interleaved, 1f1b or gpipe, got "x"'),
        ("--world 0", '--world: expected a number from 1 to 64, got "0"'),
        ("--split 3,x", '--split: expected a number from 1 to 1000000, got "x"'),
        ("--micro-batches 0", "--micro-batches: expected a number from 1"),
    ],
    "zero": [
        ("--stage 4", "--stage: expected a number from 1 to 3"),
        ("--model alexnet", "--model: expected mlp, conv, gpt, gpt2 or resnet50"),
        ("x", 'unexpected argument "x"'),
    ],
    "link": [
        ("--mbit 0", '--mbit: expected a number from 1 to 1000000, got "0"'),
        ("--world 1", '--world: expected a number from 2 to 1024, got "1"'),
        ("--model alexnet", "--model: expected mlp, conv, gpt, gpt2 or resnet50"),
        ("x", 'unexpected argument "x"'),
    ],
    "agreement": [
        ("--frobnicate", "unknown flag --frobnicate"),
        ("--iterations none", '--iterations: not understood: "none"'),
        ("x", 'unexpected argument "x"'),
    ],
}


def compare(*words):
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
                          timeout=0.9 * float(os.environ["TT_TIMEOUT"]))


class Comparisons(unittest.TestCase):
    def measured(self, *words):
        done = compare(*words)
        self.assertEqual((done.returncode, done.stderr), (0, ""), words)
        found = json.loads(done.stdout)
        self.assertEqual(found["bench"], words[0])
        return found

    def test_zero(self):
        for stage in (1, 2, 3):
            found = self.measured("zero", "--model", "mlp", "--world", "2", "--steps", "2", "--stage", str(stage))
            self.assertEqual(list(found), [
                "bench", "model", "world", "stage", "ddp_ms", "zero_ms", "ratio", "ddp_params_mb", "zero_params_mb",
                "ddp_grads_mb", "zero_grads_mb", "ddp_state_mb", "zero_state_mb"])
            self.assertEqual((found["model"], found["world"], found["stage"]), ("mlp", 2, stage))
            self.assertEqual([found[f"ddp_{what}_mb"] for what in ("params", "grads", "state")], [1.553, 1.553, 3.106])
            self.assertAlmostEqual(found["zero_state_mb"], 1.555, delta=0.005)

    def test_link(self):
        """No step is faster than the link allows, which takes this for the model's gradients alone."""
        mbit = 10
        gradients_ms = 407050 * 4 * 8 / mbit / 1e3
        found = self.measured("link", "--steps", "10", "--mbit", str(mbit))
        self.assertEqual(list(found), ["bench", "model", "world", "averaged_ms", "least_ms", "of_least"])
        self.assertEqual((found["model"], found["world"]), ("mlp", 2))
        self.assertGreater(found["least_ms"], gradients_ms)
        self.assertLess(found["least_ms"], found["averaged_ms"] + gradients_ms * 1.01)

    def test_link_of_one_rank(self):
        alone = {**os.environ, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": "0"}
        done = subprocess.run([PROGRAM, "link"], capture_output=True, text=True, env=alone, check=False,
                              timeout=0.9 * float(os.environ["TT_TIMEOUT"]))
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertIn("link: one rank alone averages nothing", done.stderr)

    def test_agreement(self):
        found = self.measured("agreement", "--iterations", "1000")
        self.assertEqual(list(found), ["bench", "ns_with", "ns_without", "ns_cost", "ns_cost_min"])

    def test_each_mistake_is_told(self):
        for command, rows in WRONG.items():
            name = f"tutti-bench {command}".strip()
            for arguments, text in rows:
                done = compare(*command.split(), *shlex.split(arguments))
                self.assertEqual((done.returncode, done.stdout), (2, ""), (name, arguments))
                said, hint = done.stderr.splitlines()
                self.assertTrue(said.startswith(f"{name}: ") and text in said, said)
                self.assertEqual(hint, f"Try '{name} --help'.")

    def test_help(self):
        for command in WRONG:
            done = compare(*command.split(), "--help")
            self.assertEqual((done.returncode, done.stderr), (0, ""), command)
            self.assertTrue(done.stdout.startswith(f"usage: tutti-bench {command}"), done.stdout)
        self.assertEqual(compare().returncode, 2)

    def test_lost_output_is_an_error(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([PROGRAM, "agreement", "--iterations", "10"], stdout=full, stderr=subprocess.PIPE,
                                  text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (1, "tutti-bench: writing the output failed\n"))


if __name__ == "__main__":
    unittest.main()
