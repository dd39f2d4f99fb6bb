"""Downloads from a server of our own that cuts connections, lies, forgets and fails: what comes is right or an error
that says what was wrong, and what was there is used."""
import fcntl
import hashlib
import http.server
import io
import os
import random
import re
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import unittest

sys.path.insert(0, os.path.join(os.environ["TT_SOURCE"], "tests", "support"))
from patience import DEADLINE  # noqa: E402

PROGRAM, UNTAR = (os.path.join(os.environ["TT_PROGRAMS"], name) for name in ("download_file", "untar_files"))
TUTTI = os.environ["TUTTI"]
CONTENT = random.Random(3).randbytes(300000)
SUM = hashlib.sha256(CONTENT).hexdigest()


class Server(http.server.ThreadingHTTPServer):
    """The first part of a path says how it behaves; `requests` has the (path, first byte) of all."""
    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def mirror(self, behaviour):
        return f"http://127.0.0.1:{self.server_port}/{behaviour}"


class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        behaviour = self.path.split("/")[1]
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        begin = int(match[1]) if match and behaviour != "norange" else 0
        self.server.requests.append((behaviour, int(match[1]) if match else 0))
        content = {"wrong": CONTENT[:-1] + b"?", "long": CONTENT + b"?", "short": CONTENT[:-9]}.get(behaviour, CONTENT)
        if behaviour == "missing":
            return self.send_error(404)
        if behaviour == "moved":
            self.send_response(302)
            self.send_header("Location", self.server.mirror("good") + "/file.bin")
            return self.end_headers()
        if behaviour == "file":
            self.send_response(302)
            self.send_header("Location", "file:///etc/passwd")
            return self.end_headers()
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - begin))
        self.end_headers()
        piece = content[begin:]
        if behaviour == "cut":
            piece = piece[:70000]
        if behaviour == "silent":
            piece = b""
        self.wfile.write(piece)
        if behaviour in ("cut", "silent"):
            self.close_connection = True


