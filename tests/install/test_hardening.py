#!/usr/bin/env python3
"""What is installed is hardened as docs/release.md says: read from the files by binutils' readelf."""
import os
import pathlib
import subprocess
import unittest

BUILD = pathlib.Path(os.environ["TT_BUILD"])


def readelf(flags, path):
    return subprocess.run(["readelf", "-W", *flags, path], capture_output=True, text=True, check=True).stdout


def imports(path):
    """Names that the file takes from libraries, without versions."""
    lines = readelf(["--dyn-syms"], path).splitlines()
    return {line.split()[7].split("@")[0] for line in lines if " UND " in line and len(line.split()) > 7}


class Hardening(unittest.TestCase):
    def setUp(self):
        libraries = sorted((BUILD / "lib").rglob("*.so"))
        self.plugins = [path for path in libraries if "backend" in path.name]
        self.ours = [path for path in libraries if "backend" not in path.name] + [BUILD / "bin" / "tutti"]
        self.assertEqual([path.name for path in self.ours], ["libtutti-comm.so", "libtutti.so", "tutti"])

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
        tutti = BUILD / "bin" / "tutti"
        self.assertRegex(readelf(["-h"], tutti), r"Type:\s+DYN")
        self.assertRegex(readelf(["-d"], tutti), r"FLAGS_1\).*\bPIE\b")

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
