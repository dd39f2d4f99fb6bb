#!/usr/bin/env python3
"""What another user puts where root writes, in a folder as /tmp: links, FIFOs and files of his own. Nothing is written
through them, each is one error at once, and stays. Needs root."""
import hashlib
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(os.environ["TT_SOURCE"]) / "tests" / "support"))
from patience import DEADLINE  # noqa: E402

BUILD = pathlib.Path(os.environ["TT_BUILD"])
LOG = BUILD / "tests/security/log_scalars"
DOWNLOAD, UNTAR = (BUILD / "tests/dist" / name for name in ("download_file", "untar_files"))
TUTTI = os.environ["TUTTI"]
OWNER, STRANGER = 61234, 61235  # users that no machine has
SECRET = "line 1\nunfinished secret"
CONTENT = b"what was to be downloaded"


class Planted(unittest.TestCase):
    def setUp(self):
        self.base = pathlib.Path(tempfile.mkdtemp(prefix="tutti-planted-"))
        self.addCleanup(shutil.rmtree, self.base)
        self.base.chmod(0o755)
        self.shared, self.secret = self.base / "shared", self.base / "secret"
        self.shared.mkdir()
        self.shared.chmod(0o1777)
        self.secret.write_text(SECRET)
        self.secret.chmod(0o600)

    def stranger(self, script, *arguments):
        subprocess.run(["sh", "-c", "umask 0; " + script, "sh", *arguments], cwd=self.shared, user=STRANGER,
                       group=STRANGER, extra_groups=[], check=True)

    def refused(self, program, *arguments, text, code=1, **environment):
        done = subprocess.run([program, *arguments], cwd=self.base, capture_output=True, text=True, timeout=DEADLINE,
                              check=False, env=dict(os.environ, **environment))
        self.assertEqual(done.returncode, code, done.stderr)
        self.assertIn(text, done.stderr)
        self.assertEqual(self.secret.read_text(), SECRET)

    def test_a_table_of_scalars(self):
        table = self.shared / "scalars.csv"
        for script, text in (('ln -s "$1" scalars.csv', "symbolic link"), ("mkfifo scalars.csv", "got a FIFO"),
                             ("ln -s ../new scalars.csv", "symbolic link"), ("echo >scalars.csv", "user's file")):
            with self.subTest(script):
                self.stranger(script, self.secret)
                before = os.lstat(table)
                self.refused(LOG, self.shared, text=text)
                after = os.lstat(table)
                self.assertEqual((after.st_ino, after.st_size), (before.st_ino, before.st_size))
                table.unlink()
        self.assertFalse((self.base / "new").exists())

    def test_another_name_of_a_file(self):
        # The kernel lets strangers make one where protected_hardlinks is 0.
        os.link(self.secret, self.shared / "scalars.csv")
        self.refused(LOG, self.shared, text="hard links")

    def test_a_run_goes_on_in_its_own_table(self):
        own = self.base / "own.csv"
        os.symlink("../own.csv", self.shared / "scalars.csv")
        for _ in range(2):
            subprocess.run([LOG, self.shared], check=True, timeout=DEADLINE)
        self.assertEqual(own.read_text().count("loss"), 2)

    def test_a_folder_that_is_a_link(self):
        theirs = self.base / "theirs"
        theirs.mkdir()
        self.stranger("ln -s ../theirs run")
        for folder in ("run", "run/", "run/below"):
            self.refused(LOG, f"{self.shared}/{folder}", text="symbolic link")
        self.refused(TUTTI, "tune", "--world=2", "--transport=tcp", f"--out={self.shared}/run/table",
                     text="symbolic link")
        self.refused(TUTTI, "data", "digits", f"{self.shared}/run/", text="symbolic link")
        self.assertEqual(os.listdir(theirs), [])

    def test_a_folder_of_logs(self):
        theirs = self.base / "theirs"
        theirs.mkdir()
        self.stranger("ln -s ../theirs link; mkdir -m 777 own; mkdir -m 777 own/below")
        for folder, text in (("link", "symbolic link"), ("link/", "symbolic link"), ("link/below", "symbolic link"),
                             ("own", "another user's folder"), ("own/below", "another user's folder")):
            self.refused(TUTTI, "run", f"--log-dir={self.shared}/{folder}", "--redirects=3", "true", text=text)
        self.assertEqual(os.listdir(theirs) + os.listdir(self.shared / "own"), ["below"])
        self.assertEqual(os.listdir(self.shared / "own" / "below"), [])

    def test_links_in_the_folder_of_a_group(self):
        """As those of a project: whoever is in the group may put links there."""
        theirs = self.base / "theirs"
        theirs.mkdir()
        os.chown(self.shared, 0, STRANGER)
        self.shared.chmod(0o2775)
        self.stranger('ln -s "$1" scalars.csv; ln -s "$1" table; ln -s ../theirs logs; ln -s ../theirs run',
                      self.secret)
        self.refused(LOG, self.shared, text="another user's symbolic link")
        self.refused(LOG, self.shared / "run", text="another user's symbolic link")
        self.refused(TUTTI, "run", f"--log-dir={self.shared}/logs", "--redirects=3", "true",
                     text="another user's symbolic link")
        self.refused(TUTTI, "bench", "barrier", text="another user's symbolic link", RANK="0", WORLD_SIZE="2",
                     TT_INIT_METHOD=f"file://{self.shared}/run/meet?rank=0&world_size=2")
        for path in ("table", "run/table"):
            self.refused(TUTTI, "tune", "--world=2", "--transport=tcp", f"--out={self.shared}/{path}",
                         text="another user's symbolic link")
        self.assertEqual(os.listdir(theirs), [])

    def test_a_run_whose_folder_of_logs_is_exchanged(self):
        """Whoever may write to the folder above can put another in its place, with links in it."""
        os.chown(self.shared, 0, STRANGER)
        self.shared.chmod(0o2775)
        theirs = self.base / "theirs"
        theirs.mkdir()
        exchange = 'name=$(basename none_*); mv "$name" was; ln -s ../theirs "$name"'
        stranger = ["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups", "sh", "-c", exchange]
        done = subprocess.run([TUTTI, "run", "--rdzv-id=none", f"--log-dir={self.shared}", "--redirects=3",
                               "--max-restarts=1", sys.executable, "-c",
                               f"import os, subprocess\nif os.path.isdir('{self.shared}/was'): raise SystemExit(0)\n"
                               f"subprocess.run({stranger!r}, cwd='{self.shared}', check=True)\nraise SystemExit(1)"],
                              capture_output=True, text=True, timeout=DEADLINE, check=False)
        self.assertIn("what rank 0 writes to stdout is not kept", done.stderr)
        self.assertEqual(os.listdir(theirs), [])

    def test_a_script_whose_error_file_is_a_link(self):
        """In a folder of logs that was exchanged meanwhile."""
        os.chown(self.shared, 0, STRANGER)
        self.shared.chmod(0o2775)
        exchange = ('name=$(basename none_*); mv "$name" was; mkdir -p "$name/attempt_0/0"; '
                    'ln -s ../../../../new "$name/attempt_0/0/error.json"')
        stranger = ["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups", "sh", "-c", exchange]
        script = self.base / "script.py"
        script.write_text(f"import subprocess\nsubprocess.run({stranger!r}, cwd='{self.shared}', check=True)\n"
                          "raise ValueError('of the script')\n")
        self.refused(TUTTI, "run", "--rdzv-id=none", f"--log-dir={self.shared}", "--tee=3", "--run-path", script,
                     text="ValueError: of the script")
        self.assertTrue((self.shared / "was").exists())
        self.assertFalse((self.base / "new").exists())

    def test_a_run_whose_folder_of_errors_is_exchanged(self):
        """It is emptied before each attempt and at the end; whoever may write to TMPDIR can give another that name."""
        os.chown(self.shared, 0, STRANGER)
        self.shared.chmod(0o2775)
        precious = self.shared / "results" / "below"
        precious.mkdir(parents=True)
        (precious / "model").touch()
        exchange = 'test -e was || { name=$(basename tutti-*); mv "$name" was; mv results "$name"; }'
        subprocess.run([TUTTI, "run", "--max-restarts=1", "setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}",
                        "--clear-groups", "sh", "-c", f"cd {self.shared}; {exchange}; exit 1"], capture_output=True,
                       timeout=DEADLINE, check=False, env=dict(os.environ, TMPDIR=str(self.shared)))
        self.assertTrue((self.shared / "was").exists())
        self.assertEqual([path.name for path in self.shared.glob("*/below/*")], ["model"])

    def test_reports_of_errors_whose_folder_is_exchanged(self):
        """What another folder has under their names is neither read nor removed."""
        os.chown(self.shared, 0, STRANGER)
        self.shared.chmod(0o2775)
        precious = self.base / "precious"
        precious.mkdir()
        links = ('mkdir -p "$name/attempt_0" "$name/attempt_1"; ln -s ../../../precious "$name/attempt_0/0"; '
                 'ln -s ../../../precious "$name/attempt_1/0"')
        for file, name, exchange, flags in (
                ("error.json", "none_*", links, ["--rdzv-id=none", f"--log-dir={self.shared}", "--tee=3"]),
                ("worker-0.json", "tutti-*", 'ln -s ../precious "$name"', [])):
            with self.subTest(file):
                (precious / file).write_text('{"message": "of another job"}')
                done = subprocess.run(
                    [TUTTI, "run", "--max-restarts=1", *flags, "setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}",
                     "--clear-groups", "sh", "-c", f"cd {self.shared}; test -e was || {{ name=$(basename {name}); "
                     f"mv \"$name\" was; {exchange}; }}; exit 1"], capture_output=True, text=True, timeout=DEADLINE,
                    check=False, env=dict(os.environ, TMPDIR=str(self.shared)))
                self.assertTrue((self.shared / "was").exists(), done.stderr)
                self.assertNotIn("of another job", done.stderr)
                self.assertEqual(os.listdir(precious), [file])
                (precious / file).unlink()
                shutil.rmtree(self.shared / "was")

    def plugin(self, folder):
        """A back end of the stranger's that leaves a file when it is loaded."""
        if not shutil.which("cc"):
            self.skipTest("needs a compiler")
        proof = self.shared / "was-loaded"
        source = f'#include <fcntl.h>\n__attribute__((constructor)) static void f(void) {{ creat("{proof}", 0644); }}\n'
        path = self.base / "plugin.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", path], input=source, text=True, check=True)
        path.chmod(0o644)
        self.stranger(f'mkdir -p "{folder}"; cp ../plugin.so "{folder}/libtutti-backend-gloo.so"')
        return proof

    def doctor(self, program, user=0, **environment):
        done = subprocess.run([program, "doctor"], capture_output=True, text=True, timeout=DEADLINE, check=False,
                              cwd=self.shared, user=user, group=user, extra_groups=[],
                              env=dict(os.environ, **environment))
        self.assertIn("host name", done.stdout, done.stderr)
        return done.stdout

    def test_a_back_end_beside_a_program(self):
        # Where programs of a build tree have theirs: two folders above.
        proof = self.plugin("lib/tutti")
        (self.shared / "own" / "bin").mkdir(parents=True)
        program = shutil.copy(TUTTI, self.shared / "own" / "bin" / "tutti")
        self.assertIn("gloo is not here", self.doctor(program))
        self.stranger("touch CMakeCache.txt")
        self.assertIn("gloo is not here", self.doctor(program))
        (self.shared / "CMakeCache.txt").unlink()
        (self.shared / "CMakeCache.txt").touch()
        self.assertIn("belongs to user", self.doctor(program))
        alone = shutil.copy(TUTTI, self.base / "tutti")  # the build tree's may be beside TUTTI
        self.assertIn("belongs to user", self.doctor(alone, TT_BACKEND_PATH=f"{self.shared}/lib/tutti"))
        self.assertIn("gloo is not here", self.doctor(alone, TT_BACKEND_PATH="lib/tutti"))
        self.assertFalse(proof.exists())

    def set_user_id(self, program):
        if os.statvfs(self.base).f_flag & os.ST_NOSUID:
            self.skipTest("no set-user-id programs on this file system")
        copy = shutil.copy(program, self.base / "program")
        os.chown(copy, OWNER, OWNER)
        os.chmod(copy, 0o4755)
        return copy

    def test_a_program_with_more_rights_than_its_caller(self):
        proof = self.plugin("theirs")
        program = self.set_user_id(TUTTI)
        self.assertIn("gloo is not here", self.doctor(program, user=STRANGER, TT_BACKEND_PATH=f"{self.shared}/theirs"))
        self.assertFalse(proof.exists())
        program = self.set_user_id(LOG)
        for variable in ("TORCHELASTIC_ERROR_FILE",):
            made = self.shared / "made"
            done = subprocess.run([program, "/proc/none"], capture_output=True, text=True, user=STRANGER, check=False,
                                  group=STRANGER, extra_groups=[], env=dict(os.environ, **{variable: str(made)}))
            self.assertIn("can't make the folder", done.stderr)
            self.assertFalse(made.exists())

    def test_nvidia_of_a_program_with_more_rights(self):
        """Variables let NVIDIA's libraries write to files and load code; the machine need not have them here."""
        program = self.set_user_id(TUTTI)
        fake = os.path.join(os.environ["TT_BUILD"], "tests", "fake_cuda")
        gpu = self.base / "root" / "proc" / "driver" / "nvidia" / "gpus" / "0"
        gpu.mkdir(parents=True)
        (gpu / "information").write_text("Model: \t A\nGPU UUID: \t GPU-0\nDevice Minor: \t 0\n")
        (self.base / "root" / "dev").mkdir()
        (self.base / "root" / "dev" / "nvidia0").touch()
        (self.base / "root" / "dev" / "nvidia0").chmod(0o666)
        logs = {name: str(self.base / name) for name in ("CUBLASLT_LOG_FILE", "CUDNN_LOGDEST_DBG", "NCCL_DEBUG_FILE")}
        done = subprocess.run([program, "doctor", "--root", self.base / "root"], capture_output=True, text=True,
                              timeout=DEADLINE, check=False, cwd=self.base, user=STRANGER, group=STRANGER,
                              extra_groups=[], env=dict(os.environ, TT_CUDA_PATH=fake, CUBLASLT_LOG_LEVEL="5",
                                                        CUDNN_LOGINFO_DBG="1", CUDNN_LOGLEVEL_DBG="3",
                                                        NCCL_DEBUG="TRACE", **logs))
        for name in "NVIDIA's driver", "cuBLASLt", "cuDNN", "NCCL":
            self.assertIn(f"{name} is not used by a program that runs with more rights than its caller", done.stdout)
        self.assertFalse([path for path in logs.values() if os.path.exists(path)])

    def test_an_error_file(self):
        empty = self.base / "empty"
        empty.touch()
        self.stranger('ln -s "$1" secret; ln -s "$2" empty; mkfifo queue', self.secret, empty)
        os.link(empty, self.shared / "name")
        for name in ("secret", "empty", "queue", "name", "new"):
            self.refused(LOG, "/proc/none", text="can't make the folder",
                         TORCHELASTIC_ERROR_FILE=f"{self.shared}/{name}")
        self.assertEqual(empty.stat().st_size, 0)
        self.assertIn("can't make the folder", (self.shared / "new").read_text())

    def test_the_folder_of_an_error_file(self):
        """Another user's link is not followed, root's is."""
        theirs = self.base / "theirs"
        theirs.mkdir()
        self.stranger("ln -s ../theirs folder")
        os.symlink("../theirs", self.shared / "own")
        for folder, made in (("folder", []), ("own", ["error.json"])):
            self.refused(LOG, "/proc/none", text="can't make the folder",
                         TORCHELASTIC_ERROR_FILE=f"{self.shared}/{folder}/error.json")
            self.assertEqual(os.listdir(theirs), made)

    def test_a_download(self):
        part = self.shared / "file.bin.part"
        for script, text in (('printf "what was to be downloaded" >file.bin.part', "another user's file"),
                             ("echo >file.bin.part", "another user's file"), ("mkfifo file.bin.part", "regular file"),
                             ('ln -s "$1" file.bin.part', "can't open it")):
            with self.subTest(script):
                self.stranger(script, self.secret)
                before = os.lstat(part)
                self.refused(DOWNLOAD, "file.bin", hashlib.sha256(CONTENT).hexdigest(), str(len(CONTENT)), self.shared,
                             "http://127.0.0.1:1", text=text)
                self.assertEqual(os.listdir(self.shared), ["file.bin.part"])
                after = os.lstat(part)
                self.assertEqual((after.st_ino, after.st_size), (before.st_ino, before.st_size))
                part.unlink()

    def test_a_file_that_is_there_already(self):
        """Its owner could change it when its checksum has been found right."""
        there = self.shared / "file.bin"
        arguments = [DOWNLOAD, "file.bin", hashlib.sha256(CONTENT).hexdigest(), str(len(CONTENT)), self.shared,
                     "http://127.0.0.1:1"]
        self.stranger(f'printf "{CONTENT.decode()}" >file.bin')
        for mode in 0o1777, 0o2775:
            os.chown(self.shared, 0, STRANGER)
            self.shared.chmod(mode)
            self.refused(*arguments, text="another user's file")
        there.rename(self.base / "theirs")
        self.stranger("ln -s ../theirs file.bin")
        self.refused(*arguments, text="another user's symbolic link")
        there.unlink()
        there.write_bytes(CONTENT)
        os.chown(self.shared, STRANGER, STRANGER)
        os.chown(there, STRANGER, STRANGER)
        self.shared.chmod(0o755)  # he has it alone, and root names it
        self.assertEqual(subprocess.run(arguments, capture_output=True, text=True, check=True).stdout, "was there\n")

    def test_a_folder_of_data(self):
        self.stranger("mkdir -m 777 own")
        self.refused(TUTTI, "data", "digits", "--train=1", self.shared / "own", text="another user's folder")
        self.assertEqual(os.listdir(self.shared / "own"), [])

    def test_nobody_waits_for_a_fifo(self):
        self.stranger("mkfifo queue")
        queue = self.shared / "queue"
        for command in (["trace", "--pipeline"], ["plot"], ["ckpt", "show"], ["data", "show"]):
            self.refused(TUTTI, *command, queue, text="expected a")
        for variable in ("TT_TLS_CERT", "TT_TLS_KEY", "TT_TLS_CA"):
            files = dict.fromkeys(("TT_TLS_CERT", "TT_TLS_KEY", "TT_TLS_CA"), "/etc/passwd") | {variable: str(queue)}
            self.refused(TUTTI, "store", "--port=0", text=f"{variable}: {queue}: expected a file, got a FIFO",
                         TT_TLS="1", **files)
        self.refused(TUTTI, "bench", "barrier", text="expected a file, got a FIFO", RANK="0", WORLD_SIZE="2",
                     TT_INIT_METHOD="etcds://127.0.0.1:1/job", TT_ETCD_CA_FILE=str(queue))

    def test_where_the_ranks_of_an_mpirun_meet(self):
        """In /tmp anybody can take the file's name first; in the user's own runtime folder nobody can."""
        own = self.base / "runtime"
        own.mkdir(mode=0o700)
        self.stranger("touch tutti-0-mpi-job")
        env = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_NAMESPACE": "job",
               "TMPDIR": str(self.shared), "XDG_RUNTIME_DIR": str(self.shared)}
        bench = [TUTTI, "bench", "barrier", "--iterations=1", "--no-pin"]
        self.refused(*bench, text="XDG_RUNTIME_DIR", OMPI_COMM_WORLD_RANK="0", **env)
        env["XDG_RUNTIME_DIR"] = str(own)
        ranks = [subprocess.Popen(bench, stdout=subprocess.DEVNULL, env=dict(os.environ, OMPI_COMM_WORLD_RANK=str(rank),
                                                                             **env)) for rank in range(2)]
        self.assertEqual([rank.wait(DEADLINE) for rank in ranks], [0, 0])
        self.assertEqual(os.listdir(own), [])

    def test_an_unpacked_archive(self):
        archive = self.base / "a.tar.gz"
        with tarfile.open(archive, "w:gz", format=tarfile.USTAR_FORMAT) as tar:
            info = tarfile.TarInfo("set/a.bin")
            info.size = len(CONTENT)
            tar.addfile(info, io.BytesIO(CONTENT))
        theirs = self.base / "theirs"
        theirs.mkdir()
        for script, text in (('ln -s ../theirs set', "symbolic link"),
                             ('rm set; mkdir set; ln -s "$1" set/a.bin', "another user's folder")):
            self.stranger(script, self.secret)
            self.refused(UNTAR, archive, self.shared, "set", "a.bin", text=text)
        self.assertEqual(os.listdir(theirs), [])

    def test_event_files_whose_names_are_guessed(self):
        script = """for second in $(seq "$2" $(($2 + 20))); do
            ln -s "$1" "events.out.tfevents.$second.$(hostname).$3.0"
        done"""
        # It waits for a line, so that its number is known before it logs.
        process = subprocess.Popen(["sh", "-c", 'read line; exec "$@"', "sh", LOG, self.shared], stdin=subprocess.PIPE)
        self.stranger(script, self.secret, str(int(time.time())), str(process.pid))
        process.communicate(b"\n", timeout=DEADLINE)
        self.assertEqual(process.returncode, 0)
        self.assertEqual(self.secret.read_text(), SECRET)
        own = [name for name in os.listdir(self.shared) if name.endswith(f".{process.pid}.1")]
        self.assertEqual(len(own), 1, os.listdir(self.shared))


