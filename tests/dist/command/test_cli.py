#!/usr/bin/env python3
"""The command itself: version, guesses at misspelt words, help that fits, colours where they belong, and completion in
each shell that is here."""
import os
import pathlib
import pty
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest
from fcntl import ioctl

sys.path.insert(0, os.path.join(os.environ["TT_SOURCE"], "tests", "support"))
import terminal  # noqa: E402
from patience import DEADLINE  # noqa: E402

TUTTI = os.environ["TUTTI"]
PLAIN = {key: value for key, value in os.environ.items()
         if key not in ("NO_COLOR", "CLICOLOR_FORCE", "COLUMNS", "TERM", "TT_LOG")}


def tutti(*argv, code=0, **env):
    done = subprocess.run([TUTTI, *argv], capture_output=True, text=True, timeout=DEADLINE, env=PLAIN | env)
    if done.returncode != code:
        raise AssertionError(f"{argv}: {done.returncode}, expected {code}: {done.stdout}{done.stderr}")
    return done


def on_terminal(*argv, columns=80, **env):
    return terminal.on_terminal([TUTTI, *argv], columns, PLAIN | {"TERM": "xterm"} | env)


class Words(unittest.TestCase):
    def test_version(self):
        self.assertRegex(tutti("-V").stdout, r"^tutti \d+\.\d+\.\d+\n$")
        self.assertEqual(tutti("-V").stdout, tutti("--version").stdout)

    def test_guesses(self):
        for argv, guess in ((["rnu"], '"run"'), (["trcae"], '"trace"'), (["sto"], '"store"'),
                            (["help", "benhc"], '"bench"'),
                            (["bench", "al_reduce"], '"all_reduce"'), (["data", "digit", "x"], '"digits"'),
                            (["top", "--onse"], "--once"), (["run", "--nproc_per_nodes=2", "true"], "--nproc-per-node"),
                            (["run", "--stand-alone", "true"], "--standalone"), (["store", "--prot=1"], "--port"),
                            (["bench", "all_reduce", "--wrold=2"], "--world"),
                            (["tune", "--hepl"], "--help")):
            self.assertIn(f"did you mean {guess}?", tutti(*argv, code=2).stderr, argv)
        for argv in (["walk"], ["top", "--frobnicate"], ["run", "-x", "true"], ["bench", "z"], ["data", "q", "x"]):
            self.assertNotIn("did you mean", tutti(*argv, code=2).stderr, argv)

    def test_log_level(self):
        said = tutti("run", "--standalone", "--log-level=debug", "sh", "-c", "echo level $TT_LOG")
        self.assertEqual(said.stdout, "level debug\n")
        self.assertRegex(said.stderr, r"(?m)^tutti run: \d\d:\d\d:\d\d\.\d{3} debug: "
                                      r"serving the store at 127\.0\.0\.1:\d+$")
        self.assertRegex(said.stderr, r"(?m)^tutti run: .* debug: rank 0 ended: exit code 0$")
        self.assertNotIn("debug", tutti("run", "--standalone", "true").stderr)


