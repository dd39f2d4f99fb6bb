"""Each flag of the current torchrun is one of tutti run's: under both its spellings, by what it may be shortened to, by
its PET_ variable, and with the same default. What torchrun has is asked of its own parser."""

import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

TUTTI = os.environ["TUTTI"]
PYTHON = os.path.join(os.environ["TT_SOURCE"], "build", "peers", "torch", "bin", "python3")
TIMEOUT = 0.3 * float(os.environ["TT_TIMEOUT"])

# Of each flag its spellings, its default, whether it takes a value, and which variable changes that default.
ASK = """
import json, os
from torch.distributed.run import get_args_parser
flags = [a for a in get_args_parser()._actions if a.option_strings]
for a in flags:
    os.environ["PET_" + a.dest.upper()] = "1" if a.nargs == 0 else "probe"
probed = {a.dest: a.default for a in get_args_parser()._actions}
print(json.dumps([[a.option_strings, a.default, a.nargs != 0,
                   "PET_" + a.dest.upper() if probed[a.dest] in ("probe", True) else None] for a in flags]))
"""

# What is seen of a job of a worker: what it is given, and what becomes of its output.
SHOW = r"""env | grep -E '^(ROLE_|MASTER_ADDR|TORCHELASTIC|([A-Z]+_)*RANK|([A-Z]+_)*WORLD_SIZE)' |
grep -v -E '^PET_|_ERROR_FILE|PREFIX_TEMPLATE' | sort; echo said; echo warned >&2"""

# A value with an effect that is seen, and the flags that it takes. For the others one that is refused does.
LOGS, SEVERAL, DRY = ("--tee=3", "--nproc-per-node=2"), ("--nnodes=2", "--dry-run"), ("--dry-run",)
SEEN = {"nproc-per-node": ("2", ()), "rdzv-id": ("mine", ()), "max-restarts": ("2", ()), "role": ("r", ()),
        "standalone": ("1", SEVERAL), "module": ("1", DRY), "no-python": ("1", DRY), "run-path": ("1", DRY),
        "log-dir": ("logs", LOGS), "redirects": ("3", ("--log-dir=logs",)),
        "tee": ("3", ("--log-dir=logs",)), "log-line-prefix-template": ("<${rank}>", LOGS),
        "local-ranks-filter": ("1", LOGS), "duplicate-stdout-filters": ("said", ("--log-dir=logs", *LOGS)),
        "duplicate-stderr-filters": ("warned", ("--log-dir=logs", *LOGS)), "local-addr": ("127.0.0.2", ()),
        "master-addr": ("127.0.0.3", ()), "signals-to-handle": ("SIGTERM,SIGUSR2", ()),
        "virtual-local-rank": ("1", ("--nproc-per-node=2",))}


def ask():
    said = subprocess.run([PYTHON, "-c", ASK], capture_output=True, text=True, timeout=TIMEOUT, check=True,
                          env={k: v for k, v in os.environ.items() if not k.startswith("PET_")})
    return json.loads(said.stdout)


def name_of(strings):
    """The flag as our help has it."""
    return [s for s in strings if s.startswith("--")][0][2:].replace("_", "-")


