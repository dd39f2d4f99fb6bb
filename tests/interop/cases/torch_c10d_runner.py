"""PyTorch's own tests of c10d over one back end: torch_c10d_runner.py BACK-END FILE REGEX, for
test_torch_c10d_cases.py. FILE gets what came of each case, as JSON: name -> [outcome, the end of what it said]. Each
case runs as torch_case_runner.py says."""
import datetime
import importlib.util
import os
import pathlib
import re
import sys
import tempfile
import unittest

BACK_END, OUT, PATTERN = sys.argv[1:]
sys.argv = sys.argv[:1]  # PyTorch's test tools read it
os.environ.update(BACKEND=BACK_END, WORLD_SIZE="3", TEMP_DIR=tempfile.gettempdir(), GLOO_SOCKET_IFNAME="lo",
                  TUTTI_INTERFACE=os.environ.get("TUTTI_INTERFACE", "lo"))
FOLDER = pathlib.Path(os.environ["TT_TORCH_C10D_TESTS"])
LIMIT = 60  # seconds, of a case

import torch  # noqa: E402  (after the environment is set)
import torch.distributed as dist  # noqa: E402
import torch.testing._internal.common_distributed as tools  # noqa: E402
import torch.testing._internal.distributed as package  # noqa: E402
import torch_case_runner  # noqa: E402

if BACK_END == "tutti":
    import tutti_torch

INTERNAL = pathlib.Path(package.__file__).parent
SOURCES = {"torch.testing._internal.distributed.distributed_test": INTERNAL / "distributed_test.py",
           "test_c10d_common": FOLDER / "test_c10d_common.py",
           "test_c10d_gloo": FOLDER / "test_c10d_gloo.py",
           "test_distributed_spawn": FOLDER / "test_distributed_spawn.py"}
NAMES = [(r"(?<=[\"':])gloo(?=[\"',])", "tutti"), (r"\b(?:\w+\.)?Backend\.GLOO\b", '"tutti"'),
         (r"\bbackend\.create_device\(", "create_device(")]  # a method of gloo's


class Options:
    """What ProcessGroupGloo takes; the devices and threads are gloo's own."""

    def __init__(self):
        self._timeout, self._devices, self._threads = 300, [], 2


class InPlaceOfGloo:
    _Options = Options
    create_device = dist.ProcessGroupGloo.create_device
    create_default_device = dist.ProcessGroupGloo.create_default_device

    def __new__(cls, store, rank, size, options=None, timeout=None):
        timeout = timeout or getattr(options, "_timeout", options) or 300
        seconds = timeout.total_seconds() if isinstance(timeout, datetime.timedelta) else timeout
        return tutti_torch._C.create(store, rank, size, float(seconds))


def load(name, source, folder):
    """Import a copy, in which the back end's name stands in for gloo's."""
    text = source.read_text()
    if BACK_END != "gloo":
        for old, new in NAMES:
            text = re.sub(old, new, text)
        text = text.replace("c10d.ProcessGroupGloo", "__import__('__main__').InPlaceOfGloo")
    copy = pathlib.Path(folder) / source.name
    copy.write_text(text)
    spec = importlib.util.spec_from_file_location(name, copy)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def without_replicated_tensors():
    """PyTorch 1.13's tests have DistributedDataParallel use a module of PyTorch's that Python 3.11 can't import."""
    if torch.__version__.startswith("1.") and sys.version_info >= (3, 11):
        from torch.nn.parallel import _replicated_tensor_ddp_utils as switch
        switch._set_ddp_with_replicated_tensor = lambda on: None


def have_gloo_s_features():
    """The sets of back ends that have what a case needs, or that it is skipped for."""
    for features in (tools.DistTestCases.backend_feature, tools.DistTestCases.skip_collective):
        for back_ends in features.values():
            if "gloo" in back_ends:
                back_ends.add(BACK_END)


def cases_of(folder):
    """Class.method -> case."""
    tools.MultiProcessTestCase._spawn_processes = torch_case_runner.fork_ranks
    without_replicated_tensors()
    have_gloo_s_features()
    cases = {}
    for name, source in SOURCES.items():
        module = load(name, source, folder)
        if name.startswith("test_"):
            for kind in [kind for kind in vars(module).values() if isinstance(kind, type)]:
                if issubclass(kind, unittest.TestCase):
                    group = unittest.defaultTestLoader.loadTestsFromTestCase(kind)
                    cases.update({".".join(case.id().split(".")[-2:]): case for case in group})
    return {name: case for name, case in sorted(cases.items()) if re.search(PATTERN, name)}


def main():
    with tempfile.TemporaryDirectory() as scratch:
        torch_case_runner.run(BACK_END, cases_of(scratch), OUT, LIMIT, scratch)


if __name__ == "__main__":
    main()
