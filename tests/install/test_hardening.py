#!/usr/bin/env python3
"""What is installed is hardened as docs/release.md says: read from the files by binutils' readelf."""
import os
import pathlib
import subprocess
import tempfile
import unittest


def readelf(flags, path):
    return subprocess.run(["readelf", "-W", *flags, path], capture_output=True, text=True, check=True).stdout


def imports(path):
    """Names that the file takes from libraries, without versions."""
    lines = readelf(["--dyn-syms"], path).splitlines()
    return {line.split()[7].split("@")[0] for line in lines if " UND " in line and len(line.split()) > 7}


class Hardening(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        subprocess.run(["cmake", "--install", os.environ["TT_BUILD"], "--prefix", cls.folder.name], check=True,
                       stdout=subprocess.DEVNULL)
        root = pathlib.Path(cls.folder.name)
        libraries = sorted(path for path in root.rglob("*.so") if path.is_file())
        cls.plugins = [path for path in libraries if "backend" in path.name]
        cls.tutti = root / "bin" / "tutti"
        cls.ours = [path for path in libraries if "backend" not in path.name] + [cls.tutti]

    def test_all_of_them_are_looked_at(self):
        names = [path.name for path in self.ours if path.name != "libtutti-cuda.so"]  # ./dev build with nvcc makes it
        self.assertEqual(names, ["libtutti-comm.so", "libtutti.so", "tutti"])

    def test_nothing_of_the_linkers_tables_stays_writable(self):
        for path in self.ours + self.plugins:
            with self.subTest(path=path):
                self.assertIn("GNU_RELRO", readelf(["-l"], path))
                self.assertRegex(readelf(["-d"], path), r"FLAGS_1\).*\bNOW\b")

    def test_the_stack_is_not_executable(self):
        for path in self.ours + self.plugins:
            with self.subTest(path=path):
                stack = [line for line in readelf(["-l"], path).splitlines() if "GNU_STACK" in line]
                self.assertEqual(len(stack), 1)
                self.assertIn(" RW ", stack[0])

    def test_the_command_lies_anywhere(self):
        self.assertRegex(readelf(["-h"], self.tutti), r"Type:\s+DYN")
        self.assertRegex(readelf(["-d"], self.tutti), r"FLAGS_1\).*\bPIE\b")

    def test_stacks_and_copies_are_checked(self):
        for path in self.ours:
            with self.subTest(path=path):
                names = imports(path)
                self.assertTrue("__stack_chk_fail" in names, "nothing of -fstack-protector-strong")
                self.assertTrue({name for name in names if name.endswith("_chk")}, "nothing of _FORTIFY_SOURCE")

    def test_nothing_asks_where_libraries_lie_by_a_relative_path(self):
        for path in self.ours:
            with self.subTest(path=path):
                for line in readelf(["-d"], path).splitlines():
                    if "RUNPATH" in line or "RPATH" in line:
                        for place in line.split("[")[1].rstrip("]").split(":"):
                            self.assertRegex(place, r"^(/|\$ORIGIN)")


if __name__ == "__main__":
    unittest.main()
