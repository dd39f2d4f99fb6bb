#!/usr/bin/env python3
"""Environment variables and files that make no sense: one error each, which says what was expected, what came, and
where."""
import os
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(os.environ["TT_SOURCE"]) / "tests" / "support"))
from patience import DEADLINE, free_port  # noqa: E402

TUTTI = os.environ["TUTTI"]
RANK = str(pathlib.Path(os.environ["TT_PROGRAMS"]) / "reduce_forever")
WHO = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
SECRET = "0123456789abcdef0123456789abcdef"

# What is set, and what the error says. None: not set.
SETTINGS = [
    ({"MASTER_PORT": "abc"}, 'MASTER_PORT: expected a number from 0 to 65535, got "abc"'),
    ({"MASTER_PORT": "70000"}, 'MASTER_PORT: expected a number from 0 to 65535, got "70000"'),
    ({"MASTER_PORT": " 29500"}, 'MASTER_PORT: expected a number from 0 to 65535, got " 29500"'),
    ({"MASTER_PORT": ""}, "MASTER_PORT: expected a number from 0 to 65535, but it is empty"),
    ({"MASTER_PORT": None}, "env:// needs RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT .*: MASTER_PORT: .* not set"),
    ({"WORLD_SIZE": "0"}, 'WORLD_SIZE: expected a number from 1 to [0-9]+, got "0"'),
    ({"WORLD_SIZE": "99999999999999999999"}, "WORLD_SIZE: expected a number"),
    ({"RANK": "7", "WORLD_SIZE": "4"},
     "RANK and WORLD_SIZE: the rank must be from 0 to 3 in a world of 4, but it is 7"),
    ({"RANK": "-1"}, 'RANK: expected a number from 0 to [0-9]+, got "-1"'),
    ({"RANK": "1.5"}, 'RANK: expected a number from 0 to [0-9]+, got "1.5"'),
    ({"MASTER_ADDR": ""}, "MASTER_ADDR: expected a host name or address, but it is empty"),
    ({"MASTER_ADDR": "my host"}, r'MASTER_ADDR: expected a host name or address .*, got "my host"'),
    ({"MASTER_ADDR": "http://node0"}, r"MASTER_ADDR: expected a host name or address"),
    ({"MASTER_ADDR": "127.0.0.1:29500"}, r"MASTER_ADDR: expected a host name or address \(its port is MASTER_PORT\)"),
    ({"TT_TRANSPORT": "avian"}, 'TT_TRANSPORT.* auto, shm or tcp, got "avian"'),
    ({"TT_INIT_METHOD": "avian://x"}, 'expected an init_method env://, .* or etcd://host:port/job, got "avian://x"'),
    ({"TT_TLS": "yes"}, 'TT_TLS: expected 1 or 0, got "yes"'),
    ({"TT_WIRE": "yes"}, 'TT_WIRE: expected sealed, plain or tls, got "yes"'),
    ({"TT_WIRE": "sealed"}, "TT_WIRE=sealed needs a job secret: .*TT_SECRET"),
    ({"TT_WIRE": "plain", "TT_TLS": "1"}, "TT_TLS=1 asks for tls, TT_WIRE=plain for something else"),
    ({"TT_TLS": "1"}, "TT_TLS=1 needs a job secret .* or certificates"),
    ({"TT_TLS": "1", "TT_TLS_CERT": "/nonexistent"}, "TT_TLS_KEY is not set"),
    ({"TT_TLS": "1", "TT_TLS_CERT": "/nonexistent", "TT_TLS_KEY": "k", "TT_TLS_CA": "c"},
     "TT_TLS_CERT=/nonexistent can't be used: No such file"),
    ({"TT_SECRET": "short"},
     "TT_SECRET: expected a job secret of 16 to 1024 bytes, but it has 5. Make one with: openssl"),
    ({"TT_SECRET_FILE": "/nonexistent"},
     "TT_SECRET_FILE: secret file /nonexistent: there is no such file. Make it with"),
    ({"TT_SECRET_FD": "x"}, 'TT_SECRET_FD: expected a number from 0 to [0-9]+, got "x"'),
    ({"TT_SECRET_FD": "99"}, "TT_SECRET_FD=99: the job secret .* is not there: .* has closed the descriptor"),
    ({"TT_SECRET_FD": "0"}, "TT_SECRET_FD=0: expected the sealed memory .* but the descriptor is another file"),
]
# What a rank says of itself when it can reach the store.
SETTINGS_MET = [
    ({"TT_HOST_ID": " "}, 'TT_HOST_ID: expected at most [0-9]+ characters and no space, got " "'),
    ({"TT_HOST_ID": "x" * 3000}, "TT_HOST_ID: expected at most [0-9]+ characters"),
]
# Of a rank that is alone, too.
SETTINGS_ALONE = [
    ({"TT_SYMMETRIC_HEAP": "garbage"},
     'TT_SYMMETRIC_HEAP: expected bytes from 4096 to 64T, such as 64M or 2G, got "garbage"'),
    ({"TT_SYMMETRIC_HEAP": "100T"}, 'TT_SYMMETRIC_HEAP: expected bytes from 4096 to 64T.*, got "100T"'),
    ({"TT_SYMMETRIC_HEAP": "9" * 40}, "TT_SYMMETRIC_HEAP: expected bytes from 4096 to 64T"),
    ({"TT_ALGORITHMS": "%n%s"}, 'TT_ALGORITHMS.*: expected OP=ALGORITHM, got "%n%s"'),
    ({"TT_WAIT_NOTICE": "abc"}, 'TT_WAIT_NOTICE: expected seconds from 0 to 86400, got "abc"'),
    ({"TT_CRASH_STACKS": "-1"}, 'TT_CRASH_STACKS: expected seconds from 0 to 86400, got "-1"'),
    ({"TT_DEBUG": "yes"}, 'TT_DEBUG: expected 1 or 0, got "yes"'),
    ({"TT_BACKEND_CHECK": "off"}, 'TT_BACKEND_CHECK: expected 1 or 0, got "off"'),
    ({"TT_ROUND": "second"}, 'TT_ROUND: expected a number from 0 to [0-9]+, got "second"'),
]
# Of the launcher's environment, before it starts anything.
SETTINGS_LAUNCHED = [setting for setting in SETTINGS_ALONE
                     if setting[0].keys() & {"TT_WAIT_NOTICE", "TT_CRASH_STACKS", "TT_DEBUG"}]


