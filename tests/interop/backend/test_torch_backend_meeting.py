"""bindings/torch, built for the PyTorch that runs this: how ranks meet: by any store, under any launcher, or none.
Skipped (77) where torch or its headers are missing, and under a sanitizer."""
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "support"))
import forked  # noqa: E402
import slurm  # noqa: E402
import torch_package  # noqa: E402
from patience import DEADLINE, free_port  # noqa: E402

MEETING = HERE / "torch_meeting.py"
PAGE = HERE.parents[2] / "docs" / "pytorch.md"


def command(*words, **environment):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=DEADLINE, check=False,
                          env=torch_package.environment(**environment))


def line_of(variables):
    """The page's command that makes PyTorch's variables of those of a launcher, for this program."""
    found = re.search(rf"sh -c '(RANK=\${variables}_.*)'", PAGE.read_text(encoding="utf-8"))
    return found[1].replace("python3 train.py", f"{sys.executable} {MEETING} env")


class Meeting(unittest.TestCase):
    def met(self, done, ranks=2):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(sorted(done.stdout.split()), [f"met-{r}" for r in range(ranks)], done.stdout + done.stderr)

    def by_hand(self, *arguments, **environment):
        """Two processes that nobody but this has started."""
        ranks = [forked.popen([MEETING, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              env=torch_package.environment(RANK=str(r), WORLD_SIZE="2", **environment))
                 for r in range(2)]
        said = [rank.communicate(timeout=DEADLINE) for rank in ranks]
        for r, rank in enumerate(ranks):
            self.assertEqual((rank.returncode, said[r][0].strip()), (0, f"met-{r}"), said)

    def test_env(self):
        self.by_hand("env", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))

    def test_a_rank_that_comes_too_late(self):
        self.by_hand("late", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))

    def test_tcp(self):
        self.by_hand("init", f"tcp://127.0.0.1:{free_port()}")

    def test_file(self):
        with tempfile.TemporaryDirectory() as folder:
            self.by_hand("init", f"file://{folder}/meeting")

    def test_stores(self):
        """PrefixStore in each of them; the classic TCPStore where there is a choice."""
        with tempfile.TemporaryDirectory() as folder:
            self.by_hand("stores", folder, free_port(), free_port())

    def test_spawn(self):
        self.met(command(sys.executable, MEETING, "spawn", free_port()))

    def test_tutti_run(self):
        self.met(torch_package.launch(2, MEETING, "env"))

    def test_torchrun(self):
        if torch_package.VERSION < (2, 0):
            self.skipTest("Debian's torchrun 1.13 can't start ranks with this Python")
        self.met(command(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", MEETING,
                         "env"))

    def test_restart_of_one_of_two_nodes(self):
        """Torchrun's agents keep their store, and each counts its own workers' failures."""
        if torch_package.VERSION < (2, 0):
            self.skipTest("Debian's torchrun 1.13 can't start ranks with this Python")
        with tempfile.TemporaryDirectory() as folder:
            line = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", "--nproc_per_node=1",
                    "--rdzv_backend=c10d", f"--rdzv_endpoint=127.0.0.1:{free_port()}", "--rdzv_id=restart",
                    "--local_addr=127.0.0.1", "--max_restarts=1", "--monitor_interval=0.1", MEETING, "restarted",
                    folder]
            nodes = [subprocess.Popen([str(word) for word in line], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                      text=True, env=torch_package.environment(NODE=str(n)), start_new_session=True)
                     for n in range(2)]
            try:
                said = [node.communicate(timeout=DEADLINE) for node in nodes]
            finally:
                for node in nodes:
                    if node.poll() is None:
                        os.killpg(node.pid, signal.SIGKILL)
        self.assertEqual([node.returncode for node in nodes], [0, 0], said)
        self.assertEqual([set(out.split()) & {"count-0", "count-1"} for out, _ in said], [{"count-0"}, {"count-1"}])
        self.assertEqual(sorted(word for out, _ in said for word in out.split() if word.startswith("met-")),
                         ["met-0", "met-1"])

    def test_mpirun(self):
        """With the line of docs/pytorch.md, which gives each rank PyTorch's variables."""
        for mpi, variables, flags in (("openmpi", "OMPI", ("--oversubscribe", "--allow-run-as-root")),
                                      ("mpich", "PMI", ())):
            with self.subTest(mpi):
                mpirun = shutil.which(f"mpirun.{mpi}")
                if not mpirun:
                    self.skipTest(f"there is no mpirun.{mpi}; ./dev setup --launchers installs it")
                self.met(command(mpirun, *flags, "-n", "2", "sh", "-c", line_of(variables), MASTER_ADDR="127.0.0.1",
                                 MASTER_PORT=str(free_port())))

    def test_slurm(self):
        """Likewise, on one node and on two, which are this machine but are kept from sharing memory."""
        lacking = slurm.missing()
        if lacking:
            self.skipTest(f"Slurm is not here ({', '.join(lacking)}); ./dev setup --launchers installs it")
        host = socket.gethostname().split(".")[0]
        try:
            cluster = slurm.Cluster([host, host + "-b"]).__enter__()
        except RuntimeError as why:
            self.skipTest(f"this machine runs no Slurm: {why}")
        try:
            for nodes in (1, 2):
                apart = "export TT_HOST_ID=$SLURMD_NODENAME; " if nodes == 2 else ""
                env = {"PYTHONPATH": str(torch_package.PACKAGE), "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1",
                       "MASTER_PORT": str(free_port())}
                code, out, err = cluster.run("srun", f"-N{nodes}", "-n2", "sh", "-c", apart + line_of("SLURM"), env=env)
                with self.subTest(nodes=nodes):
                    self.met(subprocess.CompletedProcess("srun", code, out, err))
        finally:
            cluster.__exit__()

    def test_names_of_several_devices(self):
        done = torch_package.launch(2, MEETING, "devices")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_entry_point(self):
        """Without the import, by the metadata that pip leaves."""
        if torch_package.VERSION < (2, 5):
            self.skipTest("PyTorch looks for entry points since 2.5")
        groups = {"torch.backends": "tutti_torch = tutti_torch_autoload:load",
                  "torch.distributed.backends": "tutti = tutti_torch:_register"}
        for group, line in groups.items():
            if group == "torch.distributed.backends" and torch_package.VERSION < (2, 13):
                continue
            with self.subTest(group=group), tempfile.TemporaryDirectory() as folder:
                metadata = pathlib.Path(folder, "tutti_torch-0.1.0.dist-info")
                metadata.mkdir()
                metadata.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: tutti-torch\nVersion: 0.1.0\n",
                                                         encoding="utf-8")
                metadata.joinpath("entry_points.txt").write_text(f"[{group}]\n{line}\n", encoding="utf-8")
                pathlib.Path(folder, "tutti_torch").symlink_to(torch_package.PACKAGE / "tutti_torch")
                name = "tutti_torch_autoload.py"
                pathlib.Path(folder, name).symlink_to(torch_package.ROOT / "bindings/torch" / name)
                environment = dict(torch_package.environment(), PYTHONPATH=folder)
                done = subprocess.run([os.environ["TUTTI"], "run", "--standalone", "--nproc-per-node=2",
                                       sys.executable, str(MEETING), "without-import"], capture_output=True, text=True,
                                      timeout=DEADLINE, check=False, env=environment)
                self.met(done)


if __name__ == "__main__":
    torch_package.main()
