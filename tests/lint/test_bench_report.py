"""bench/run.py: medians, ratios, what is said about a peer that is missing or fails, and charts that are well-formed
XML."""
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock
import xml.etree.ElementTree as xml

SOURCE = pathlib.Path(os.environ.get("TT_SOURCE", pathlib.Path(__file__).parents[2]))
sys.path.insert(0, str(SOURCE / "bench"))
import chart  # noqa: E402
import run  # noqa: E402
import section as report  # noqa: E402


def section(key="all_reduce", **contenders):
    return run.Section(key, "sizes, 2 ranks", "us", "less", contenders, [("ours", "theirs")],
                       lambda found: [(run.size_label(found["bytes"]), found["usec"])])


def values(*rounds):
    left = list(rounds)
    return lambda: [{"bytes": 8, "usec": left[0]}, {"bytes": 1 << 20, "usec": left.pop(0) * 100}]


class Report(unittest.TestCase):
    def test_medians_and_ratios(self):
        s = section(ours=values(2, 1, 9), theirs=values(8, 4, 6))
        s.measure(3)
        self.assertEqual(s.table()[2:], ["| 8 B | 2 | 6 | 3.00 x |", "| 1 MiB | 200 | 600 | 3.00 x |"])

    def test_more_can_be_better(self):
        self.assertEqual(report.ratio(300, 100, "more"), "3.00 x")
        self.assertEqual(report.ratio(300, 100, "less"), "0.33 x")
        self.assertEqual(report.ratio(None, 100, "less"), "-")

    def test_missing_and_failing_peers_are_named_and_asked_once(self):
        asked = []

        def absent():
            asked.append(1)
            raise run.Missing("no such program")

        def broken():
            raise run.Failed("exit code 3")

        s = section(ours=values(1, 1), theirs=absent, third=broken)
        s.measure(2)
        self.assertEqual(len(asked), 1)
        self.assertIn("theirs: not measured: no such program", s.table())
        self.assertIn("third: FAILED: exit code 3", s.table())
        self.assertIn("| 8 B | 1 | - | - | - |", s.table())

    def test_a_machine_without_pytorch_is_told_so(self):
        for measure in (run.torch_startup, lambda: run.current_torch(2, "torch_hello.py")):
            with mock.patch.multiple("pytorch", PYTHON="/bin/false", CURRENT="/bin/false"), \
                    self.assertRaises(run.Missing):
                measure()

    def test_price_of_sealing(self):
        by_size = (lambda found: [(run.size_label(found["bytes"]), found["usec"])])
        s = run.Section("wire", "sizes", "us", "less", {
            "sealed": lambda: [{"bytes": 8, "usec": 5}, {"bytes": 1 << 20, "usec": 30}],
            "plain": lambda: [{"bytes": 8, "usec": 4}, {"bytes": 1 << 20, "usec": 20}],
            run.GMAC: lambda: [{"bytes": 1 << 20, "usec": 8}],
        }, [("sealed", "plain")], by_size, remarks=run.price_of_sealing)
        s.measure(1)
        self.assertEqual(s.table()[-3:], ["", "8 B: sealing adds 1 us, 25.0 %",
                                          "1 MiB: sealing adds 10 us, 50.0 %, 1.25 times what OpenSSL alone takes"])

    def test_charts(self):
        for key in ("all_reduce", "step"):
            s = section(key, ours=values(1), theirs=values(0.001))
            s.measure(1)
            with tempfile.TemporaryDirectory() as folder:
                chart.write(pathlib.Path(folder), [s])
                words = [e.text for e in xml.parse(f"{folder}/{key}.svg").iter() if e.text]
            self.assertIn("ours", words)
            self.assertIn("theirs", words)
            self.assertIn("1 MiB", words)


if __name__ == "__main__":
    unittest.main()
