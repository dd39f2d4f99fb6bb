#!/usr/bin/env python3
"""tutti submit: what it prints is run, by a srun and a kubelet that are played here, on this host's loopback."""
import os
import pathlib
import re
import stat
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(os.environ["TT_SOURCE"]) / "tests" / "support"))
from patience import DEADLINE, free_port  # noqa: E402

TUTTI = os.environ["TUTTI"]

# The node's list is one of names that lead to this host; srun starts its command once a node.
FAKES = {
    "scontrol": """#!/bin/sh
[ "$1 $2 $3" = "show hostnames n[0-1]" ] && printf '127.0.0.1\\nlocalhost\\n'
""",
    "srun": """#!/usr/bin/env python3
import os, subprocess, sys
words = sys.argv[1:]
while words[0].startswith("--"):
    words.pop(0)
nodes = [subprocess.Popen(words, env=dict(os.environ, SLURM_NODEID=str(i)))
         for i in range(int(os.environ["SLURM_NNODES"]))]
sys.exit(max(node.wait() for node in nodes))
""",
}
# A program that tells who it is, and what it was told.
PROGRAM = """#!/bin/sh
printf '%s\\n' "$RANK of $WORLD_SIZE, node $GROUP_RANK: $*" >>"$TELL"
exit "${EXIT_CODE:-0}"
"""


def submit(*argv, code=0):
    done = subprocess.run([TUTTI, "submit", *argv], capture_output=True, text=True, timeout=DEADLINE)
    if done.returncode != code:
        raise AssertionError(f"{argv}: expected {code}, got {done.returncode}: {done.stderr}")
    return done.stdout if code == 0 else done.stderr


