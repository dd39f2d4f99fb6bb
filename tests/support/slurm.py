"""A Slurm of a test's own: munged, slurmctld and a slurmd for each node, all on this machine, with ports, files and
keys of their own, in a folder that is thrown away. No configuration of the machine's is read or changed."""
import getpass
import os
import shutil
import subprocess
import tempfile
import time

from patience import DEADLINE, free_port

NEEDED = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "sinfo")
PATH = os.environ["PATH"] + ":/usr/sbin:/sbin"

CONFIGURATION = """ClusterName=test
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing():
    """What of Slurm is not installed here: programs' names."""
    return [name for name in NEEDED if not shutil.which(name, path=PATH)]


class Cluster:
    """`nodes`: their names. The first of the alphabet ought to be this machine's, for ranks meet there; none
    "localhost"."""

    def __init__(self, nodes):
        self.folder = tempfile.mkdtemp(prefix="tutti-slurm-")
        self.env = dict(os.environ, PATH=PATH, SLURM_CONF=os.path.join(self.folder, "slurm.conf"))
        for name in [n for n in self.env if n.startswith(("SLURM_", "PMI", "OMPI_")) and n != "SLURM_CONF"]:
            del self.env[name]
        self.daemons = []
        self.nodes = nodes

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for daemon in reversed(self.daemons):
            daemon.terminate()
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.folder, name)

    def daemon(self, *argv):
        with open(self.path(f"daemon.{len(self.daemons)}.out"), "wb") as out:
            self.daemons.append(subprocess.Popen(argv, env=self.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                                 cwd=self.folder))

    def start(self):
        os.chmod(self.folder, 0o711)  # munged wants its socket to be reachable by all
        os.mkdir(self.path("state"), 0o700)
        key = os.open(self.path("munge.key"), os.O_WRONLY | os.O_CREAT, 0o600)
        os.write(key, os.urandom(128))
        os.close(key)
        files = {"--key-file": "munge.key", "--socket": "munge.socket", "--pid-file": "munged.pid",
                 "--log-file": "munged.log", "--seed-file": "munged.seed"}
        self.daemon("munged", "--foreground", "--force", *(f"{k}={self.path(v)}" for k, v in files.items()))
        self.wait(lambda: os.path.exists(self.path("munge.socket")), "munged's socket")
        with open(self.env["SLURM_CONF"], "w") as file:
            file.write(CONFIGURATION.format(folder=self.folder, user=getpass.getuser(), port=free_port()))
            for node in self.nodes:
                file.write(f"NodeName={node} NodeAddr=127.0.0.1 Port={free_port()} CPUs=8 State=UNKNOWN\n")
        self.daemon("slurmctld", "-D", "-c")
        for node in self.nodes:
            self.daemon("slurmd", "-D", "-N", node)
        self.wait(lambda: self.states() == ["idle"] * len(self.nodes), "all nodes to be idle")

    def states(self):
        return subprocess.run(["sinfo", "-h", "-N", "-o", "%t"], env=self.env, capture_output=True,
                              text=True).stdout.split()

    def wait(self, there, what):
        deadline = time.monotonic() + DEADLINE
        while not there():
            ended = [d.args[0] for d in self.daemons if d.poll() is not None]
            if ended or time.monotonic() > deadline:
                raise RuntimeError(f"waited for {what}; ended: {ended}\n" + self.logs())
            time.sleep(0.05)

    def logs(self):
        texts = []
        for name in sorted(os.listdir(self.folder)):
            if name.endswith((".log", ".out")):
                with open(self.path(name), errors="replace") as file:
                    texts.append(f"== {name}\n" + file.read()[-2000:])
        return "\n".join(texts)

    def run(self, *argv, env=None):
        """A command's exit code, output and errors."""
        done = subprocess.run(argv, env=dict(self.env, **(env or {})), capture_output=True, text=True,
                              timeout=2 * DEADLINE, cwd=self.folder, stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout, done.stderr

    def batch(self, script, *flags):
        """Run a batch script to its end; its exit code, and its output and errors together."""
        out = self.path("batch.txt")
        code, _, err = self.run("sbatch", "--wait", "-o", out, *flags, "--wrap", script)
        with open(out, errors="replace") as file:
            return code, file.read() + err