class Download(unittest.TestCase):
    def setUp(self):
        self.server = Server()
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-download-")
        self.path = os.path.join(self.folder.name, "file.bin")

    def tearDown(self):
        self.server.shutdown()
        self.server.server_close()
        self.folder.cleanup()

    def run_program(self, *behaviours, sum=SUM, size=len(CONTENT), **options):
        mirrors = [b if ":" in b else self.server.mirror(b) for b in behaviours]
        environment = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
        return subprocess.run([PROGRAM, "file.bin", sum, str(size), self.folder.name, *mirrors], capture_output=True,
                              text=True, timeout=DEADLINE, env=environment, **options)

    def check_good(self, done, text="downloaded\n"):
        self.assertEqual((done.stdout, done.stderr, done.returncode), (text, "", 0))
        with open(self.path, "rb") as file:
            self.assertEqual(file.read(), CONTENT)
        self.assertEqual(os.listdir(self.folder.name), ["file.bin"])

    def check_bad(self, done, *texts):
        self.assertEqual((done.stdout, done.returncode), ("", 1))
        for text in texts:
            self.assertIn(text, done.stderr)
        self.assertFalse(os.path.exists(self.path))

    def write_part(self, content):
        with open(self.path + ".part", "wb") as file:
            file.write(content)

    def test_a_file_comes(self):
        self.check_good(self.run_program("good"))
        self.assertEqual(self.server.requests, [("good", 0)])
        self.check_good(self.run_program("good"), "was there\n")
        self.assertEqual(len(self.server.requests), 1)

    def test_a_redirection_is_followed_but_not_to_other_protocols(self):
        self.check_good(self.run_program("moved"))
        os.unlink(self.path)
        self.check_bad(self.run_program("file"), "TT_ERR_NET: ", "not supported")

    def test_a_cut_connection_is_gone_on_with(self):
        self.check_good(self.run_program("cut"))
        self.assertEqual(self.server.requests, [("cut", begin) for begin in range(0, 300000, 70000)])

    def test_what_an_earlier_call_left_is_used(self):
        self.write_part(CONTENT[:123456])
        self.check_good(self.run_program("good"))
        self.assertEqual(self.server.requests, [("good", 123456)])

    def test_a_whole_part_needs_no_server(self):
        self.write_part(CONTENT)
        self.check_good(self.run_program("good"))
        self.assertEqual(self.server.requests, [])

    def test_a_server_without_ranges_sends_all_again(self):
        self.write_part(CONTENT[:1000])
        self.check_good(self.run_program("norange"))

    def test_a_part_of_something_else_is_dropped(self):
        self.write_part(b"x" * 1000)
        done = self.run_program("good")
        self.check_bad(done, "expected the sha256 checksum " + SUM)
        self.check_good(self.run_program("good"))
        os.unlink(self.path)
        self.write_part(b"x" * (len(CONTENT) + 1))
        self.check_good(self.run_program("good"))

    def test_the_next_mirror_is_tried(self):
        self.check_good(self.run_program("missing", "wrong", "short", "long", "silent", "http://127.0.0.1:1", "good"))

    def test_what_each_mirror_said_is_told(self):
        self.check_bad(self.run_program("missing", "http://127.0.0.1:1"), "/missing/file.bin: ", "404",
                       "http://127.0.0.1:1/file.bin: ")
        self.assertEqual(os.listdir(self.folder.name), [])
        self.check_bad(self.run_program("wrong"), "/wrong/file.bin: ", "got " + hashlib.sha256(
            CONTENT[:-1] + b"?").hexdigest())
        self.check_bad(self.run_program("long"), "expected 300000 bytes, got more")
        self.check_bad(self.run_program("short"), "expected 300000 bytes, got 299991")
        os.unlink(self.path + ".part")
        self.check_bad(self.run_program("silent"), "/silent/file.bin: ")

    def test_a_wrong_file_stays_and_is_named(self):
        with open(self.path, "wb") as file:
            file.write(b"precious")
        done = self.run_program("good")
        self.assertEqual(done.returncode, 1)
        self.assertIn("remove this file to get it again: " + self.path + ": expected the sha256 checksum", done.stderr)
        with open(self.path, "rb") as file:
            self.assertEqual(file.read(), b"precious")

    def test_what_is_no_file_is_named_and_stays(self):
        for make in os.mkfifo, os.mkdir:
            make(self.path)
            done = self.run_program("good")
            self.assertEqual(done.returncode, 1)
            self.assertIn("file.bin: expected a regular file", done.stderr)
            (os.rmdir if make is os.mkdir else os.unlink)(self.path)

    def test_no_space_is_an_error_that_keeps_what_came(self):
        limited = "ulimit -f 200; exec \"$@\""
        done = subprocess.run(["bash", "-c", limited, "sh", PROGRAM, "file.bin", SUM, str(len(CONTENT)),
                               self.folder.name, self.server.mirror("good")], capture_output=True, text=True,
                              timeout=DEADLINE)
        self.check_bad(done, "file.bin.part: can't write it; what is there is kept: File too large")
        self.assertGreater(os.path.getsize(self.path + ".part"), 100000)
        self.check_good(self.run_program("good"))

    def test_two_at_once_dont_mix(self):
        self.write_part(b"")
        with open(self.path + ".part", "wb") as part:
            fcntl.flock(part, fcntl.LOCK_EX)
            self.check_bad(self.run_program("good"), "another process writes it")
        self.assertEqual(os.listdir(self.folder.name), ["file.bin.part"])

    def test_the_folder_must_be_there(self):
        self.folder.cleanup()
        self.assertIn("can't open it", self.run_program("good").stderr)
        os.mkdir(self.folder.name)

    def test_the_command_names_all_files_that_fail(self):
        done = subprocess.run([TUTTI, "data", "mnist", self.folder.name + "/new", "--mirror",
                               self.server.mirror("missing")], capture_output=True, text=True, timeout=DEADLINE)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertEqual(len(re.findall(r"\b404\b", done.stderr)), 4)  # a port may have these digits, too
        self.assertNotIn("\r", done.stderr)

    def test_a_signal_leaves_no_empty_folder(self):
        new = self.folder.name + "/new"
        with subprocess.Popen([TUTTI, "data", "digits", new], stdout=subprocess.PIPE) as process:
            while not os.path.exists(new) and process.poll() is None:
                os.sched_yield()
            process.terminate()
            self.assertEqual(process.wait(DEADLINE), -signal.SIGTERM)
        self.assertEqual(os.listdir(self.folder.name), [])

    def test_a_link_that_leads_nowhere_stays(self):
        os.symlink("nowhere", self.path)
        self.assertIn("remove this file to get it again", self.run_program("good").stderr)
        self.assertEqual(os.readlink(self.path), "nowhere")
        self.assertEqual(os.listdir(self.folder.name), ["file.bin"])

    def test_a_part_that_is_not_ours_stays(self):
        other = self.folder.name + "/other"
        with open(other, "wb") as file:
            file.write(b"precious")
        for make, text in ((lambda path: os.link(other, path), "several names"), (os.mkfifo, "a regular file"),
                           (lambda path: os.symlink(other, path), "can't open it")):
            make(self.path + ".part")
            before = os.lstat(self.path + ".part")
            self.check_bad(self.run_program("good"), "file.bin.part: ", text)
            self.assertEqual(os.lstat(self.path + ".part").st_ino, before.st_ino)
            with open(other, "rb") as file:
                self.assertEqual(file.read(), b"precious")
            os.unlink(self.path + ".part")


class Untar(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-untar-")
        self.archive = os.path.join(self.folder.name, "a.tar.gz")

    def tearDown(self):
        self.folder.cleanup()

    def pack(self, members):
        with tarfile.open(self.archive, "w:gz", format=tarfile.USTAR_FORMAT) as archive:
            for name, content in members.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))

    def unpack(self):
        return subprocess.run([UNTAR, self.archive, self.folder.name, "set", "a.bin", "b.bin"], capture_output=True,
                              text=True, timeout=DEADLINE)

    def test_what_is_wanted_comes_out(self):
        self.pack({"set/readme": b"x" * 700, "set/a.bin": CONTENT, "../evil": b"x", "set/../../evil": b"x",
                   "set/b.bin": b"", "/tmp/evil": b"x"})
        done = self.unpack()
        self.assertEqual((done.stderr, done.returncode), ("", 0))
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["a.tar.gz", "set"])
        self.assertEqual(sorted(os.listdir(self.folder.name + "/set")), ["a.bin", "b.bin"])
        with open(self.folder.name + "/set/a.bin", "rb") as file:
            self.assertEqual(file.read(), CONTENT)

    def test_damage_is_named(self):
        self.pack({"set/a.bin": b"x"})
        self.assertIn("expected a member set/b.bin", self.unpack().stderr)
        self.pack({"set/a.bin": CONTENT, "set/b.bin": b"x"})
        os.truncate(self.archive, 20000)
        self.assertIn("the archive is damaged or cut short", self.unpack().stderr)
        self.assertEqual(os.listdir(self.folder.name + "/set"), ["a.bin"])  # the first archive's
        os.unlink(self.archive)
        self.assertIn("can't read it", self.unpack().stderr)


if __name__ == "__main__":
    unittest.main()
