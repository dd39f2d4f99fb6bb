"""A Slurm of a test's own: munged, slurmctld and a slurmd for each node, all on this machine or each node on one of its
own (network name spaces), with ports, files and keys of their own, in a folder that is thrown away. No configuration of
the machine's is read or changed."""
import getpass
import os
import shutil
import subprocess
import tempfile
import time

import munge
from patience import DEADLINE, free_port

NEEDED = ("munged", "slurmctld", "slurmd", "srun", "sbatch", "sinfo")
PATH = munge.PATH

CONFIGURATION = """ClusterName=test
SlurmctldHost={controller}
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={socket}
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


class Here:
    """Where the daemons of a node run: on this machine."""
    controller, address = "localhost(127.0.0.1)", "127.0.0.1"
    munge = ""  # the folder of its munged

    def __init__(self, _name, folder):
        self.socket = os.path.join(folder, "munge.socket")

    def argv(self, *argv):
        return list(argv)


class Apart:
    """On a machine of its own (lab.Machine), whose munged listens where MUNGE's packages let it listen, and whose
    /etc/hosts names all nodes: mounts that only what is started there sees."""
    socket = "/run/munge/munge.socket.2"
    MOUNTS = "mount -t tmpfs none /run && mkdir /run/munge && mount --bind $0/run.$1 /run/munge && " \
             "mount --bind $0/hosts /etc/hosts && shift && exec \"$@\""

    def __init__(self, name, folder, machine, address):
        self.name, self.folder, self.machine, self.address = name, folder, machine, address
        self.controller, self.munge = f"{name}({address})", f"run.{name}"
        os.mkdir(os.path.join(folder, self.munge), 0o755)
        with open(os.path.join(folder, "hosts"), "a", encoding="ascii") as hosts:
            hosts.write(f"{address} {name}\n")

    def argv(self, *argv):
        return self.machine.argv(["unshare", "--mount", "sh", "-c", self.MOUNTS, self.folder, self.name, *argv])


class Cluster:
    """`nodes`: their names. The first of the alphabet ought to be this machine's, for ranks meet there; none
    "localhost". `machines`: or a lab.Machine and its address for each."""

    def __init__(self, nodes, machines=None):
        self.folder = tempfile.mkdtemp(prefix="tutti-slurm-")
        self.env = dict(os.environ, PATH=PATH, SLURM_CONF=os.path.join(self.folder, "slurm.conf"))
        for name in [n for n in self.env if n.startswith(("SLURM_", "PMI", "OMPI_")) and n != "SLURM_CONF"]:
            del self.env[name]
        self.daemons = []
        self.nodes = nodes
        self.hosts = [Apart(node, self.folder, *machine) for node, machine in zip(nodes, machines)] if machines else \
            [Here(node, self.folder) for node in nodes]

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

    def daemon(self, host, *argv):
        with open(self.path(f"daemon.{len(self.daemons)}.out"), "wb") as out:
            self.daemons.append(subprocess.Popen(host.argv(*argv), env=self.env, stdin=subprocess.DEVNULL, stdout=out,
                                                 stderr=out, cwd=self.folder))

    def start(self):
        os.chmod(self.folder, 0o711)  # munged wants its socket to be reachable by all
        os.mkdir(self.path("state"), 0o700)
        munge.write_key(self.path("munge.key"))
        started = {}
        for host in self.hosts:
            if host.munge not in started:
                self.daemon(host, *munge.argv(self.path(host.munge), self.path("munge.key"), host.socket))
            started[host.munge] = os.path.join(self.path(host.munge), os.path.basename(host.socket))
        self.wait(lambda: all(os.path.exists(socket) for socket in started.values()), "munged's socket")
        first = self.hosts[0]
        with open(self.env["SLURM_CONF"], "w") as file:
            file.write(CONFIGURATION.format(folder=self.folder, user=getpass.getuser(), port=free_port(),
                                            controller=first.controller, socket=first.socket))
            for node, host in zip(self.nodes, self.hosts):
                file.write(f"NodeName={node} NodeAddr={host.address} Port={free_port()} CPUs=8 State=UNKNOWN\n")
        self.daemon(first, "slurmctld", "-D", "-c")
        for node, host in zip(self.nodes, self.hosts):
            self.daemon(host, "slurmd", "-D", "-N", node)
        self.wait(lambda: self.states() == ["idle"] * len(self.nodes), "all nodes to be idle")

    def states(self):
        return subprocess.run(self.hosts[0].argv("sinfo", "-h", "-N", "-o", "%t"), env=self.env, capture_output=True,
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
        """A command's exit code, output and errors. It runs where the first node is."""
        done = subprocess.run(self.hosts[0].argv(*argv), env=dict(self.env, **(env or {})), capture_output=True,
                              text=True, timeout=2 * DEADLINE, cwd=self.folder, stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout, done.stderr

    def batch(self, script, *flags):
        """Run a batch script to its end; its exit code, and its output and errors together."""
        out = self.path("batch.txt")
        code, _, err = self.run("sbatch", "--wait", "-o", out, *flags, "--wrap", script)
        with open(out, errors="replace") as file:
            return code, file.read() + err