# A process of the stranger's that shares what looks like a rank's memory, but could be made smaller.
SHRINKS = """
import mmap, os, sys
os.setgroups([])
os.setresgid(STRANGER, STRANGER, STRANGER)
os.setresuid(STRANGER, STRANGER, STRANGER)
memory = os.memfd_create("tutti", os.MFD_ALLOW_SEALING)
os.ftruncate(memory, 1 << 22)
seen = mmap.mmap(memory, 4096, mmap.MAP_SHARED, mmap.PROT_READ)
os.pwrite(memory, bytes.fromhex("%s"), 0)
print("ready", flush=True)
sys.stdin.read()
"""
# Sockets whose names hold a line break.
FORGES = """
import os, socket, sys
os.setgroups([])
os.setresgid(STRANGER, STRANGER, STRANGER)
os.setresuid(STRANGER, STRANGER, STRANGER)
listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
listener.bind("\\0tutti-job/1/forged")
listener.listen(1)
other = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
other.bind("\\0x\\n0: 00000002 00000000 00010000 0005 01 9999999 @tutti-job/1/forged")
print("ready", flush=True)
sys.stdin.read()
"""
# A FIFO whose name, since its file system is gone, is that of such a memory.
BLOCKS = """
set -e
mount -t tmpfs none "$1"
mkfifo "$1/memfd:tutti"
exec 9<>"$1/memfd:tutti" 8<"$1/memfd:tutti" 9>&-
umount -l "$1"
[ "$(readlink /proc/$$/fd/8)" = /memfd:tutti ]
echo ready
exec cat
"""


