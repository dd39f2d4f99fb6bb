"""What building from source needs: asked at once, before anything is compiled, so that one error names all of it."""
import functools
import glob
import importlib.util
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import sysconfig

FIND_TORCH = pathlib.Path(__file__).resolve().parents[1] / "find_torch.py"

# What is included, and the package of Debian's that has it.
HEADERS = {"uv.h": "libuv1-dev", "openssl/ssl.h": "libssl-dev", "hwloc.h": "libhwloc-dev",
           "curl/curl.h": "libcurl4-openssl-dev"}
# PyTorch's own package from PyPI has these itself; Debian's leaves them to others.
DEBIAN_TORCH_HEADERS = {"pybind11/pybind11.h": "pybind11-dev", "gflags/gflags.h": "libgflags-dev",
                        "glog/logging.h": "libgoogle-glog-dev"}


@functools.lru_cache(maxsize=None)
def installed_torch():
    """What find_torch.py says, in parts. Ends the build where there is no PyTorch to build for."""
    found = subprocess.run([sys.executable, FIND_TORCH], capture_output=True, text=True, check=False)
    if found.returncode:
        sys.exit("tutti-torch is built for the PyTorch that is installed: " + (found.stderr.strip() or "it crashed"))
    version, abi, headers, libraries = found.stdout.splitlines()[-1].split(";")
    return version, abi, headers.split("|"), libraries.split("|")


def lacking_tools(tools_too):
    """Missing programs and the packages that have them. `tools_too`: also those that pip fetches where it may."""
    wanted = [("CC", "cc", "gcc libc6-dev"), ("CXX", "c++", "g++"), ("PKG_CONFIG", "pkg-config", "pkg-config")]
    for variable, program, package in wanted:
        name = shlex.split(os.environ.get(variable, "")) or [program]
        if not (shutil.which(name[0]) or (variable not in os.environ and shutil.which(package.split()[0]))):
            yield name[0], package
    if tools_too:
        for program, package in (("cmake", "cmake"), ("ninja", "ninja-build")):
            if not shutil.which(program) and not importlib.util.find_spec(program):
                yield program, package


def flags():
    """Where a compiler looks for headers besides its own folders."""
    found = shlex.split(os.environ.get("CPPFLAGS", ""))
    found += [f"-I{prefix}/include" for prefix in os.environ.get("CMAKE_PREFIX_PATH", "").split(os.pathsep) if prefix]
    said = subprocess.run([os.environ.get("PKG_CONFIG", "pkg-config"), "--silence-errors", "--cflags", "libuv",
                           "openssl"], capture_output=True, text=True, check=False)
    return found + shlex.split(said.stdout)


def lacking_modules():
    """What CMake asks pkg-config for."""
    command = os.environ.get("PKG_CONFIG", "pkg-config")
    for module, package in (("libuv", "libuv1-dev"), ("openssl", "libssl-dev")):
        if subprocess.run([command, "--exists", module], capture_output=True, check=False).returncode:
            yield f"{module}.pc", package


def has_header(header):
    compiler = shlex.split(os.environ.get("CC", "")) or [shutil.which("cc") or "gcc"]
    if not shutil.which(compiler[0]):
        return bool(glob.glob(f"/usr/include/{header}") + glob.glob(f"/usr/include/*-linux-gnu/{header}"))
    tried = subprocess.run([*compiler, *flags(), "-E", "-x", "c", "-"], input=f"#if !__has_include(<{header}>)\n"
                           "#error\n#endif\n", capture_output=True, text=True, check=False)
    return not tried.returncode


def lacking_headers(wanted):
    return [(header, package) for header, package in wanted.items() if not has_header(header)]


def check(tools_too=True):
    """End the build with one text, where something is missing."""
    _, _, headers, _ = installed_torch()
    lacking = list(lacking_tools(tools_too))
    if not any(name == os.environ.get("PKG_CONFIG", "pkg-config") for name, _ in lacking):
        lacking += lacking_modules()
    lacking += lacking_headers({**HEADERS, **(DEBIAN_TORCH_HEADERS if headers[0] == "/usr/include" else {})})
    if not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")):
        lacking.append(("Python.h", "python3-dev"))
    if lacking:
        sys.exit("tutti-torch can't be built from source, for lack of " + ", ".join(name for name, _ in lacking) +
                 ". On Debian: apt-get install " + " ".join(dict.fromkeys(package for _, package in lacking)))
