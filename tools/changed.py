#!/usr/bin/env python3
"""changed.py BUILD: print a regular expression for ctest of the tests that a change can touch; nothing if none.

The change is what differs from where this branch left main, commits and work tree, or, on main, from the last commit. A
test program is touched by a change of any object file that it can reach through symbols, or of what that includes; a
script by its own text, by what it names of tests/support and its folder, and by the command and the examples. What this
can't judge (CMake's files, for one) touches everything.
"""
import collections
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
SCRIPT_FOLDERS = ("dist", "fault", "interop", "parity", "security", "install")


def lines(*command, folder=ROOT):
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.splitlines()


def changed_files():
    base = "HEAD"
    for branch in ("origin/main", "main"):
        if subprocess.run(["git", "rev-parse", "-q", "--verify", branch], cwd=ROOT, capture_output=True,
                          check=False).returncode == 0:
            base = lines("git", "merge-base", "HEAD", branch)[0]
            break
    return set(lines("git", "diff", "--name-only", base)) | set(lines("git", "ls-files", "-o", "--exclude-standard"))


def objects_of(build, changed):
    """The object files that are compiled of changed files, by what the compiler has noted."""
    paths = {str(ROOT / file) for file in changed}
    touched, target = set(), None
    for line in lines("ninja", "-t", "deps", folder=build):
        if line and not line.startswith(" "):
            target = line.split(":")[0]
        elif line and str((build / line.strip()).resolve() if line.strip()[0] != "/" else line.strip()) in paths:
            touched.add(target)
    return touched


class Symbols:
    """Which object files an object file reaches."""

    def __init__(self, build):
        self.needs, self.homes = collections.defaultdict(set), collections.defaultdict(set)
        objects = [str(path.relative_to(build)) for path in build.rglob("*.o")]
        for at in range(0, len(objects), 500):
            for line in lines("nm", "-A", "-P", *objects[at:at + 500], folder=build):
                path, name, kind = re.match(r"(.*?): (\S+) (\S)", line).groups()
                if kind in "Uwv":
                    self.needs[path].add(name)
                elif kind.isupper():
                    self.homes[name].add(path)

    def reached(self, begin):
        seen, ahead = set(begin), list(begin)
        while ahead:
            for name in self.needs[ahead.pop()]:
                for home in self.homes[name] - seen:
                    seen.add(home)
                    ahead.append(home)
        return seen


def objects_by_test(build):
    """Test, or "LABEL/*" for all scripts of a folder -> the object files that it begins with."""
    begin = collections.defaultdict(set)
    for path in build.rglob("*.o"):
        name = str(path.relative_to(build))
        place = re.match(r"tests/(\w+)/CMakeFiles/[\w-]+\.dir/(.*)\.c\.o", name)
        if place:
            label, program = place[1], place[2].rsplit("/", 1)[-1]
            if label == "fuzz":
                begin[f"fuzz/{program.replace('fuzz_', '')}"].add(name)
            elif label == "conformance":
                begin["conformance/.*"].add(name)
            elif label == "sim":
                begin["sim/.*"].add(name)
            elif program.startswith("test_"):
                begin[f"{label}/{program}"].add(name)
            else:
                begin[f"{label}/*"].add(name)
        elif name.startswith(("examples/", "CMakeFiles/tutti_command.dir/")):
            for label in SCRIPT_FOLDERS:
                begin[f"{label}/*"].add(name)
    return begin


def scripts(label):
    return [path for path in (ROOT / "tests" / label).rglob("test_*") if path.suffix in (".py", ".sh")]


def script_tests(label):
    return {f"{label}/{path.stem}(_current)?" for path in scripts(label)}


def tests_of_text(file):
    """The tests that a changed file which is not compiled touches; None: all of them."""
    path = pathlib.PurePath(file)
    if path.name == "CMakeLists.txt" or path.suffix == ".cmake" or file in ("CMakePresets.json", "dev"):
        return None
    found = {"lint/.*"}
    if path.parts[0] == "docs" or path.suffix == ".md":
        found |= script_tests("docs") | {"install/test_readme", "install/test_reference"}
    elif path.parts[0] == "bindings":
        found |= {"interop/test_torch_.*", "fault/test_storm_torch.*", "install/test_torch_wheel"}
    elif path.parts[0] == "tests" and len(path.parts) > 2:
        label = path.parts[1]
        if path.name.startswith("test_") and path.suffix in (".py", ".sh"):
            return found | {f"{label}/{path.stem}(_current)?"}
        if label == "fuzz" and path.parts[2] == "corpus":
            return found | {f"fuzz/{path.parts[3]}"}
        if path.suffix in (".py", ".sh"):  # what scripts use
            for other in SCRIPT_FOLDERS + ("docs", "slips", "lint", "sim"):
                found |= {f"{other}/{script.stem}(_current)?" for script in scripts(other)
                          if path.stem in script.read_text()}
        if label in ("vectors", "slips"):
            found |= {"unit/.*", "slips/.*"}
    return found


def main(build):
    build = pathlib.Path(build).resolve()
    changed = changed_files()
    found = set()
    for file in changed:
        tests = tests_of_text(file) if pathlib.PurePath(file).suffix not in (".c", ".h", ".hpp") else {"lint/.*"}
        if tests is None:
            print(".")
            return
        if pathlib.PurePath(file).parts[0] == "include":
            tests |= script_tests("install") | {"slips/.*"}
        found |= tests
    touched = objects_of(build, changed)
    if touched:
        symbols = Symbols(build)
        for test, begin in objects_by_test(build).items():
            if symbols.reached(begin) & touched:
                found |= script_tests(test[:-2]) if test.endswith("/*") else {test}
    if found:
        print("^(" + "|".join(sorted(found)) + ")$")


if __name__ == "__main__":
    main(*sys.argv[1:])