class Help(unittest.TestCase):
    COMMANDS = ([], ["run"], ["top"], ["trace"], ["store"], ["tune"], ["bench"], ["bench", "all_reduce"],
                ["bench", "step"], ["bench", "store"], ["bench", "startup"], ["data"], ["data", "digits"],
                ["data", "show"], ["data", "mnist"], ["bench", "rpc"], ["launch"], ["submit"], ["ckpt"],
                ["ckpt", "show"], ["ckpt", "verify"], ["ckpt", "diff"], ["ckpt", "convert"], ["plot"], ["doctor"],
                ["completion"])

    def test_help_fits(self):
        for command in self.COMMANDS:
            for columns in (60, 80, 200):
                text = on_terminal(*command, "--help", columns=columns, NO_COLOR="1")
                self.assertIn("usage: tutti " + " ".join(command), text)
                # Examples stay as they are.
                lines = [line for line in text.split("\n")
                         if not re.match(r"  (tutti|RANK|export|bash:|zsh:|fish:|   +-)| {", line)]
                self.assertLessEqual(max(map(len, lines)), min(columns, 120), (command, columns))
            text = tutti(*command, "--help").stdout
            self.assertNotIn("\033", text)
            self.assertIn("-h, --help", text) if command not in (["bench"], ["data"], ["ckpt"]) else None

    def test_manual_pages_name_every_flag(self):
        for command in self.COMMANDS:
            page = "-".join(["tutti", *(word for word in command[:1] if word != "completion")]) + ".1"
            with open(os.path.join(os.environ["TT_SOURCE"], "docs", "man", page), encoding="utf-8") as file:
                named = set(re.findall(r"--[a-z0-9-]+", file.read().replace("\\-", "-")))
            flags = set(re.findall(r"(?m)^  (?:-\w, )?(--[a-z0-9-]+)", tutti(*command, "--help").stdout))
            self.assertEqual(flags - named - {"--help"}, set(), page)

    def test_pages_name_flags_that_there_are(self):
        """Flags behind `tutti COMMAND` in pages, headers and examples, up to a program's name."""
        has, source = {}, pathlib.Path(os.environ["TT_SOURCE"])
        for words in self.COMMANDS:
            if words and words != ["completion"]:
                has.setdefault(words[0], set()).update(re.findall(r"--[a-z0-9-]+", tutti(*words, "--help").stdout))
        has["submit"] |= has["run"]
        named = re.compile(rf"tutti ({'|'.join(has)})((?: -[\w=:.-]+| [A-Z]+\b| `?[\w.]+`?(?= --))*)")
        for pattern in ("README.md", "docs/*.md", "docs/launch/*.md", "docs/man/*.1", "include/tutti/*.h"):
            for path in source.glob(pattern):
                for command, flags in named.findall(path.read_text(encoding="utf-8").replace("\\-", "-")):
                    flags = {flag.replace("_", "-") for flag in re.findall(r" (--[a-z0-9_-]+)", flags)}
                    self.assertEqual(flags - has[command] - {"--help"}, set(), (path, command))

    def test_columns_of_a_pipe(self):
        lines = tutti("run", "--help", COLUMNS="60").stdout.split("\n")
        self.assertLessEqual(max(len(line) for line in lines if not line.startswith("  tutti run")), 60)

    def test_errors_wrap_on_terminals_alone(self):
        text = on_terminal("run", "--tee=4", "true", columns=50, NO_COLOR="1")
        self.assertLessEqual(max(map(len, text.split("\n"))), 50)
        self.assertIn("tutti run: --tee: expected 0 (nothing)", " ".join(text.split()))
        self.assertEqual(len(tutti("run", "--tee=4", "true", code=2).stderr.split("\n")), 3)


    def test_reports_wrap_and_are_coloured_on_terminals_alone(self):
        script = "echo a line of its own that is far longer than sixty columns, and stays so >&2; exit 3"
        text = on_terminal("run", "--standalone", "sh", "-c", script, columns=60)
        self.assertIn("\033[31mtutti run\033[0m: rank 0 failed first: exit code 3", text)
        self.assertIn("    | a line of its own that is far longer than sixty columns, and stays so\n", text)
        report = text[text.index("rank 0 failed first"):].split("\n")
        self.assertLessEqual(max(len(line) for line in report if "|" not in line), 60)
        plain = tutti("run", "--standalone", "sh", "-c", script, code=3).stderr
        self.assertRegex(plain, r"(?m)^tutti run: rank 0 failed first: exit code 3 "
                                r"\(local rank 0, pid .* after the start\)$")


