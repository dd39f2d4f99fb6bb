"""The wheel of bindings/torch, made by tools/torch_wheel.sh for this Python's PyTorch and, where ./dev setup --torch
has put it, for the current one: its tags, what it carries, what it asks for; installed in a new environment without a
compiler or a network, the lines of its README run on two ranks. What can't be built or loaded says why. Skipped (77)
where PyTorch, its headers or what makes wheels (./dev setup --wheel) are not there."""
import email
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(os.environ["TT_SOURCE"])
BUILD = pathlib.Path(os.environ["TT_BUILD"])
BINDINGS = ROOT / "bindings" / "torch"
TOOLS = ROOT / "build" / "peers" / "wheel"
CURRENT = ROOT / "build" / "peers" / "torch"
DEADLINE = float(os.environ["TT_TIMEOUT"])
MOST_BYTES = 6 << 20  # packed; two thirds are OpenSSL
LINES = re.search(r"```python\n(.*?)```", (BINDINGS / "README.md").read_text(), re.S).group(1)
PROGRAM = "{first}" + LINES + """
assert x.tolist() == [dist.get_world_size()] * 4, x
assert dist.get_backend() == "tutti" and dist.get_world_size() == 2
print("summed on rank %d" % dist.get_rank())
dist.destroy_process_group()
"""


def run(*command, **environment):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False,
                          timeout=DEADLINE, stdin=subprocess.DEVNULL,
                          env={**os.environ, "PYTHONPATH": "", "OMP_NUM_THREADS": "1", **environment})


def pythons():
    """Those whose PyTorch can be built for."""
    found = []
    for python in [sys.executable] + [str(CURRENT / "bin" / "python3")] * (CURRENT / "complete").exists():
        said = run(python, BINDINGS / "find_torch.py")
        if said.returncode:
            print(f"left out: {said.stderr.strip()}")
        else:
            found.append((python, said.stdout.split(";")[0]))
    return found


