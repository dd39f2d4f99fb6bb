"""Peers that are PyTorch: Debian's, and the current one of PyPI."""
import functools
import os
import pathlib
import subprocess

import launch
from contenders import BENCH, PEERS, Failed, Missing, objects, run

ROOT = BENCH.parent
PYTHON = "/usr/bin/python3"  # Debian's, for Debian's PyTorch
CURRENT = ROOT / "build" / "peers" / "torch" / "bin" / "python3"


def openblas_core():
    """OpenBLAS picks a slow kernel on processors newer than itself: name the best one this processor has."""
    flags = pathlib.Path("/proc/cpuinfo").read_text()
    return "SkylakeX" if " avx512f" in flags else "Haswell" if " avx2" in flags else None


def torch_env():
    env = dict(os.environ, OMP_NUM_THREADS="1")
    if openblas_core():
        env["OPENBLAS_CORETYPE"] = openblas_core()
    return env


@functools.lru_cache
def has_torch(python):
    return subprocess.run([python, "-c", "import torch.distributed"], capture_output=True).returncode == 0


def torch(world, script, *words, python=None, setup="--interop", **variables):
    python = python or PYTHON
    if not has_torch(python):
        raise Missing(f"{python} has no torch (./dev setup {setup} installs it)")
    command, env = [python, str(PEERS / script), *map(str, words)], dict(torch_env(), **variables)
    if world == 1:
        return run(command, env)
    code, text = launch.launch(world, command, env, stderr=subprocess.DEVNULL)
    if code:
        raise Failed(f"{script}: exit code {code}")
    return objects(text)


def current_torch(world, script, *words, **variables):
    """The PyTorch that PyPI has, which is linked with MKL."""
    return torch(world, script, *words, python=str(CURRENT), setup="--torch", **variables)


@functools.lru_cache
def backend_package(python):
    """The folder of bindings/torch, built for this Python's PyTorch."""
    if not has_torch(python):
        raise Missing(f"{python} has no torch (./dev setup installs it: --interop, --torch)")
    version = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True,
                             check=True).stdout.strip()
    folder = ROOT / "build" / "bindings" / ("torch-" + ".".join(version.split(".")[:2]))
    configure = ["cmake", "-S", ROOT / "bindings/torch", "-B", folder, "-G", "Ninja", f"-DTUTTI_BUILD={ROOT / 'build'}",
                 f"-DPython_EXECUTABLE={python}"]
    for command in (configure, ["cmake", "--build", folder]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise Failed(f"{command}: {(done.stdout + done.stderr)[-800:]}")
    return folder
