"""What ./dev bench says of its peers: what is behind, what is missing, and that none runs on."""
import os
import pathlib
import sys
import tempfile
import time
import unittest

BENCH = pathlib.Path(__file__).resolve().parents[3] / "bench"
sys.path[:0] = [str(BENCH), str(BENCH / "peers")]
sys.dont_write_bytecode = True
import contenders  # noqa: E402
import mpi_wheels  # noqa: E402


class Measured:
    """As much of a section as a verdict asks for."""
    ratios = [("tutti", "peer")]

    def __init__(self, **times):
        self.values = {row: dict(zip(("tutti", "peer"), pair)) for row, pair in times.items()}

    def median(self, row, name):
        return self.values[row].get(name)


class Verdicts(unittest.TestCase):
    def test_ahead(self):
        self.assertIn("geometric mean 2.00 x, least 1.00 x at a: ahead",
                      mpi_wheels.verdicts(Measured(a=(1, 1), b=(1, 4)))[0])

    def test_one_size_behind(self):
        self.assertIn("BEHIND at a 0.50 x", mpi_wheels.verdicts(Measured(a=(2, 1), b=(1, 4)))[0])

    def test_mean_behind(self):
        self.assertIn("BEHIND at geometric mean 1.10 x", mpi_wheels.verdicts(Measured(a=(1, 1.1), b=(1, 1.1)))[0])

    def test_sizes_that_lack(self):
        self.assertIn("(1 of 2 sizes)", mpi_wheels.verdicts(Measured(a=(1, 2), b=(1, None)))[0])
        self.assertEqual([], mpi_wheels.verdicts(Measured(a=(1, None))))


class Runs(unittest.TestCase):
    PRINTS_AND_STAYS = ("import sys, time\nprint('{\"bytes\": 8}', flush=True)\nprint('{\"byt', end='', flush=True)\n"
                        "time.sleep(600)")

    def test_one_that_stays_is_ended(self):
        start = time.monotonic()
        with self.assertRaisesRegex(contenders.Failed, "still running after 1 s"):
            contenders.run([sys.executable, "-c", self.PRINTS_AND_STAYS], seconds=1)
        self.assertLess(time.monotonic() - start, 60)

    def test_what_it_printed_until_then_counts(self):
        found = contenders.run([sys.executable, "-c", self.PRINTS_AND_STAYS], seconds=3, partial=True)
        self.assertEqual([{"bytes": 8}], found)

    def test_an_exit_code_is_told(self):
        with self.assertRaisesRegex(contenders.Failed, "exit code 3"):
            contenders.run([sys.executable, "-c", "raise SystemExit(3)"])


class Wheels(unittest.TestCase):
    def test_nothing_is_fetched_unasked(self):
        with tempfile.TemporaryDirectory() as folder:
            with self.assertRaisesRegex(contenders.Missing, "--wheels"):
                mpi_wheels.environment(pathlib.Path(folder), "Intel MPI", False)
            self.assertEqual([], os.listdir(folder))

    def test_no_network_is_said(self):
        with tempfile.TemporaryDirectory() as folder:
            os.environ.update(PIP_NO_INDEX="1", PIP_FIND_LINKS=folder)
            try:
                with self.assertRaisesRegex(contenders.Missing, "could not be installed"):
                    mpi_wheels.environment(pathlib.Path(folder), "MPICH 5", True)
                with self.assertRaises(contenders.Missing):  # and what is half there is not taken for whole
                    mpi_wheels.environment(pathlib.Path(folder), "MPICH 5", False)
            finally:
                del os.environ["PIP_NO_INDEX"], os.environ["PIP_FIND_LINKS"]


if __name__ == "__main__":
    unittest.main()
