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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import torch_package  # noqa: E402

PROGRAM = pathlib.Path(__file__).with_name("torch_backend_errors.py")
LINES = {found[1]: number for number, line in enumerate(PROGRAM.read_text(encoding="utf-8").splitlines(), 1)
         if (found := re.search(r"# site: (\w+)$", line))}


class Errors(unittest.TestCase):
    def run_program(self, *arguments, code=0, **more):
        done = torch_package.launch(2, PROGRAM, *arguments, **more)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done

    def test_refused_arguments_leave_the_group_as_it_was(self):
        self.run_program("refused")

    def test_how_ranks_meet(self):
        self.run_program("meeting")

    def test_a_store_that_ends_when_all_have_met(self):
        with tempfile.TemporaryDirectory() as folder:
            self.run_program("store_ends", TT_TEST_FOLDER=folder)

    def test_lines_of_the_script(self):
        for how in ("future", "thread", "exec", "object", "barrier", "message", "backward"):
            with self.subTest(how):
                done = self.run_program("sites", TT_TEST_SITE=how)
                place = f"torch_backend_errors.py:{LINES[how]}" if how != "exec" else "<cell>:3"
                lines = [line for line in done.stdout.splitlines() if "TT_ERR_MISMATCH: " in line]
                self.assertEqual(len(lines), 2, done.stdout + done.stderr)
                for line in lines:
                    self.assertEqual(line.count(place), 1 if how == "backward" else 2, line)

    def test_a_rank_that_raises(self):
        done = self.run_program("raises", code=1)
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

    def test_a_rank_that_leaves_after_a_failure(self):
        self.run_program("left_after_a_failure")

    def test_an_error_file_that_cannot_be_written(self):
        done = self.run_program("raises", code=1, TT_TEST_ERROR_FILE="/nonexistent/folder/error.json")
        self.assertIn("ValueError: no such batch: 17 (torch_backend_errors.py:", done.stderr)
        self.assertRegex(done.stderr, r"DistBackendError: TT_ERR_PEER: rank 1 .*no such batch: 17")

    def test_error_files_that_another_user_has_made(self):
        """A link isn't followed, what never ends isn't read, nor is a FIFO waited for."""
        with tempfile.TemporaryDirectory() as folder:
            link, fifo, other = (os.path.join(folder, name) for name in ("link", "fifo", "other"))
            os.symlink(other, link)
            os.mkfifo(fifo)
            for path in (link, fifo, "/dev/full"):
                with self.subTest(path):
                    done = self.run_program("raises", code=1, TT_TEST_ERROR_FILE=path)
                    self.assertRegex(done.stderr, r"DistBackendError: TT_ERR_PEER: rank 1 .*no such batch: 17")
            self.assertFalse(os.path.exists(other))

    def test_an_error_file_is_kept_where_the_disk_is_full(self):
        before = ('{"message": {"message": "ValueError: no such batch: 17\u65e5", "extraInfo": {"timestamp": "1"}}}')
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "error.json")
            file.write_text(before, encoding="utf-8")
            how = {"TT_TEST_ERROR_FILE": str(file), "TT_TEST_MORE": "\u65e5"}  # longer in the file, as \\u65e5
            self.run_program("raises", code=1, TT_TEST_ROOM=str(file.stat().st_size), **how)
            self.assertEqual(file.read_text(encoding="utf-8"), before)
            self.run_program("raises", code=1, **how)
            self.assertEqual(json.loads(file.read_bytes()), json.loads(before))

    def test_an_error_file_of_another_error(self):
        """As one of a process that the rank has started."""
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, "error.json")
            for before in ('{"message": {"message": "KeyError: 1", "extraInfo": {"timestamp": "1"}}}', "[]", "\0"):
                file.write_text(before)
                self.run_program("raises", code=1, TT_TEST_ERROR_FILE=str(file))
                self.assertEqual(json.loads(file.read_text())["message"]["message"], "ValueError: no such batch: 17")

    def test_a_text_that_is_no_utf8(self):
        """Python gives names of files so."""
        done = self.run_program("raises", code=1, TT_TEST_MORE=os.fsdecode(b"tr\xe9.bin"))
        text = r"ValueError: no such batch: 17tr\udce9.bin"
        self.assertIn(f"DistBackendError: TT_ERR_PEER: rank 1 failed: TT_ERR_PROCESS: {text}", done.stderr)
        self.assertIn(f"its message:\n    {text}", done.stderr)

    def test_a_long_text_of_another_rank(self):
        """It is cut where its room ends, between two characters, and the place stays."""
        for more in (9, 10, 11):
            done = self.run_program("raises", code=1, TT_TEST_MORE=more * "x" + 200 * "\u65e5")
            place = rf"\(torch_backend_errors\.py:{LINES['raises']}\)"
            self.assertRegex(done.stderr, rf"TT_ERR_PEER: rank 1 .*no such batch: 17x+\u65e5{{20,}}\.\.\. {place}")

    def test_ctrl_c_in_a_sparse_all_reduce(self):
        self.assertIn("0: interrupted", self.run_program("sparse_interrupted").stdout)

    def test_hooks_beside_a_failure(self):
        self.run_program("hooked")

    def test_ctrl_c_ends_a_meeting(self):
        self.assertEqual(self.run_program("interrupted_meeting").stdout.count("interrupted"), 2)

    def test_long_waits(self):
        self.run_program("long_waits")

    def test_ctrl_c_ends_a_wait(self):
        done = self.run_program("interrupted")
        self.assertIn("0: interrupted, in time: True", done.stdout)
        self.assertRegex(done.stdout, r"1: TT_ERR_(ABORTED|PEER): rank 0 ")

    def test_forked_children(self):
        self.run_program("forked")

    def test_calls_that_do_not_begin(self):
        self.run_program("unbegun")

    def test_threads_that_are_busy_as_the_interpreter_ends(self):
        for _ in range(2):
            self.run_program("busy_threads")

    def test_log_lines(self):
        self.run_program("logged", TT_TRANSPORT="tcp")


if __name__ == "__main__":
    torch_package.main()