def environment(changes):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("TT_", "PET_"))}
    env["TMPDIR"] = os.environ.get("TMPDIR", "/tmp")
    env.update({name: value for name, value in changes.items() if value is not None})
    return env


def run(argv, changes):
    done = subprocess.run(argv, env=environment(changes), capture_output=True, text=True, timeout=DEADLINE, check=False,
                          stdin=subprocess.DEVNULL)
    return done.returncode, done.stderr


class Settings(unittest.TestCase):
    def refused(self, argv, changes, text, code=1):
        with self.subTest(changes=changes, argv=argv[1:]):
            returned, err = run(argv, changes)
            self.assertEqual(returned, code, err)
            self.assertRegex(err, text)
            self.assertEqual(len(re.findall(text, err)), 1, err)
            self.assertLess(len(err), 1200)

    def test_of_a_rank(self):
        for changes, text in SETTINGS:
            self.refused([RANK], {**WHO, **changes}, text)
        for changes, text in SETTINGS_MET:
            self.refused([RANK], {**WHO, "MASTER_PORT": str(free_port()), **changes}, text)
        for changes, text in SETTINGS_ALONE:
            self.refused([RANK], {**WHO, "WORLD_SIZE": "1", "MASTER_PORT": "0", **changes}, text)

    def test_of_the_launcher(self):
        for changes, text in [({"PET_NPROC_PER_NODE": "abc"}, '--nproc-per-node: expected a number .*, got "abc"'),
                              ({"PET_NNODES": "0"}, '--nnodes: expected a number from 1 to [0-9]+, got "0"'),
                              ({"PET_STANDALONE": "maybe"}, 'PET_STANDALONE: expected 1 or 0, got "maybe"'),
                              ({"PET_STORE_AUTH": "all"}, 'expected local, required or none, got "all"'),
                              ({"PET_MASTER_ADDR": "my host"}, '--master-addr: can\'t resolve "my host"')]:
            self.refused([TUTTI, "run", "true"], changes, text, code=2)
        for changes, text in SETTINGS_LAUNCHED:
            self.refused([TUTTI, "run", "true"], changes, text, code=2)

    def test_a_program_that_closes_the_secret(self):
        """As Python's subprocess does, unless it is told which descriptors to leave open."""
        start = "import os, subprocess, sys; sys.exit(subprocess.call(sys.argv[2:], pass_fds=eval(sys.argv[1])))"
        leave = '[int(os.environ["TT_SECRET_FD"])]'
        alone = str(pathlib.Path(os.environ["TT_BUILD"]) / "examples" / "bare_ring_all_reduce")
        job = [TUTTI, "run", "--standalone", "--nproc-per-node=2", sys.executable, "-c", start]
        code, err = run([*job, "[]", alone], {})
        self.assertEqual(code, 1, err)
        self.assertRegex(err, "TT_SECRET_FD=[0-9]+: .* has closed the descriptor, as Python's subprocess does without "
                              "pass_fds; leave that descriptor open, or start `tutti run` with TT_SECRET_FILE")
        code, err = run([*job, leave, alone], {})
        self.assertEqual(code, 0, err)
        with tempfile.NamedTemporaryFile() as file:  # as the error says
            file.write(SECRET.encode())
            file.flush()
            code, err = run([*job, "[]", alone], {"TT_SECRET_FILE": file.name})
            self.assertEqual(code, 0, err)

    def test_of_secret_files(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "secret"
            for content, mode, text in [(b"", 0o600, "expected a job secret of 16 to 1024 bytes, but it has 0"),
                                        (b"short\n", 0o600, "expected a job secret of 16 to 1024 bytes, but it has 5"),
                                        (b"x" * 1025, 0o600,
                                         "expected a job secret of 16 to 1024 bytes, but it is longer"),
                                        (SECRET.encode() + b"\0", 0o600, "expected text, but there is a zero byte"),
                                        (SECRET.encode(), 0o640, r"others may read it \(mode 640\). Run: chmod 600 ")]:
                path.write_bytes(content)
                path.chmod(mode)
                self.refused([TUTTI, "run", "--standalone", f"--secret-file={path}", "true"], {},
                             f"--secret-file: secret file {path}: {text}")
            for ending in ("", "\n", "\r\n"):
                path.write_text(SECRET + ending)
                path.chmod(0o600)
                code, err = run([TUTTI, "run", "--standalone", f"--secret-file={path}", "sh", "-c",
                                 f'[ "$(cat /proc/self/fd/$TT_SECRET_FD)" = {SECRET} ]'], {})
                self.assertEqual(code, 0, err)
            self.refused([TUTTI, "run", "--standalone", f"--secret-file={folder}", "true"], {}, "but it is a directory")
            self.refused([TUTTI, "run", "--standalone", f"--secret-file={folder}/none", "true"], {},
                         "there is no such file")
            if os.geteuid() == 0:
                os.chown(path, 65534, 65534)
                self.refused([TUTTI, "run", "--standalone", f"--secret-file={path}", "true"], {},
                             "it belongs to user 65534, expected 0 or root")

    def test_of_a_secret_file_that_a_list_lends(self):
        """systemd lends a credential to a service's user by an access control list, and the mode then says 440."""
        def acl(*entries):
            return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)

        anyone, me, other = 0xFFFFFFFF, os.geteuid(), 65534 if os.geteuid() != 65534 else 65533
        owner, no_group, mask, others = (1, 4, anyone), (4, 0, anyone), (16, 4, anyone), (32, 0, anyone)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "secret"
            path.write_text(SECRET)
            command = [TUTTI, "run", "--standalone", f"--secret-file={path}", "true"]
            for good, *entries in [(True, owner, (2, 4, me), no_group, mask, others),
                                   (False, owner, (2, 4, other), no_group, mask, others),
                                   (False, owner, (2, 4, me), (4, 4, anyone), mask, others),
                                   (False, owner, no_group, (8, 4, other), mask, others),
                                   (False, owner, (2, 4, me), no_group, mask, (32, 4, anyone))]:
                try:
                    os.setxattr(path, "system.posix_acl_access", acl(*entries))
                except OSError as why:
                    self.skipTest(f"no access control lists here: {why}")
                self.assertEqual(path.stat().st_mode & 0o070, 0o040)
                if good:
                    self.assertEqual(run(command, {})[0], 0)
                else:
                    self.refused(command, {}, "others may read it")


if __name__ == "__main__":
    unittest.main()
