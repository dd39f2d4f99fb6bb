"""PyTorch's own tests of RPC, which are part of its wheel, over one agent: torch_rpc_runner.py AGENT FILE REGEX, for
test_torch_rpc_cases.py. AGENT is TENSORPIPE or TUTTI. FILE gets what came of each case, as JSON: name -> [outcome, the
end of what it said]. Each case runs as torch_case_runner.py says."""
import enum
import os
import re
import sys
import tempfile
import unittest

AGENT, OUT, PATTERN = sys.argv[1:]
sys.argv = sys.argv[:1]  # PyTorch's test tools read it
os.environ.update(TP_SOCKET_IFNAME="lo", GLOO_SOCKET_IFNAME="lo",
                  TUTTI_INTERFACE=os.environ.get("TUTTI_INTERFACE", "lo"))
LIMIT = 100  # seconds, of a case

import torch.distributed.rpc as rpc  # noqa: E402  (after the environment is set)
import torch.distributed.rpc._testing  # noqa: E402,F401  (its agent fails on purpose)
import torch.testing._internal.common_distributed as tools  # noqa: E402
import torch.testing._internal.distributed.rpc_utils as suites  # noqa: E402
import torch_case_runner  # noqa: E402
from torch.testing._internal.distributed.rpc import faulty_rpc_agent_test_fixture as faulty  # noqa: E402
from torch.testing._internal.distributed.rpc import tensorpipe_rpc_agent_test_fixture as plain  # noqa: E402

registry = rpc.backend_registry
FAULTY = "FAULTY_TENSORPIPE"
# enum MessageType of PyTorch's message.h
TYPES = {"SCRIPT_CALL": 0x100, "PYTHON_CALL": 0x102, "SCRIPT_REMOTE_CALL": 0x104, "PYTHON_REMOTE_CALL": 0x105,
         "SCRIPT_RREF_FETCH_CALL": 0x107, "PYTHON_RREF_FETCH_CALL": 0x108, "RREF_USER_DELETE": 0x10b,
         "RREF_FORK_REQUEST": 0x10c, "RREF_CHILD_ACCEPT": 0x10d, "FORWARD_AUTOGRAD_REQ": 0x10f,
         "BACKWARD_AUTOGRAD_REQ": 0x111, "CLEANUP_AUTOGRAD_CONTEXT_REQ": 0x113}


def put_in_place_of_faulty_agent(create):
    """PyTorch's tests ask by name for its agent that fails on purpose: ours takes the name, and its options."""

    def handler(store, name, rank, world_size, rpc_backend_options):
        options = rpc_backend_options
        failing = {TYPES[kind] for kind in options.messages_to_fail}
        delays = {TYPES[kind]: seconds for kind, seconds in options.messages_to_delay.items()}
        return create(store, name, rank, world_size, options, (failing, options.num_fail_sends, delays))

    kinds = {kind.name: kind.value for kind in registry.BackendType}
    kinds[FAULTY] = registry.BackendValue(kinds[FAULTY][0], handler)
    registry.BackendType = enum.Enum("BackendType", kinds)


if AGENT == "TUTTI":
    import tutti_torch
    put_in_place_of_faulty_agent(tutti_torch._create_rpc_agent)
WITH_FAULTY = registry.BackendType
PLAIN = enum.Enum("BackendType", {kind.name: kind.value for kind in WITH_FAULTY if kind.name != FAULTY})


class Fixture(plain.TensorPipeRpcAgentTestFixture):
    """As in a program that has not imported the faulty agent: init_rpc() asks each kind for its options."""

    def setUp(self):
        rpc.BackendType = registry.BackendType = PLAIN
        super().setUp()

    @property
    def rpc_backend(self):
        return registry.BackendType[AGENT]


class FaultyFixture(faulty.FaultyRpcAgentTestFixture):
    def setUp(self):
        rpc.BackendType = registry.BackendType = WITH_FAULTY
        super().setUp()


def cases_of():
    """Class.method -> case."""
    tools.MultiProcessTestCase._spawn_processes = torch_case_runner.fork_ranks
    cases = {}
    for fixture, kinds in ((Fixture, suites.GENERIC_TESTS + suites.TENSORPIPE_TESTS),
                           (FaultyFixture, suites.FAULTY_AGENT_TESTS)):
        made = suites.generate_tests("", fixture, kinds, __name__)
        globals().update(made)  # what a rank refers to by name
        for kind in made.values():
            group = unittest.defaultTestLoader.loadTestsFromTestCase(kind)
            cases.update({".".join(case.id().split(".")[-2:]): case for case in group})
    return {name: case for name, case in sorted(cases.items()) if re.search(PATTERN, name)}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch_case_runner.run(AGENT, cases_of(), OUT, LIMIT, folder)