class Looks(unittest.TestCase):
    """What root sees of another user's process, with tutti top --pid, is as that user likes it."""

    def top(self, argv, **popen):
        process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **popen)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.stdin.close)
        if process.stdout.readline() != "ready\n":
            self.skipTest("this can't be made here")
        return subprocess.run([TUTTI, "top", "--once", "--pid", str(process.pid)], capture_output=True, text=True,
                              timeout=DEADLINE, check=False)

    def test_memory_that_may_shrink_is_not_mapped(self):
        header = (pathlib.Path(os.environ["TT_SOURCE"]) / "src/comm/record/recorder.h").read_text()
        magic = re.search(r"TT__RECORDER_MAGIC UINT64_C\(0x([0-9a-f]{16})\)", header).group(1)
        script = SHRINKS.replace("STRANGER", str(STRANGER)) % bytes.fromhex(magic)[::-1].hex()
        done = self.top([sys.executable, "-c", script])
        self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
        self.assertIn("shares no memory as a rank", done.stderr)

    def test_names_of_sockets_make_no_launchers(self):
        """What looks like a line of /proc/net/unix leads to a socket that takes no more calls."""
        if not shutil.which("strace"):
            self.skipTest("strace is not installed")
        process = subprocess.Popen([sys.executable, "-c", FORGES.replace("STRANGER", str(STRANGER))],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.stdin.close)
        self.assertEqual(process.stdout.readline(), "ready\n")
        done = subprocess.run(["strace", "-f", "-e", "trace=connect", TUTTI, "top", "--once", "none"],
                              capture_output=True, text=True, timeout=DEADLINE, check=False)
        self.assertNotIn("tutti-job/1/forged", done.stderr)

    def test_a_fifo_keeps_nobody(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="tutti-looks-"))
        self.addCleanup(folder.rmdir)
        done = self.top(["unshare", "--mount", "sh", "-c", BLOCKS, "sh", folder], stderr=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("shares no memory as a rank", done.stderr)


if __name__ == "__main__":
    if os.geteuid() != 0:
        print("skipped: only root can make files of other users")
        sys.exit(77)
    unittest.main()