def make_executable(path, text):
    path.write_text(text, encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


class Submit(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.program = self.folder / "tell me.sh"
        make_executable(self.program, PROGRAM)
        self.told = self.folder / "told"
        self.env = dict(os.environ, TELL=str(self.told))

    def lines(self):
        return sorted(self.told.read_text(encoding="utf-8").splitlines())

    def run_script(self, script, nodes, before=lambda number: None, **env):
        fakes = self.folder / "bin"
        fakes.mkdir(exist_ok=True)
        for name, text in FAKES.items():
            make_executable(fakes / name, text)
        path = self.folder / "job.sbatch"
        path.write_text(script, encoding="utf-8")
        # The port is made of the job's number: one that is free here.
        number = (free_port() - 10000) % 20000
        before(number)
        return subprocess.run(["bash", str(path)], cwd=self.folder, capture_output=True, text=True, timeout=DEADLINE,
                              env=dict(self.env, PATH=f"{fakes}:{os.environ['PATH']}", SLURM_JOB_ID=str(number),
                                       SLURM_NNODES=str(nodes), SLURM_JOB_NODELIST="n[0-1]",
                                       SLURM_SUBMIT_DIR=str(self.folder), SLURM_CPUS_PER_TASK="16", **env))

    def test_a_script_for_two_nodes(self):
        script = submit("--slurm", "--time=4:00:00", "--cpus_per_node", "16", "--gpus-per-node=2",
                        "--memory-per-node=64", "--partition=p", "--account=a", "--warning=120", TUTTI, "run",
                        "--nnodes=2", "--nproc_per_node=2", str(self.program), "it's", "$HOME", "")
        options = re.findall(r"^#SBATCH --(.*)$", script, re.M)
        self.assertEqual(options, ["job-name=tell-me", "nodes=2", "ntasks-per-node=1", "cpus-per-task=16",
                                   "gpus-per-node=2", "mem=64G", "time=4:00:00", "partition=p", "account=a",
                                   "signal=TERM@120", "output=tell-me-%j.out"])
        done = self.run_script(script, 2)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.lines(), [f"{r} of 4, node {r // 2}: it's $HOME " for r in range(4)])
        self.assertNotIn("the job has no secret", done.stderr)
        self.assertEqual([p.name for p in self.folder.iterdir() if "secret" in p.name], [])  # it is removed

    def test_nobody_can_guess_where_a_script_puts_the_secret(self):
        """In a folder that others may write to, a link there would send it anywhere."""
        victim = self.folder / "victim"

        def plant(number):
            for name in (f".tutti-{number}", f".tutti-{number}.secret", "job.secret"):
                (self.folder / name).symlink_to(victim)

        script = submit("--slurm", TUTTI, "run", "--nnodes=2", str(self.program))
        done = self.run_script(script, 2, plant)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse(victim.exists())
        self.assertEqual(len(self.lines()), 2)

    def test_a_script_hands_the_exit_code_on(self):
        for nodes in (1, 2):
            script = submit("--slurm", TUTTI, "run", f"--nnodes={nodes}", str(self.program))
            self.assertEqual(self.run_script(script, nodes, EXIT_CODE="7").returncode, 7)

    def pods(self, manifest):
        """The container of the Job, and what all three documents are."""
        yaml = __import__("yaml")
        documents = {d["kind"]: d for d in yaml.safe_load_all(manifest)}
        return documents, documents["Job"]["spec"]["template"]["spec"]["containers"][0]

    @staticmethod
    def variable(entry, index, secret):
        """The value of a variable, as the kubelet finds it."""
        if "value" in entry:
            return entry["value"]
        source = entry["valueFrom"]
        return secret if "secretKeyRef" in source else str(index)

    def test_a_manifest_for_two_pods(self):
        try:
            __import__("yaml")
        except ImportError:
            self.skipTest("python3-yaml is not installed")
        manifest = submit("--k8s", "--image=registry/train:1", "--name=on", "--memory-per-node=4", TUTTI, "run",
                          "--nnodes=2", "--nproc-per-node=2", str(self.program), 'a "quoted"\\word', "$(HOME)", "é\n")
        documents, container = self.pods(manifest)
        self.assertEqual(sorted(documents), ["Job", "Secret", "Service"])
        self.assertEqual({d["metadata"]["name"] for d in documents.values()}, {"on"})
        secret = documents["Secret"]["stringData"]["secret"]
        self.assertRegex(secret, "^[0-9a-f]{64}$")
        self.assertNotIn(secret, submit("--k8s", "--image=x", TUTTI, "run", "--nnodes=2", "./p"))  # each has its own
        port = str(free_port())
        launchers = []
        for index in range(2):
            env = {e["name"]: self.variable(e, index, secret) for e in container["env"]}
            self.assertEqual((env["PET_MASTER_ADDR"], env["PET_MASTER_PORT"]), ("on-0.on", "29500"))
            env.update(PET_MASTER_ADDR="127.0.0.1", PET_MASTER_PORT=port)
            command = [word.replace("$$", "$") for word in container["command"]]
            launchers.append(subprocess.Popen(command, env=dict(self.env, **env), stderr=subprocess.PIPE, text=True))
        for launcher in launchers:
            _, errors = launcher.communicate(timeout=DEADLINE)
            self.assertEqual(launcher.returncode, 0, errors)
        told = self.told.read_text(encoding="utf-8")
        self.assertEqual(sorted(re.findall(r"^(\d) of 4, node (\d): a \"quoted\"\\word \$\(HOME\) é$", told, re.M)),
                         [(str(r), str(r // 2)) for r in range(4)])

    def test_a_manifest_is_of_kubernetes_types(self):
        """Each field is one that Kubernetes' own client knows, of the type that it expects."""
        try:
            yaml, client = __import__("yaml"), __import__("kubernetes.client").client
        except ImportError:
            self.skipTest("python3-kubernetes is not installed")
        manifest = submit("--k8s", "--image=x", "--namespace=team", "--cpus-per-node=2", "--gpus-per-node=1",
                          "--memory-per-node=4", "--warning=60", "torchrun", "--nnodes=3", "train.py")

        def check(value, kind, where):
            listed, mapped = re.fullmatch(r"list\[(.*)\]", kind), re.fullmatch(r"dict\(str, (.*)\)", kind)
            if listed:
                self.assertIsInstance(value, list, where)
                for i, one in enumerate(value):
                    check(one, listed[1], f"{where}[{i}]")
            elif mapped:
                self.assertIsInstance(value, dict, where)
                for name, one in value.items():
                    if mapped[1] == "str" and not where.endswith(".limits"):  # of quantities numbers are good, too
                        self.assertIsInstance(one, str, where)
            elif hasattr(client, kind):
                model = getattr(client, kind)
                fields = {name: model.openapi_types[field] for field, name in model.attribute_map.items()}
                for name, one in value.items():
                    self.assertIn(name, fields, where)
                    check(one, fields[name], f"{where}.{name}")
            else:
                self.assertIsInstance(value, {"str": str, "int": int, "bool": bool, "object": (int, str)}[kind], where)

        kinds = {"Job": "V1Job", "Service": "V1Service", "Secret": "V1Secret"}
        documents = list(yaml.safe_load_all(manifest))
        self.assertEqual(sorted(d["kind"] for d in documents), sorted(kinds))
        for document in documents:
            check(document, kinds[document["kind"]], document["kind"])
            self.assertEqual(document["metadata"]["namespace"], "team")

    def test_a_manifest_keeps_to_the_schemas(self):
        """Those of each version of Kubernetes that kubernetes-validate (PyPI) knows: no unknown or missing field."""
        try:
            yaml, validator = __import__("yaml"), __import__("kubernetes_validate")
        except ImportError:
            self.skipTest("kubernetes-validate is not installed")
        folder = pathlib.Path(validator.__file__).parent / "kubernetes-json-schema"
        names = " ".join(entry.name for entry in folder.iterdir())
        versions = re.findall(r"\bv(\d+\.\d+)\.\d+-local(?= |$)", names)
        self.assertGreater(len(versions), 5)
        for flags in ("--image=x", "--namespace=team", "--cpus-per-node=2", "--gpus-per-node=1", "--memory-per-node=4",
                      "--warning=60"), ("--image=x",):
            for nodes in ("1", "3"):
                manifest = submit("--k8s", *flags, "torchrun", f"--nnodes={nodes}", "train.py")
                for document in yaml.safe_load_all(manifest):
                    for version in versions:
                        validator.validate(document, version, strict=True)

    def test_wrong_usage(self):
        run = (TUTTI, "run")
        for argv, text in (((*run, "./p"), "expected --slurm or --k8s"),
                           (("--slurm", "--k8s", *run, "./p"), "expected --slurm or --k8s, not both"),
                           (("--k8s", *run, "./p"), "--k8s needs --image"),
                           (("--slurm",), "expected a command"),
                           (("--slurm", "./p"), 'put "tutti run" before the program'),
                           (("--slurm", *run), "expected a program in the command"),
                           (("--slurm", *run, "--node-rank=1", "./p"), "--node-rank of the command is filled in here"),
                           (("--slurm", *run, "--nnodes=x", "./p"), "--nnodes of the command"),
                           (("--slurm", *run, "--standalone", "--nnodes=2", "./p"), "--standalone and --nnodes=2"),
                           (("--slurm", *run, "--ssh=a,b", "./p"), "--ssh of the command is filled in here"),
                           (("--slurm", *run, "--nnodes=2", "--rdzv-backend=c10d", "./p"), "--rdzv-backend=c10d"),
                           (("--slurm", *run, "--nnodes=1:2", "./p"), "--nnodes of the command: expected a number"),
                           (("--slurm", *run, "--no-such", "./p"), "unknown flag --no-such"),
                           (("--slurm", "--name=Big", *run, "./p"), "--name: expected a lower-case letter"),
                           (("--slurm", "--time=1\n#SBATCH --wrap=x", *run, "./p"), "--time: expected a word"),
                           (("--slurm", "--image=x", *run, "./p"), "--image and --namespace are Kubernetes'"),
                           (("--k8s", "--image=x", "--time=1", *run, "./p"), "are Slurm's"),
                           (("--slurm", "--gpus-per-node=0", *run, "./p"), "--gpus-per-node: expected")):
            self.assertIn(text, submit(*argv, code=2), argv)

    def test_time_to_save(self):
        """Ranks have nearly all of the warning, unless the command says how long."""
        run = (TUTTI, "run")
        self.assertIn("\nexport TORCH_ELASTIC_SHUTDOWN_TIMEOUT=595\n", submit("--slurm", "--warning=600", *run, "p"))
        self.assertNotIn("TIMEOUT", submit("--slurm", "--warning=600", *run, "--grace-period=3", "p"))
        self.assertIn('value: "595"', submit("--k8s", "--image=x", "--warning=600", *run, "p"))

    def test_processors(self):
        self.assertIn("\n#SBATCH --exclusive\n", submit("--slurm", TUTTI, "run", "p"))
        script = submit("--slurm", "--cpus-per-node=4", TUTTI, "launch", "p")
        self.assertNotIn("exclusive", script)
        self.assertIn("\nexport SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK", script)

    def test_nodes_of_a_variable(self):
        env = dict(os.environ, PET_NNODES="3")
        done = subprocess.run([TUTTI, "submit", "--k8s", "--image=x", TUTTI, "run", "p"], capture_output=True,
                              text=True, timeout=DEADLINE, env=env, check=True)
        self.assertIn("completions: 3", done.stdout)
        self.assertIn('- name: PET_NNODES\n              value: "3"', done.stdout)

    def test_names_of_programs(self):
        for program, name in (("./bin/Train_v2.py", "train-v2"), ("7seas", "train"), ("_x_", "x"), ("é", "train"),
                              ("a" * 80, "a" * 52)):
            self.assertIn(f"--job-name={name}\n", submit("--slurm", TUTTI, "run", program))


if __name__ == "__main__":
    unittest.main(verbosity=2)