class Terminals(unittest.TestCase):
    def test_stderr_of_ranks_is_a_terminal_where_the_launchers_is(self):
        script = 'test -t 2 && stty size <&2; printf "\\033[32mgreen\\033[0m\\n" >&2'
        text = on_terminal("run", "--standalone", "--nproc-per-node=2", "sh", "-c", script, columns=93)
        self.assertEqual(text.count("24 93\n"), 2, text)
        self.assertEqual(text.count("\033[32mgreen\033[0m\n"), 2, text)
        self.assertIn("none", tutti("run", "--standalone", "sh", "-c", "test -t 2 || echo none").stdout)

    def test_ranks_hear_of_a_new_size(self):
        """Also those that the terminal does not tell; and whoever asked when ours was still the old one."""
        script = 'trap \'case $(stty size <&2) in "30 61") echo new; exit 0;; esac\' WINCH; echo up; ' \
                 'while :; do sleep 0.05; done'
        for wrapper in ([], ["sh", "-c", 'timeout 600 "$@"; exit $?', "sh"]):
            pid, fd = pty.fork()
            if pid == 0:
                os.execve(TUTTI, [TUTTI, "run", "--standalone", *wrapper, "sh", "-c", script], PLAIN)
            text = terminal.read_until(fd, b"up\r\n", DEADLINE)
            ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 61, 0, 0))
            text += terminal.read_until(fd, b"new\r\n", DEADLINE)
            terminal.read_rest(fd)
            self.assertEqual(os.waitpid(pid, 0)[1], 0, text)


class Signals(unittest.TestCase):
    SCRIPT = 'trap "echo >$0.got; exit 0" INT HUP; echo >$0.up; while :; do sleep 0.05; done'

    def run_until(self, wrapper, strike):
        """Start a worker on a terminal, strike when it is up; how the worker saw it."""
        with tempfile.TemporaryDirectory() as folder:
            name = os.path.join(folder, "worker")
            argv = [TUTTI, "run", "--standalone", "--grace-period=5", *wrapper, "sh", "-c", self.SCRIPT, name]
            pid, fd = pty.fork()
            if pid == 0:
                os.execve(argv[0], argv, PLAIN)
            deadline = time.monotonic() + DEADLINE
            while not os.path.exists(name + ".up") and time.monotonic() < deadline:
                time.sleep(0.02)
            strike(fd)
            os.waitpid(pid, 0)
            return os.path.exists(name + ".got")

    def test_who_left_the_process_group_hears_an_interrupt(self):
        """timeout(1) passes nothing on until it knows its child's pid, which may be up by then: that is tried again."""
        for wrapper in ([], ["setsid"], ["timeout", "600"], ["sh", "-c", 'timeout 600 "$@"; exit $?', "sh"]):
            heard = any(self.run_until(wrapper, lambda fd: os.write(fd, b"\3")) for _ in range(3))
            self.assertTrue(heard, wrapper)

    def test_the_end_of_the_terminal_reaches_the_workers(self):
        self.assertTrue(self.run_until([], os.close))


