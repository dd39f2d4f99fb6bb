"""Values that no flag of `tutti run` can take, tried with every flag of its table: one clear error, exit code 2 (1 for
what is wrong with a file or a place, and not with how it is written), and nothing is started."""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.environ["TT_SOURCE"], "tests", "support"))
from patience import DEADLINE  # noqa: E402

TUTTI = os.environ["TUTTI"]
LONG = "a" * 100000
BAD = ["", "99999999999999999999999", "-1", "nan", "inf", "-inf", "1e400", "10s", "5 m", " 1", "1 ", "1,2x", "\u0661",
       "\u2603", "\x1b[31mred", "two\nlines", "%s%n%p", "=", LONG]
TEXTS = {"role", "rdzv-id", "log-line-prefix-template", "duplicate-stdout-filters", "duplicate-stderr-filters",
         "log-dir"}  # which may be anything, or nearly
FILES = {"hostfile", "trace", "secret-file"}
HOSTS = {"ssh", "master-addr", "rdzv-endpoint", "local-addr"}  # most words may be names of hosts
# An empty value stands for none, as it does in a variable.
MAY_BE_EMPTY = {"bind", "numa-binding", "master-addr", "master-port", "rdzv-backend", "rdzv-endpoint", "local-addr",
                "rdzv-conf", "signals-to-handle", "redirects", "tee", "local-ranks-filter", "wait-notice",
                "event-log-handler"}
MOST = 1500  # bytes of stderr


def table():
    """{flag: does it take a value}, from the help."""
    text = subprocess.run([TUTTI, "run", "--help"], capture_output=True, text=True, check=True).stdout
    return {name: bool(value) for name, value in re.findall(r"^  (?:-\w, )?--([a-z-]+)( \S)?", text, re.M)
            if name != "help"}


def is_good(flag, value):
    """May this be meant?"""
    if flag in TEXTS:
        return True
    if not value:
        return flag in MAY_BE_EMPTY
    if flag == "trace":
        return value != LONG
    if flag in FILES:  # the name of a file is said as it is
        return bool({"\n", "\x1b"} & set(value))
    if flag in HOSTS:
        return flag == "ssh" or value not in (LONG, "two\nlines", "\x1b[31mred", "=", "\u2603")
    return False


class Values(unittest.TestCase):
    def try_one(self, flag, value):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "tmp").mkdir()
            env = dict(os.environ, TMPDIR=f"{folder}/tmp", OMP_NUM_THREADS="1")
            done = subprocess.run([TUTTI, "run", f"--{flag}={value}", "sh", "-c", "echo started >started"], cwd=folder,
                                  env=env, capture_output=True, timeout=DEADLINE, stdin=subprocess.DEVNULL, check=False)
            return done, sorted(os.listdir(folder)), os.listdir(f"{folder}/tmp")

    def test_each(self):
        flags = table()
        self.assertGreater(len(flags), 40)
        cases = [(flag, value) for flag in flags for value in BAD if not is_good(flag, value)]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            results = list(pool.map(lambda case: self.try_one(*case), cases))
        for (flag, value), (done, left, temporary) in zip(cases, results):
            with self.subTest(flag=flag, value=value[:40]):
                said = done.stderr.decode()
                self.assertIn(done.returncode, (1, 2) if flag in FILES else (2,), said[:MOST])
                lines = said.splitlines()
                self.assertEqual(len(lines), done.returncode, said[:MOST])  # with 2 comes a hint
                self.assertIn("completion" if flag == "print-completion" else flag, lines[0])
                self.assertLess(len(done.stderr), MOST)
                self.assertFalse(set(said) & set("\x1b\x7f"), "characters that a terminal acts upon")
                self.assertEqual((done.stdout, left, temporary), (b"", ["tmp"], []))

    def test_texts(self):
        """Where anything may be meant, anything goes well."""
        for flag in sorted(TEXTS - {"log-dir"}):
            for value in BAD:
                with self.subTest(flag=flag, value=value[:40]):
                    done, left, temporary = self.try_one(flag, value)
                    self.assertEqual((done.returncode, done.stderr), (0, b""))
                    self.assertEqual((left, temporary), (["started", "tmp"], []))


if __name__ == "__main__":
    unittest.main()
