"""tutti run: the workers' logs. What is compared with torchrun's stands in
tests/interop/launch/test_run_logs_torch.py."""
import glob
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.environ["TT_SOURCE"], "tests", "support"))
from patience import DEADLINE  # noqa: E402

TUTTI = os.environ["TUTTI"]


def run(*args, code=0, **env):
    env = {name: value for name, value in {**os.environ, **env}.items() if value is not None}
    said = subprocess.run([TUTTI, "run", "--standalone", *args], env=env, capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=DEADLINE)
    assert said.returncode == code, (args, said)
    return said


class Logs(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.logs = os.path.join(self.folder.name, "deep", "logs")

    def read(self, name):
        (path,) = glob.glob(os.path.join(self.logs, "*", "attempt_0", name))
        with open(path, encoding="utf-8") as file:
            return file.read()

    def test_error_files_of_all_kinds(self):
        """What a worker has put there is no reason to wait, to read elsewhere, or to leave anything behind."""
        secret = os.path.join(self.folder.name, "secret")
        with open(secret, "w", encoding="utf-8") as file:
            file.write('{"message": "of another file"}')
        for make in ('mkfifo "$F"', 'mkdir -p "$F/a/b"; echo x >"$F/a/b/c"', f'ln -s {secret} "$F"',
                     'head -c 3000000 /dev/zero | tr "\\0" "[" >"$F"', 'echo "[[[" >"$F"'):
            said = run("sh", "-c", f"F=$TORCHELASTIC_ERROR_FILE; {make}; exit 9", code=9, TMPDIR=self.folder.name)
            self.assertIn("rank 0 failed first: exit code 9", said.stderr)
            self.assertNotIn("of another file", said.stderr)
            self.assertEqual(os.listdir(self.folder.name), ["secret"])

    def test_error_files_with_odd_characters(self):
        """As Python writes them: \\u0000, and half a surrogate pair for a byte of a file's name that is not UTF-8."""
        more = {"timestamp": "1", "py_callstack": "\U0001f600\ud83dc\0d"}
        text = json.dumps({"message": {"message": r"a\0b\u0000" + "\0\udcffe", "extraInfo": more}})
        for given in (text.encode(), b'{"message": "a\xff"}'):
            said = run("sh", "-c", 'printf %s "$TEXT" >"$TORCHELASTIC_ERROR_FILE"; exit 9', code=9, TEXT=given)
            messages = (r"a\0b\u0000??e" + "\n  its traceback:\n    \U0001f600?c?d\n", "a?\n")
            self.assertIn("  its message:\n    " + messages[given != text.encode()], said.stderr)

    def test_nothing_is_lost_without_reader(self):
        """The files have all, although nobody reads what the launcher shows."""
        reader, writer = os.pipe()
        process = subprocess.Popen([TUTTI, "run", "--standalone", "--grace-period=0", "--log-dir", self.logs, "-t", "1",
                                    "seq", "300000"], stdout=writer, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        os.close(writer)
        said = process.communicate(timeout=DEADLINE)[1].decode()
        os.close(reader)
        self.assertEqual(process.returncode, 0, said)
        self.assertIn(f"has stopped reading: the rest of what the workers wrote is in {self.logs}", said)
        self.assertEqual(self.read("0/stdout.log"), "".join(f"{i}\n" for i in range(1, 300001)))

    def test_tee_shows_all(self):
        said = run("--nproc-per-node=2", "--log-dir", self.logs, "--tee=1", "seq", "30000")
        for rank in range(2):
            prefix = f"[default{rank}]:"
            own = [line[len(prefix):] for line in said.stdout.split("\n") if line.startswith(prefix)]
            self.assertEqual(own, [str(i) for i in range(1, 30001)])

    def test_tail_of_redirected_stderr(self):
        said = run("--log-dir", self.logs, "--redirects=2", "sh", "-c", "seq 5000 >&2; echo the end >&2; exit 3",
                   code=3)
        tail = re.findall(r"(?m)^    \| (.*)$", said.stderr)
        self.assertEqual(tail, [str(i) for i in range(4982, 5001)] + ["the end"])

    def test_lines_with_a_nul_byte(self):
        said = run("--log-dir", self.logs, "--tee=3", "--duplicate-stdout-filters=a", "sh", "-c",
                   "printf 'a\\0b\\n'; printf 'a\\0b\\nthe end\\n' >&2; exit 3", code=3)
        self.assertEqual(self.read("filtered_stdout.log"), "[default0]:a\0b\n")
        self.assertEqual(re.findall(r"(?m)^    \| (.*)$", said.stderr), ["a?b", "the end"])

    def test_line_ends_of_two_bytes(self):
        """Also where only the first of them fits into what is read at once."""
        script = r"import sys; sys.stdout.buffer.write(b'12345\r\n' + b'12345678\r\n' * 20000)"
        said = run("--log-dir", self.logs, "--tee=1", sys.executable, "-c", script)
        self.assertEqual(said.stdout, "[default0]:12345\n" + "[default0]:12345678\n" * 20000)

    def test_hidden_ranks(self):
        script = "echo out $RANK; echo err $RANK >&2; test $RANK = 1 || exit 3"
        said = run("--nproc-per-node=2", "--local-ranks-filter=1", "--settle-period=60", "sh", "-c", script, code=3)
        self.assertEqual(said.stdout, "out 1\n")
        self.assertIn("    | err 0\n", said.stderr)  # the report still knows
        self.assertNotIn("\nerr 0\n", said.stderr)
        self.assertIn("err 1\n", said.stderr)

    def test_many_ranks(self):
        run("--nproc-per-node=12", "--log-dir", self.logs, "--redirects=11:1,3:2", "sh", "-c",
            "echo $RANK; echo $RANK >&2")
        self.assertEqual(self.read("11/stdout.log"), "11\n")
        self.assertEqual(self.read("3/stderr.log"), "3\n")
        self.assertEqual(len(glob.glob(os.path.join(self.logs, "*", "*", "*", "*.log"))), 2)

    def test_names(self):
        """A run's id can't lead out of the folder; the folder is for this user alone, and its path absolute."""
        for run_id, name in (("../../a/b", "_._.._a_b"), (".hidden", "_hidden"), ("a\nb", "a_b"),
                             ("x" * 500, "x" * 127)):
            logs = os.path.join(self.folder.name, "names")
            said = subprocess.run([TUTTI, "run", "--rdzv-id", run_id, "--log-dir=names", "printenv",
                                   "TORCHELASTIC_ERROR_FILE"], cwd=self.folder.name, capture_output=True, text=True,
                                  timeout=DEADLINE)
            self.assertEqual(said.returncode, 0, said.stderr)
            made = os.path.dirname(os.path.dirname(os.path.dirname(said.stdout.strip())))
            self.assertEqual(os.path.dirname(made), os.path.realpath(logs))
            self.assertRegex(os.path.basename(made), "^" + re.escape(name) + "_[A-Za-z0-9]{6}$")
            self.assertEqual(os.stat(made).st_mode & 0o777, 0o700)

    def test_without_folder(self):
        said = run("-r", "3", "sh", "-c", "echo hello", TMPDIR=self.folder.name)
        (path,) = glob.glob(os.path.join(self.folder.name, "torchelastic_*", "*", "attempt_0", "0", "stdout.log"))
        made = os.path.dirname(os.path.dirname(os.path.dirname(path)))
        self.assertIn(f"the workers' logs are in {made}\n", said.stderr)
        self.assertEqual(glob.glob(os.path.join(self.folder.name, "tutti-*")), [])

    def test_folder_alone(self):
        """As with torchrun it has no output; the line that names the folder says so."""
        said = run("--log-dir", self.logs, "sh", "-c", "echo hello")
        self.assertEqual(said.stdout, "hello\n")
        self.assertEqual(glob.glob(os.path.join(self.logs, "*", "*", "*", "*.log")), [])
        self.assertRegex(said.stderr, r"error files are in /\S+; to keep their output there, too, add --tee=3 or")

    def test_null(self):
        said = run("--log-dir=/dev/null", "--tee=3", "sh", "-c", "echo hello; echo $TORCHELASTIC_ERROR_FILE")
        self.assertTrue(said.stdout.startswith("hello\n"), said.stdout)
        self.assertNotIn("/dev/null", said.stdout)

    def test_wrong_folders(self):
        path = os.path.join(self.folder.name, "file")
        with open(path, "w", encoding="utf-8"):
            pass
        self.assertIn("tutti run: --log-dir: ", run("--log-dir", path, "true", code=1).stderr)
        self.assertIn("Not a directory", run("--log-dir", path + "/x", "true", code=1).stderr)

    def test_error_file(self):
        """The message, the traceback where stderr does not show it, and the time: rank 1 wrote its file long before
        rank 0 ended, and ends last."""
        report = {"message": {"message": "ValueError: enough", "extraInfo":
                              {"py_callstack": "Traceback (most recent call last):\n  line\nValueError: enough\n",
                               "timestamp": "1000000000"}}}
        script = """if [ $RANK = 1 ]; then printf '%s' "$REPORT" >$TORCHELASTIC_ERROR_FILE; : >$READY
                    while [ ! -e $GO ]; do sleep 0.01; done; exit 1; fi
                    while [ ! -e $READY ]; do sleep 0.01; done; : >$GO; exit 7"""
        said = run("--nproc-per-node=2", "--settle-period=60", "--log-dir", self.logs, "sh", "-c", script, code=1,
                   REPORT=json.dumps(report), READY=os.path.join(self.folder.name, "ready"),
                   GO=os.path.join(self.folder.name, "go"))
        self.assertIn("tutti run: rank 1 failed first: exit code 1", said.stderr)
        self.assertIn("  its message:\n    ValueError: enough\n  its traceback:\n"
                      "    Traceback (most recent call last):\n      line\n    ValueError: enough\n", said.stderr)
        self.assertEqual(json.loads(self.read("1/error.json")), report)

    def on_small_disk(self, limits, *args):
        """Run with the logs on a file system of its own."""
        inner = f'mount -t tmpfs -o {limits} tmpfs "$1" || exit 77; "$0" run --standalone --log-dir "$@"'
        os.makedirs(self.logs)
        said = subprocess.run(["unshare", "-rm", "sh", "-c", inner, TUTTI, self.logs, *args], capture_output=True,
                              text=True, timeout=DEADLINE)
        if said.returncode == 77 or "unshare" in said.stderr:
            self.skipTest("no file systems of one's own can be mounted here")
        self.assertEqual(said.returncode, 0, said.stderr)
        return said

    def test_unopened_files(self):
        """A worker whose file can't be opened says so, and works on without."""
        said = self.on_small_disk("size=64k,nr_inodes=4", "-r", "1", "sh", "-c", "echo hello")
        self.assertEqual(said.stdout, "hello\n")
        self.assertRegex(said.stderr, r"tutti run: can't open .*/0/stdout.log \(No space left on device\): what rank 0 "
                                      r"writes to stdout is not kept\n")

    def test_full_disk(self):
        """The job goes on without the rest of its logs, and one line says so."""
        said = self.on_small_disk("size=64k", "-t", "1", "--duplicate-stdout-filters=9", "sh", "-c",
                                  "seq 100000 2>/dev/null; exit 0")
        self.assertEqual(said.stderr.count("no room is left for logs"), 1, said.stderr)
        self.assertTrue(said.stdout.startswith("[default0]:1\n[default0]:2\n"))

    def test_limited_files(self):
        """A limit on files' sizes is named as one."""
        said = subprocess.run([TUTTI, "run", "--standalone", "--log-dir", self.logs, "-t", "1",
                               "--duplicate-stdout-filters=9", "sh", "-c", "seq 3000 | grep 9; exit 0"], text=True,
                              capture_output=True, timeout=DEADLINE,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)))
        self.assertEqual(said.returncode, 0, said.stderr)
        text = "lines that match a filter are not kept any more: the limit on a file's size is 4096 bytes (ulimit -f)"
        self.assertEqual(said.stderr.count(text), 1, said.stderr)


if __name__ == "__main__":
    unittest.main()
