"""bindings/torch: what is wrong reaches Python as one clear exception: arguments that are refused, stores that are
lost, calls that differ (with the script's line), ranks that raise, Ctrl-C, forked children; and log lines by
logging."""
import json
import os
import pathlib
import re
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "support"))
import torch_package  # noqa: E402

PROGRAM = pathlib.Path(__file__).with_name("torch_backend_errors.py")
LINES = {found[1]: number for number, line in enumerate(PROGRAM.read_text(encoding="utf-8").splitlines(), 1)
         if (found := re.search(r"# site: (\w+)$", line))}


# What the launcher has no part in, in one job: a function each, and those that have cases.
ALONE = ("refused", "meeting", "left_after_a_failure", "sparse_interrupted", "hooked", "interrupted_meeting",
         "long_waits", "interrupted", "forked", "unbegun")
SITES = ("future", "thread", "exec", "object", "barrier", "message", "backward")
WITHOUT_ROOM = '{"message": {"message": "ValueError: no such batch: 17\u65e5", "extraInfo": {"timestamp": "1"}}}'
OTHERS = ('{"message": {"message": "KeyError: 1", "extraInfo": {"timestamp": "1"}}}', "[]", "\0")


class Errors(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.files = {name: os.path.join(folder.name, name) for name in
                     ("link", "fifo", "linked", "room", "no room", "other 0", "other 1", "other 2")}
        os.symlink(cls.files["linked"], cls.files["link"])
        os.mkfifo(cls.files["fifo"])
        cases = {name: (name, {}) for name in ALONE}
        cases.update({f"busy_threads {i}": ("busy_threads", {}) for i in range(2)})
        cases["store_ends"] = ("store_ends", {"TT_TEST_FOLDER": folder.name})
        cases["logged"] = ("logged", {"TT_TRANSPORT": "tcp"})
        cases.update({f"site {how}": ("sites", {"TT_TEST_SITE": how}) for how in SITES})
        cases.update({f"long {i}": ("raises", {"TT_TEST_MORE": (9 + i) * "x" + 200 * "\u65e5"}) for i in range(3)})
        for i, other in enumerate(OTHERS):
            pathlib.Path(cls.files[f"other {i}"]).write_text(other, encoding="utf-8")
        for name in "room", "no room":
            pathlib.Path(cls.files[name]).write_text(WITHOUT_ROOM, encoding="utf-8")
            cases[name] = ("raises", {"TT_TEST_MORE": "\u65e5", "TT_TEST_ERROR_FILE": cls.files[name]})  # longer there
        cases["no room"][1]["TT_TEST_ROOM"] = str(os.path.getsize(cls.files["no room"]))
        files = {name: cls.files[name] for name in ("link", "fifo", "other 0", "other 1", "other 2")}
        for name, path in {**files, "full": "/dev/full", "nowhere": "/nonexistent/folder/error.json"}.items():
            cases[name] = ("raises", {"TT_TEST_ERROR_FILE": path})
        cls.said = torch_package.launch_cases(2, PROGRAM, cases)

    def case(self, name, code=0):
        """What the ranks of that case said."""
        done = self.said[name]
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def test_cases_that_check_for_themselves(self):
        for name in (*ALONE, "busy_threads 0", "busy_threads 1", "store_ends", "logged"):
            with self.subTest(name):
                self.case(name)

    def test_lines_of_the_script(self):
        for how in SITES:
            with self.subTest(how):
                done = self.case(f"site {how}")
                place = f"torch_backend_errors.py:{LINES[how]}" if how != "exec" else "<cell>:3"
                lines = [line for line in done.stdout.splitlines() if "TT_ERR_MISMATCH: " in line]
                self.assertEqual(len(lines), 2, done.stdout + done.stderr)
                for line in lines:
                    self.assertEqual(line.count(place), 1 if how == "backward" else 2, line)

    def test_a_rank_that_raises(self):
        done = torch_package.launch(2, PROGRAM, "raises")
        self.assertEqual(done.returncode, 1, done.stderr)
        reason = f"ValueError: no such batch: 17 (torch_backend_errors.py:{LINES['raises']})"
        self.assertRegex(done.stderr, r"DistBackendError: TT_ERR_PEER: rank 1 .*" + re.escape(reason))
        self.assertRegex(done.stderr, r"tutti run: rank 1 failed first: exit code 1 .*\n  its message:\n"
                         r"    ValueError: no such batch: 17\n")
        self.assertRegex(done.stderr, r"tutti run: rank 0: exit code 1, because of another rank")

    def test_a_rank_that_is_killed(self):
        for transport in "shm", "tcp":
            with self.subTest(transport):
                done = torch_package.launch(2, PROGRAM, "killed", TT_TRANSPORT=transport)
                self.assertIn("0: heard of the signal", done.stdout, done.stderr)

    def test_ctrl_c_twice(self):
        done = torch_package.launch(2, PROGRAM, "interrupted_twice")
        self.assertIn("KeyboardInterrupt", done.stderr)
        self.assertNotIn("_interpreter.py", done.stderr)
        self.assertNotIn("Exception ignored", done.stderr)
        self.assertIn("SIGINT", done.stderr)

    def test_ctrl_c_beside_the_failure_that_it_causes(self):
        done = torch_package.launch(2, PROGRAM, "interrupted_as_another_fails")
        self.assertNotIn("lost sys.stderr", done.stderr)  # a pending signal would end Python's report of the failure
        # Newer PyTorch writes "[rank1]: " before each line.
        self.assertEqual(len(re.findall(r"^(?:\[rank\d\]: )?KeyboardInterrupt$", done.stderr, re.M)), 2, done.stderr)

    def test_an_error_file_that_cannot_be_written(self):
        done = self.case("nowhere", code=1)
        self.assertIn("ValueError: no such batch: 17 (torch_backend_errors.py:", done.stderr)
        self.assertRegex(done.stderr, r"DistBackendError: TT_ERR_PEER: rank 1 .*no such batch: 17")

    def test_error_files_that_another_user_has_made(self):
        """A link isn't followed, what never ends isn't read, nor is a FIFO waited for."""
        for name in "link", "fifo", "full":
            with self.subTest(name):
                self.assertRegex(self.case(name, code=1).stderr,
                                 r"DistBackendError: TT_ERR_PEER: rank 1 .*no such batch: 17")
        self.assertFalse(os.path.exists(self.files["linked"]))

    def test_an_error_file_is_kept_where_the_disk_is_full(self):
        for name in "no room", "room":
            self.case(name, code=1)
        self.assertEqual(pathlib.Path(self.files["no room"]).read_text(encoding="utf-8"), WITHOUT_ROOM)
        self.assertEqual(json.loads(pathlib.Path(self.files["room"]).read_bytes()), json.loads(WITHOUT_ROOM))
        self.assertNotEqual(pathlib.Path(self.files["room"]).read_text(encoding="utf-8"), WITHOUT_ROOM)

    def test_an_error_file_of_another_error(self):
        """As one of a process that the rank has started."""
        for i in range(len(OTHERS)):
            self.case(f"other {i}", code=1)
            file = pathlib.Path(self.files[f"other {i}"])
            self.assertEqual(json.loads(file.read_text())["message"]["message"], "ValueError: no such batch: 17")

    def test_a_text_that_is_no_utf8(self):
        """Python gives names of files so."""
        done = torch_package.launch(2, PROGRAM, "raises", TT_TEST_MORE=os.fsdecode(b"tr\xe9.bin"))
        text = r"ValueError: no such batch: 17tr\udce9.bin"
        self.assertIn(f"DistBackendError: TT_ERR_PEER: rank 1 failed: TT_ERR_PROCESS: {text}", done.stderr)
        self.assertIn(f"its message:\n    {text}", done.stderr)

    def test_a_long_text_of_another_rank(self):
        """It is cut where its room ends, between two characters, and the place stays."""
        for i in range(3):
            place = rf"\(torch_backend_errors\.py:{LINES['raises']}\)"
            self.assertRegex(self.case(f"long {i}", code=1).stderr,
                             rf"TT_ERR_PEER: rank 1 .*no such batch: 17x+\u65e5{{20,}}\.\.\. {place}")

    def test_ctrl_c(self):
        self.assertIn("0: interrupted", self.case("sparse_interrupted").stdout)
        self.assertEqual(self.case("interrupted_meeting").stdout.count("interrupted"), 2)
        done = self.case("interrupted")
        self.assertIn("0: interrupted, in time: True", done.stdout)
        self.assertRegex(done.stdout, r"1: TT_ERR_(ABORTED|PEER): rank 0 ")


if __name__ == "__main__":
    torch_package.main()
