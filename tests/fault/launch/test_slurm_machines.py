#!/usr/bin/env python3
"""Slurm on two machines of their own (network name spaces, with names, a munged and a slurmd each): a program needs no
flags there either, and the job secret comes from MUNGE."""
import os
import pathlib
import re
import sys
import unittest

sys.path[:0] = [str(pathlib.Path(os.environ["TT_SOURCE"]) / "tests" / folder) for folder in ("support", "security")]
import lab  # noqa: E402
import slurm  # noqa: E402

TUTTI = os.environ["TUTTI"]
TRAINER = str(pathlib.Path(os.environ["TT_BUILD"]) / "examples" / "mnist_trainer")
ADDRESSES = ("10.81.0.1", "10.81.0.2")
NODES = ("node0", "node1")
ENV = {"OMP_NUM_THREADS": "1"}
FEWER = ["--epochs", "1"] if os.environ.get("TT_SANITIZED") else []


def why_not():
    lacking = slurm.missing()
    return f"Slurm is not here ({', '.join(lacking)}); ./dev setup --launchers installs it" if lacking else \
        lab.why_not()


def losses(text):
    return re.findall(r"Epoch \d+, loss [\d.]+, accuracy [\d.]+ %", text)


class Machines(unittest.TestCase):
    def test_the_first_program(self):
        """The same losses as on one host; each rank's secret is rank 0's, and connections between them are sealed."""
        code, out, err = cluster.run("srun", "-l", "-N2", "-n2", TRAINER, *FEWER, env={**ENV, "TT_LOG": "debug"})
        self.assertEqual(code, 0, out + err + cluster.logs())
        _, want, _ = cluster.run(TUTTI, "run", "--standalone", "--nproc-per-node=2", TRAINER, *FEWER, env=ENV)
        self.assertEqual(len(losses(want)), 1 if FEWER else 5)
        self.assertEqual(losses(out), losses(want))
        self.assertRegex(err, r"0: .*rank 0: .*the job secret is drawn here, and handed out sealed by MUNGE")
        self.assertRegex(err, r"1: .*rank 1: .*the job secret comes from rank 0 at node0:\d+, sealed by MUNGE")

    def test_several_ranks_of_a_host(self):
        code, out, err = cluster.run("srun", "-N2", "-n4", TRAINER, "--epochs", "1", env=ENV)
        self.assertEqual((code, len(losses(out))), (0, 1), out + err + cluster.logs())

    def test_no_munge_for_the_ranks(self):
        """One line says what is open."""
        code, _, err = cluster.run("srun", "-N2", "-n2", TRAINER, env={**ENV, "TT_MUNGE_SOCKET": "/nowhere/socket"})
        self.assertNotEqual(code, 0)
        said = [line for line in err.splitlines() if "tutti" in line]
        self.assertEqual(len(said), 1, err)
        self.assertIn("rank 0: TT_ERR_AUTH: 2 ranks on several hosts, but no job secret (munge can't", said[0])

    def test_a_wrong_flag_is_told_once(self):
        code, _, err = cluster.run("srun", "-N2", "-n2", TRAINER, "--nonsense", env=ENV)
        self.assertNotEqual(code, 0)
        self.assertEqual(len([line for line in err.splitlines() if "nonsense" in line]), 1, err)

    def test_submitted(self):
        """The batch script that `tutti submit --slurm` prints runs as it is."""
        code, script, err = cluster.run(TUTTI, "submit", "--slurm", TUTTI, "run", "--nnodes=2", "--nproc-per-node=2",
                                        TRAINER, "--epochs", "1")
        self.assertEqual(code, 0, err)
        out = pathlib.Path(cluster.path("submitted.txt"))
        job = pathlib.Path(cluster.path("job.sh"))
        job.write_text(script, encoding="utf-8")
        code, _, err = cluster.run("sbatch", "--wait", "-o", str(out), str(job), env=ENV)
        text = out.read_text(errors="replace")
        self.assertEqual((code, len(losses(text))), (0, 1), text + err + cluster.logs())

    def test_the_doctor(self):
        code, out, err = cluster.run("srun", "-l", "-N2", "-n2", TUTTI, "doctor", env=ENV)
        self.assertRegex(out, r"0: ok +job secret: MUNGE", out + err)
        self.assertRegex(out, r"1: ok +job secret: MUNGE", out + err)
        self.assertNotIn("WRONG job secret", out)


if __name__ == "__main__":
    reason = why_not()
    if reason:
        print("skipped:", reason)
        sys.exit(77)
    machines = [lab.Machine(node) for node in NODES]
    try:
        lab.join_machines(machines[0], "eth0", machines[1], "eth0")
        for machine, address in zip(machines, ADDRESSES):
            machine.ip(f"addr add {address}/24 dev eth0")
        try:
            cluster = slurm.Cluster(NODES, list(zip(machines, ADDRESSES))).__enter__()
        except RuntimeError as why:  # of Slurm's own: a kernel, a host name or a container that it can't live with
            print("skipped: this machine runs no Slurm:", why)
            sys.exit(77)
        try:
            unittest.main(verbosity=2)
        finally:
            cluster.__exit__()
    finally:
        for machine in machines:
            machine.end()
