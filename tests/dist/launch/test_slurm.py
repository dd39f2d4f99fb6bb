#!/usr/bin/env python3
"""Under a real Slurm, which the test configures and starts: srun tells all that ranks need; a batch script without srun
is told so; steps of one job, and an mpirun within one, don't disturb each other."""
import json
import os
import pathlib
import re
import shutil
import socket
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(os.environ["TT_SOURCE"]) / "tests" / "support"))
import slurm  # noqa: E402
from patience import free_port  # noqa: E402

PROGRAM = os.path.join(os.environ["TT_PROGRAMS"], "backend_sum")
MNIST = os.path.join(os.environ["TT_BUILD"], "examples", "mnist_trainer")
TUTTI = os.environ["TUTTI"]
SECRET = {"TT_SECRET": "0123456789abcdef0123456789abcdef"}
HOST = socket.gethostname().split(".")[0]


def ranks_of(out):
    """Of backend_sum: each line's rank, world size and sum."""
    return sorted(tuple(int(n) for n in found)
                  for found in re.findall(r"rank (\d+) of (\d+): native, sum (\d+)", out))


def all_of(n):
    return [(r, n, n) for r in range(n)]


class Slurm(unittest.TestCase):
    def expect(self, got, n):
        code, out, err = got
        self.assertEqual((code, ranks_of(out)), (0, all_of(n)), f"\n{out}{err}{cluster.logs()}")

    def test_the_first_program_needs_no_flags(self):
        """As under `tutti run`: the same losses, to the last digit."""
        def losses(text):
            return re.findall(r"Epoch \d+, loss [\d.]+, accuracy [\d.]+ %", text)

        env = {"OMP_NUM_THREADS": "1"}
        code, out, err = cluster.run("srun", "-N1", "-n2", MNIST, env=env)
        self.assertEqual(code, 0, out + err + cluster.logs())
        _, want, _ = cluster.run(TUTTI, "run", "--standalone", "--nproc-per-node=2", MNIST, env=env)
        self.assertEqual(len(losses(want)), 5)
        self.assertEqual(losses(out), losses(want))

    def test_a_node(self):
        self.expect(cluster.run("srun", "-N1", "-n3", PROGRAM, "native"), 3)

    def test_one_task(self):
        self.expect(cluster.run("srun", "-N1", "-n1", PROGRAM, "native"), 1)

    def test_two_nodes(self):
        """Both are this machine, but TT_HOST_ID keeps their ranks from sharing memory. They meet on the first."""
        try:
            socket.getaddrinfo(HOST, None)
        except OSError:
            self.skipTest(f"this machine's own name, {HOST}, is unknown to it")
        command = ["srun", "-N2", "-n3", "sh", "-c", 'TT_HOST_ID=$SLURMD_NODENAME exec "$0" native', PROGRAM]
        self.expect(cluster.run(*command, env=SECRET), 3)
        self.expect(cluster.run(*command, env={"TT_MUNGE_SOCKET": cluster.hosts[0].socket}), 3)
        code, _, err = cluster.run(*command, env={"TT_MUNGE_SOCKET": "/nowhere/socket"})
        self.assertNotEqual(code, 0)
        self.assertIn("3 ranks on several hosts, but no job secret (munge can't", err)
        self.assertIn("set TT_SECRET_FILE", err)

    def test_pmi2_and_pmix(self):
        _, _, kinds = cluster.run("srun", "--mpi=list")
        for kind in ("pmi2", "pmix"):
            if re.search(rf"^\s*{kind}$", kinds, re.M):
                with self.subTest(kind):
                    self.expect(cluster.run("srun", f"--mpi={kind}", "-N1", "-n2", PROGRAM, "native"), 2)

    def test_the_users_own_place(self):
        """MASTER_ADDR and MASTER_PORT count first: a port that is no port is refused."""
        code, _, err = cluster.run("srun", "-N1", "-n2", PROGRAM, "native", env={"MASTER_PORT": "70000"})
        self.assertNotEqual(code, 0)
        self.assertIn('MASTER_PORT: expected a number from 0 to 65535, got "70000"', err)

    def test_our_launcher_on_each_node(self):
        """RANK and WORLD_SIZE, which `tutti run` sets, count before what srun says of the launchers."""
        run = f"exec {TUTTI} run --nnodes=2 --node-rank=$SLURM_NODEID --nproc-per-node=2 " \
              f"--rdzv-endpoint=127.0.0.1:{free_port()} {PROGRAM} native"
        self.expect(cluster.run("srun", "-N2", "-n2", "--ntasks-per-node=1", "sh", "-c", run,
                                env=SECRET), 4)

    def test_the_doctor(self):
        code, out, err = cluster.run("srun", "-N1", "-n2", TUTTI, "doctor", "--json")
        said = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
        self.assertEqual(sorted(s["launcher"]["rank"] for s in said), [0, 1], out + err)
        for s in said:
            self.assertEqual((s["launcher"]["name"], s["launcher"]["local_world"]), ("srun", 2))
            places = [c for c in s["checks"] if c["check"] == "meeting place"]
            self.assertEqual({c["verdict"] for c in places}, {"ok"}, places)

    def test_a_batch_script(self):
        """Without srun the error says so; steps of one job at the same time meet apart."""
        code, out = cluster.batch(f"{PROGRAM} native", "-N1", "-n2")
        self.assertNotEqual(code, 0)
        self.assertIn("saw SLURM_PROCID=0 and SLURM_NTASKS=2, but no SLURM_STEP_ID", out)
        self.assertIn("start the program with `srun PROGRAM`", out)
        step = f"srun -N1 -n2 --exact {PROGRAM} native"
        code, out = cluster.batch(f"{step} & {step} & wait", "-N1", "-n4")
        self.assertEqual((code, ranks_of(out)), (0, sorted(all_of(2) * 2)), out + cluster.logs())

    def test_mpirun_within_a_job(self):
        """Its own variables count, not those of the Slurm around it."""
        for mpi, flags in (("openmpi", "--oversubscribe --allow-run-as-root"), ("mpich", "")):
            with self.subTest(mpi):
                if not shutil.which(f"mpirun.{mpi}"):
                    self.skipTest(f"there is no mpirun.{mpi}")
                code, out = cluster.batch(f"mpirun.{mpi} {flags} -n 3 {PROGRAM} native", "-N1", "-n3")
                self.assertEqual((code, ranks_of(out)), (0, all_of(3)), out + cluster.logs())


if __name__ == "__main__":
    lacking = slurm.missing()
    if lacking:
        print("skipped: Slurm is not here (", ", ".join(lacking), "); ./dev setup --launchers installs it")
        sys.exit(77)
    try:
        cluster = slurm.Cluster([HOST, HOST + "-b"]).__enter__()
    except RuntimeError as why:  # of Slurm's own: a kernel, a host name or a container that it can't live with
        print("skipped: this machine runs no Slurm:", why)
        sys.exit(77)
    try:
        unittest.main(verbosity=2)
    finally:
        cluster.__exit__()