def limited_group(limit):
    """A control group of at most that much memory; None where this user can't make one."""
    for line in open("/proc/self/cgroup"):
        _, controllers, path = line.rstrip("\n").split(":", 2)
        top, file = {"": ("/sys/fs/cgroup", "memory.max"),
                     "memory": ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")}.get(controllers, (None, None))
        folder = f"{top}{path}/tutti-test-{os.getpid()}"
        try:
            os.mkdir(folder)
        except (OSError, ValueError):
            continue
        try:
            with open(os.path.join(folder, file), "w") as out:
                out.write(str(limit))
            return folder
        except OSError:
            os.rmdir(folder)
    return None


class Memory(unittest.TestCase):
    def test_a_kill_for_memory_is_told_with_the_limit(self):
        group = limited_group(100 << 20)
        if not group:
            self.skipTest("no control group can be made here")
        eat = "test $RANK = 0 && exec sleep 600; {} python3 -c 'x = b\"a\" * (1 << 29)'; exit $?"
        said = {}
        try:
            for how in ("exec", ""):  # as a rank itself, and below a shell, which exits with 137 then
                said[how] = subprocess.run(["sh", "-c", f'echo $$ >{group}/cgroup.procs; exec "$0" "$@"', TUTTI, "run",
                                            "--standalone", "--nproc-per-node=2", "--settle-period=0.1", "sh", "-c",
                                            eat.format(how)],
                                           capture_output=True, text=True, timeout=DEADLINE, env=PLAIN).stderr
        finally:
            os.rmdir(group)
        self.assertIn("rank 1 failed first: killed by SIGKILL", said["exec"])
        self.assertIn("rank 1 failed first: exit code 137", said[""])
        self.assertIn("    a process that it started was killed by the kernel because memory ran out", said[""])
        for text in said.values():
            self.assertIn(f"because memory ran out: this control group (container) may have {100 << 20} bytes", text)


class Stderr(unittest.TestCase):
    def test_a_message_is_written_at_once(self):
        """Launchers of several nodes may share a stderr; this one keeps what is written at a time apart."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        ours.settimeout(DEADLINE)
        with ours, theirs:
            subprocess.run([TUTTI, "run", "no-such-program"], stderr=theirs, timeout=DEADLINE, env=PLAIN, check=False)
            self.assertEqual(ours.recv(4096), b"tutti run: no-such-program: there is no such program in PATH\n")


class FileSize(unittest.TestCase):
    def test_a_full_log_does_not_end_the_job(self):
        """The launcher's stderr is a file that may not grow (ulimit -f): what the ranks write there is lost."""
        limit = 1 << 16
        write = (f"import os, resource, signal; resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit})); "
                 "signal.signal(signal.SIGXFSZ, signal.SIG_DFL); "
                 "os.execv(os.environ['TUTTI'], ['tutti', 'run', '--standalone', 'sh', '-c', "
                 f"'head -c {4 * limit} /dev/zero | tr \\\\0 x >&2; echo worked'])")
        with tempfile.TemporaryFile() as log:
            done = subprocess.run([sys.executable, "-c", write], stdout=subprocess.PIPE, stderr=log, text=True,
                                  timeout=DEADLINE, env=PLAIN)
            self.assertEqual((done.returncode, done.stdout), (0, "worked\n"))
            self.assertEqual(log.seek(0, os.SEEK_END), limit)


def with_stack(kilobytes, *argv):
    """A command, all of whose processes may have that much of a stack (ulimit -s)."""
    return subprocess.run(["sh", "-c", f'ulimit -s {kilobytes} && exec "$0" "$@"', TUTTI, *argv], capture_output=True,
                          text=True, timeout=DEADLINE, env=PLAIN)


@unittest.skipIf("TT_SANITIZED" in os.environ, "a sanitizer's frames take more")
class SmallStack(unittest.TestCase):
    def test_the_command_has_room(self):
        for code, *argv in ((0, "run", "--standalone", "--nproc-per-node=2", "sh", "-c", "ulimit -s"),
                            (0, "bench", "startup", "--jobs=1"), (1, "plot", "missing")):
            done = with_stack(64, *argv)
            self.assertEqual(done.returncode, code, f"{argv}: {done.stderr}")
            if argv[0] == "run":
                self.assertEqual(done.stdout, "64\n" * 2)

    def test_shards_of_a_rank_are_joined(self):
        train = os.path.join(os.environ["TT_PROGRAMS"], "virtual_train")
        done = with_stack(192, "run", "--standalone", "--nproc-per-node=3", train, "model=mlp", "virtual=5")
        self.assertEqual(done.returncode, 0, done.stderr)


class Colours(unittest.TestCase):
    def test_who_gets_colours(self):
        self.assertIn("\033[1musage:\033[0m", on_terminal("--help"))
        self.assertIn("\033[31mtutti:\033[0m unknown command", on_terminal("walk"))
        for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": ""}, {"NO_COLOR": "1", "CLICOLOR_FORCE": "1"}):
            self.assertNotIn("\033", on_terminal("--help", **env))
        self.assertNotIn("\033", tutti("--help", TERM="xterm").stdout)
        self.assertNotIn("\033", tutti("walk", code=2, TERM="xterm").stderr)
        self.assertIn("\033[1m", tutti("--help", CLICOLOR_FORCE="1").stdout)
        self.assertNotIn("\033", tutti("--help", CLICOLOR_FORCE="0").stdout)


TRY_BASH = r"""
set -u
source "$1"
shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
_tutti
printf '%s\n' "${COMPREPLY[@]}"
"""

TRY_ZSH = r"""
compdef() { }
source "$1"
shift
local -a typed=("${@[1,-2]}")
_tutti_offers
print -l -- ${=offers} ${=flags}
"""

# What is typed after "tutti"; some of what is offered; what is not.
CASES = (([""], {"run", "top", "completion"}, {"--nproc-per-node", "all_reduce"}),
         (["run", "--nproc-per-node", ""], {"auto", "cpu"}, {"--standalone"}), (["run", "--standalone",
         "--rdzv-backend", ""], {"static", "c10d", "etcd"}, set()), (["run", "--standalone", "--"], {"--store-auth",
         "--trace", "--help"}, {"--once", "--monitor-interval", "--logs-specs"}), (["bench", ""], {"all_reduce", "step",
         "store"}, {"run"}), (["bench", "all_reduce", "--dtype", ""], {"f32", "bf16"}, set()), (["bench", "step", "--"],
         {"--model", "--steps"}, {"--dtype"}), (["completion", ""], {"bash", "zsh", "fish"}, set()))


class Completion(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()

    def tearDown(self):
        self.folder.cleanup()

    def script(self, shell):
        """Its path, after the shell itself has found nothing wrong with it."""
        path = os.path.join(self.folder.name, shell)
        with open(path, "w", encoding="utf-8") as file:
            file.write(tutti("completion", shell).stdout)
        subprocess.run([shell, "--no-execute" if shell == "fish" else "-n", path], check=True, timeout=DEADLINE)
        return path

    def offers(self, argv):
        said = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=DEADLINE).stdout
        return set(said.split("\n")) - {""}

    def check(self, ask):
        for typed, some, none in CASES:
            offered = ask(typed)
            self.assertLessEqual(some, offered, typed)
            self.assertFalse(none & offered, typed)

    def need(self, shell):
        if not shutil.which(shell):
            self.skipTest(f"there is no {shell} here")

    def test_bash(self):
        self.need("bash")
        path = self.script("bash")

        def ask(typed):
            return self.offers(["bash", "--norc", "-c", TRY_BASH, "try", path, "tutti", *typed])
        self.check(ask)
        self.assertEqual(ask(["run", "--nproc-per-node", "=", "a"]), {"auto"})  # so bash takes --nproc-per-node=a apart
        self.assertEqual(ask(["run", "--nproc-per-node", "="]), {"auto", "cpu", "gpu"})
        self.assertEqual(ask(["run", "--nproc-per-node", "=", "2", "--rdzv-b"]), {"--rdzv-backend"})
        self.assertEqual(ask(["run", "./prog", "--st"]), set())  # the program's own flags
        here = os.path.join(os.environ["TT_SOURCE"], "READ")
        self.assertEqual(ask(["run", "--trace", here]), {here + "ME.md"})
        self.assertEqual(ask(["data", "digits", os.path.join(os.environ["TT_SOURCE"], "inclu")]),
                         {os.path.join(os.environ["TT_SOURCE"], "include")})

    def test_zsh(self):
        self.need("zsh")
        path = self.script("zsh")
        self.check(lambda typed: self.offers(["zsh", "-f", "-c", TRY_ZSH, "try", path, *typed]))

    def test_fish(self):
        self.need("fish")
        path = self.script("fish")

        def ask(typed):
            line = "tutti " + " ".join(typed)
            said = self.offers(["fish", "--no-config", "-c", f"source {path}; complete -C '{line}'"])
            return {each.split("\t")[0] for each in said}
        self.check(ask)

    def test_every_flag_of_the_help_is_offered(self):
        for command in Help.COMMANDS:
            flags = set(re.findall(r"(?m)^  (?:-\w, )?(--[a-z0-9-]+)", tutti(*command, "--help").stdout))
            path = "tutti " + " ".join(command)
            offered = re.search(rf"'{path.strip()}'\) flags='([^']*)'", tutti("completion", "bash").stdout)[1].split()
            self.assertEqual(flags | {"--help"}, set(offered), command)


if __name__ == "__main__":
    unittest.main(verbosity=1)