def run(*argv, **variables):
    """Exit code, output, errors and files left by tutti run, without what is different each time."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("PET_", "TORCHELASTIC", "MASTER_", "CUDA_"))}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([TUTTI, "run", *argv], cwd=folder, capture_output=True, text=True, timeout=TIMEOUT,
                              stdin=subprocess.DEVNULL, env={**env, "OMP_NUM_THREADS": "1", **variables})
        files = sorted(os.path.join(at, name) for at, _, names in os.walk(folder) for name in names)
    seen = [done.returncode, *(sorted(text.splitlines()) for text in (done.stdout, done.stderr)), files]
    seen = json.loads(re.sub(r"none_\w+|/tmp/\w+", "*",
                             json.dumps(seen)))
    return seen


class Flags(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.flags = ask()
        cls.valued = {name_of(strings): valued for strings, _, valued, _ in cls.flags}

    def taken_for(self, word, valued):
        """Which flags the word may be."""
        said = subprocess.run([TUTTI, "run", word if valued else f"{word}=x"], capture_output=True, text=True,
                              timeout=TIMEOUT, stdin=subprocess.DEVNULL).stderr
        one = re.match(r"tutti run: --([a-z-]+)(: expected a value| takes no value)", said)
        two = re.match(r"tutti run: \S+ could be --([a-z-]+) or --([a-z-]+)", said)
        return {one[1]} if one else set(two.groups()) if two else {said}

    def test_names(self):
        """Spellings, and all that they may be shortened to."""
        spellings = {s: name_of(strings) for strings, *_ in self.flags for s in strings if s.startswith("--")}
        both = {"--" + f(name) for name in self.valued for f in (str, lambda n: n.replace("-", "_"))}
        self.assertGreater(len(both), 50)
        words = {word[:n] for word in both | set(spellings) for n in range(3, len(word) + 1)}
        expected = {}
        for word in words:
            exact = word[2:].replace("_", "-")
            expected[word] = {exact} if exact in self.valued else \
                {name for s, name in spellings.items() if s.startswith(word)}
        words = [word for word, names in expected.items() if names and names != {"help"}]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            taken = pool.map(lambda word: self.taken_for(word, any(self.valued[n] for n in expected[word])), words)
            for word, got in zip(words, taken):
                with self.subTest(word):
                    names = expected[word]
                    self.assertTrue(got == names or (len(names) > 2 and len(got) == 2 and got < names), (got, names))

    def test_help(self):
        for word in "-h", "--h", "--he", "--help":
            self.assertEqual(run(word)[0], 0, word)

    def test_letters(self):
        letters = {s: name_of(strings) for strings, *_ in self.flags for s in strings if re.fullmatch("-[a-z]", s)}
        self.assertEqual(letters, {"-h": "help", "-m": "module", "-r": "redirects", "-t": "tee"})
        self.assertEqual(run("-r", "3", "--log-dir=logs", "sh", "-c", SHOW),
                         run("--redirects=3", "--log-dir=logs", "sh", "-c", SHOW))
        self.assertEqual(run("-t3", "sh", "-c", SHOW), run("--tee=3", "sh", "-c", SHOW))
        self.assertEqual(run("--dry-run", "-m", "show"), run("--dry-run", "--module", "show"))

    def test_variables(self):
        """The variable does what the flag does, which is something."""
        tried = 0
        for strings, _, valued, variable in self.flags:
            name = name_of(strings)
            if not variable:
                continue
            value, more = SEEN.get(name, ("?", ()))
            program = [__file__] if "--dry-run" in more else ["sh", "-c", SHOW]
            with self.subTest(name):
                without = run(*more, *program)
                by_flag = run(f"--{name}={value}" if valued else f"--{name}", *more, *program)
                self.assertNotEqual(by_flag, without)
                refused = {"standalone": 2, "no-python": 126}.get(name, 2 if value == "?" else 0)
                self.assertEqual(by_flag[0], refused, by_flag)
                self.assertEqual(run(*more, *program, **{variable: value}), by_flag)
                if not valued:
                    self.assertEqual(run(*more, *program, **{variable: "0"}), without)
            tried += 1
        self.assertGreater(tried, 25)

    def test_defaults(self):
        """torchrun's default is what holds without the flag."""
        tried = 0
        for strings, default, valued, _ in self.flags:
            name = name_of(strings)
            if not valued or default is None or default == []:
                continue
            more = SEVERAL if name == "node-rank" else ()
            program = [__file__] if more else ["sh", "-c", SHOW]
            with self.subTest(name):
                without = run(*more, *program)
                self.assertEqual(without[0], 0, without)
                self.assertEqual(run(f"--{name}={default}", *more, *program), without)
            tried += 1
        self.assertGreater(tried, 12)
        self.assertIn("MASTER_PORT=29500", str(run(*SEVERAL, __file__)))  # its help says so; alone, any that is free


if __name__ == "__main__":
    if not os.access(PYTHON, os.X_OK):
        print("skipped: ./dev setup --torch fetches PyTorch")
        sys.exit(77)
    unittest.main()