class Wheel:
    """A wheel, and a new environment in which it is installed."""

    def __init__(self, python, torch, scratch):
        self.torch, self.minor = torch, ".".join(torch.split(".")[:2])
        made = run("sh", ROOT / "tools" / "torch_wheel.sh", python, scratch / "wheels",
                   f"--config-settings=cmake.define.TUTTI_BUILD={BUILD}",
                   f"--config-settings=build-dir={BUILD}/bindings/wheel-{torch}")
        if made.returncode:
            raise AssertionError(f"tools/torch_wheel.sh {python}: {made.stdout}{made.stderr}")
        self.path = pathlib.Path(made.stdout.split()[-1])
        if self.path.parent.name != f"torch-{self.minor}":
            raise AssertionError(f"expected a folder of PyTorch {self.minor}'s own, got {self.path}")
        with zipfile.ZipFile(self.path) as archive:
            self.names = archive.namelist()
            info = next(name for name in self.names if name.endswith(".dist-info/METADATA"))
            self.metadata = email.message_from_string(archive.read(info).decode())
            self.record = archive.read(info.replace("METADATA", "RECORD")).decode()
            archive.extractall(scratch / "unpacked")
        self.unpacked = scratch / "unpacked"
        self.python = self.environment(python, scratch / "venv")

    def libraries(self):
        return [path for path in self.unpacked.rglob("*") if ".so" in path.name]

    def environment(self, python, folder):
        """A new environment that has `python`'s packages, PyTorch among them, and the wheel."""
        for command in ((python, "-m", "venv", "--without-pip", "--system-site-packages", folder),
                        (TOOLS / "bin" / "pip", "-q", "--python", folder / "bin" / "python3", "install", "--no-index",
                         "--no-deps", self.path)):
            done = run(*command, PATH=str(folder / "bin"))
            if done.returncode:
                raise AssertionError(f"{command}: {done.stdout}{done.stderr}")
        site = run(python, "-c", "import torch, os; print(os.path.dirname(os.path.dirname(torch.__file__)))",
                   TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout.strip()
        packages = next((folder / "lib").glob("python*/site-packages"))
        if python != sys.executable:  # an environment itself: a new one sees the base's packages, not its
            (packages / "peer.pth").write_text(site + "\n")
        return str(folder / "bin" / "python3")


class WheelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.scratch)
        cls.wheels = []
        for python, torch in PYTHONS:
            folder = cls.scratch / torch
            folder.mkdir()
            cls.wheels.append(Wheel(python, torch, folder))
            print(f"{cls.wheels[-1].path.name}: {cls.wheels[-1].path.stat().st_size >> 10} KiB", flush=True)

    def test_tags(self):
        """auditwheel gave the tag; what the files ask of the C library is read here."""
        for wheel in self.wheels:
            tag = f"cp3{sys.version_info[1]}"
            name = re.fullmatch(rf"tutti_torch-[0-9.]+-{tag}-{tag}-manylinux_2_(\d+)_\w+\.whl", wheel.path.name)
            self.assertTrue(name, wheel.path.name)
            self.assertLess(wheel.path.stat().st_size, MOST_BYTES)
            asked = max(int(minor) for library in wheel.libraries()
                        for minor in re.findall(r"GLIBC_2\.(\d+)", run("readelf", "-VW", library).stdout))
            self.assertLessEqual(asked, int(name.group(1)))

    def test_what_it_needs(self):
        """Of the system no more than what every system with Python has, and PyTorch's."""
        for wheel in self.wheels:
            carried = {library.name for library in wheel.libraries()}
            needed = {name for library in wheel.libraries()
                      for name in re.findall(r"NEEDED\).*\[(.+)\]", run("readelf", "-dW", library).stdout)}
            others = {re.sub(r"[-.].*", "", name) for name in needed - carried}
            self.assertLessEqual(others, {"libtorch_cpu", "libc10", "libtorch_python", "libstdc++", "libgcc_s", "libc",
                                          "libm", "libpthread", "libdl", "librt", "ld"}, needed)

    def test_what_it_says_of_itself(self):
        version = re.search(r"project\(tutti VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
        for wheel in self.wheels:
            said = wheel.metadata
            self.assertEqual((said["Name"], said["Version"]), ("tutti-torch", version))
            self.assertEqual(said.get_all("Requires-Dist"), [f"torch=={wheel.minor}.*"])
            self.assertIn(LINES, said.get_payload())
            names = "\n".join(wheel.names)
            for name in ("LICENSE", "libuv1.txt", "libssl3.txt"):
                self.assertRegex(names, rf"dist-info/licenses/{re.escape(name)}\b")

    def test_what_it_carries(self):
        for wheel in self.wheels:
            kinds = {re.sub(r"[-.].*", "", library.name) for library in wheel.libraries()}
            self.assertEqual(kinds, {"_C", "libuv", "libssl", "libcrypto"})
            for library in wheel.libraries():
                self.assertNotIn(".debug_info", run("readelf", "-SW", library).stdout, library)
            module = next(wheel.unpacked.glob("tutti_torch/_C*.so"))
            symbols = run("nm", "-D", "--defined-only", module).stdout
            self.assertIn("PyInit__C", symbols)
            self.assertNotRegex(symbols, r" tt_", "another libtutti-comm of the process would be called instead")

    def test_the_lines_of_its_readme(self):
        script = self.scratch / "lines.py"
        for wheel in self.wheels:
            by_itself = tuple(map(int, wheel.minor.split("."))) >= (2, 5)
            torchrun = ["-m", "torch.distributed.run"] if by_itself else [ROOT / "tests/interop/launch/torchrun_old.py"]
            script.write_text(PROGRAM.format(first="" if by_itself else "import tutti_torch\n"))
            for launcher in ([os.environ["TUTTI"], "run", "--standalone", "--nproc-per-node=2", wheel.python],
                             [wheel.python, *torchrun, "--standalone", "--nproc_per_node=2"]):
                done = run(*launcher, script, PATH=str(pathlib.Path(wheel.python).parent))
                self.assertEqual(done.returncode, 0, f"{launcher}: {done.stdout}{done.stderr}")
                self.assertEqual(sorted(re.findall(r"summed on rank \d", done.stdout)),
                                 ["summed on rank 0", "summed on rank 1"])

    def test_calls_its_own_libuv(self):
        """PyTorch's libraries export the functions of theirs, whose structs are another version's."""
        for wheel in self.wheels:
            log = self.scratch / f"bindings-{wheel.torch}"
            done = run(wheel.python, "-c", "import torch, tutti_torch", LD_DEBUG="bindings", LD_DEBUG_OUTPUT=str(log))
            self.assertEqual(done.returncode, 0, done.stderr)
            bound = set()
            for part in self.scratch.glob(log.name + ".*"):
                with open(part, errors="replace") as lines:
                    for line in lines:
                        match = re.search(r"binding file \S*/tutti_torch/_C\S* .* to (\S+) .*`(?:uv|SSL)_", line)
                        if match:
                            bound.add(re.sub(r"[-.].*", "", os.path.basename(match.group(1))))
            self.assertEqual(bound, {"libuv", "libssl"})

    def test_another_pytorch(self):
        for wheel in self.wheels:
            done = run(wheel.python, "-c", "import torch; torch.__version__ = '9.8.7'; import tutti_torch",
                       TORCH_DEVICE_BACKEND_AUTOLOAD="0")
            self.assertRegex(done.stderr, rf"ImportError: tutti_torch was built for PyTorch {wheel.torch}, and this is "
                             r"9\.8\.7: ")
        for wheel, (other, torch) in zip(self.wheels, reversed(PYTHONS)):
            if torch != wheel.torch:
                done = run(other, "-c", "import tutti_torch", PYTHONPATH=str(wheel.unpacked),
                           TORCH_DEVICE_BACKEND_AUTOLOAD="0")
                self.assertIn(f"ImportError: tutti_torch was built for PyTorch {wheel.torch}, and this is {torch}",
                              done.stderr)


class FromSource(unittest.TestCase):
    def build(self, scratch, target, path, **environment):
        """pip, building with what the environment has, no network."""
        return run(TOOLS / "bin" / "pip", "--python", sys.executable, "wheel", "--no-index", "--no-deps",
                   "--no-build-isolation", "-w", scratch, target, PATH=path, PYTHONPATH=str(TOOLS / "packages"),
                   **environment)

    def test_lacks_are_named_together(self):
        with tempfile.TemporaryDirectory() as scratch:
            done = self.build(scratch, BINDINGS, scratch)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stdout + done.stderr, r"tutti-torch can't be built from source, for lack of cc, c\+\+, "
                         r"pkg-config, cmake, ninja\. On Debian: apt-get install gcc libc6-dev g\+\+ pkg-config cmake "
                         r"ninja-build")

    def test_missing_headers_are_named(self):
        with tempfile.TemporaryDirectory() as scratch:
            compiler = pathlib.Path(scratch, "no-libuv-cc")
            compiler.write_text("#!/bin/sh\nsed 's|<uv.h>|<absent/uv.h>|' | gcc \"$@\"\n")
            compiler.chmod(0o755)
            done = self.build(scratch, BINDINGS, os.environ["PATH"], CC=str(compiler))
        self.assertRegex(done.stdout + done.stderr, r"for lack of uv\.h\. On Debian: apt-get install libuv1-dev\b")

    def test_an_archive_of_sources_has_all(self):
        """What is made of it, but for compiling all again: that CMake finds in it what it needs."""
        with tempfile.TemporaryDirectory() as scratch:
            code = "import sys; sys.path.insert(0, 'build_support'); import backend; backend.build_sdist(sys.argv[1])"
            done = subprocess.run([sys.executable, "-c", code, scratch], cwd=BINDINGS, capture_output=True, text=True,
                                  env=dict(os.environ, PYTHONPATH=str(TOOLS / "packages")), check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            archive = next(pathlib.Path(scratch).glob("tutti_torch-*.tar.gz"))
            shutil.unpack_archive(archive, scratch)
            tree = pathlib.Path(scratch, archive.name[:-len(".tar.gz")])
            self.assertFalse((BINDINGS / "tutti").exists(), "what was put there for the archive was left")
            self.assertTrue((tree / "LICENSE").read_text().strip().startswith("Apache License"))
            said = (tree / "PKG-INFO").read_text().splitlines()
            self.assertIn("Requires-Dist: torch", said)
            self.assertIn("Dynamic: Requires-Dist", said)  # a wheel of it asks for one version
            configured = run("cmake", "-G", "Ninja", "-S", tree / "tutti", "-B", tree / "build", "-DTT_COMM_ALONE=ON")
            self.assertEqual(configured.returncode, 0, configured.stdout + configured.stderr)
            missing = run("cmake", "--build", tree / "build", "--target", "tutti-comm-static", "--", "-n")
            self.assertEqual(missing.returncode, 0, missing.stdout + missing.stderr)
            for name in ("find_torch.py", "CMakeLists.txt", "csrc/module.cpp", "tutti_torch/__init__.py"):
                self.assertTrue((tree / name).exists(), name)


if __name__ == "__main__":
    if not (TOOLS / "complete").exists():
        print("skipped: there is nothing to make wheels with; ./dev setup --wheel fetches it")
        sys.exit(77)
    PYTHONS = pythons()
    if not PYTHONS:
        print("skipped: there is no PyTorch that can be built for")
        sys.exit(77)
    unittest.main()
