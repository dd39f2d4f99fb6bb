"""tutti run and tutti launch: torchrun's flags, beside those for output (test_run_logs.py). What is compared with
torchrun's stands in tests/interop/launch/test_run_flags_torch.py."""
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.environ["TT_SOURCE"], "tests", "support"))
from patience import DEADLINE, free_port  # noqa: E402

TUTTI = os.environ["TUTTI"]
MIG_0, MIG_1 = "MIG-00112233-4455-6677-8899-aabbccddeeff", "MIG-01122334-4556-6778-899a-abbccddeef00"
FAKE_CUDA = os.path.join(os.environ["TT_BUILD"], "tests", "fake_cuda")  # tests/support/fake_cuda


def tutti(*args, code=0, **env):
    env = {name: value for name, value in {**os.environ, **env}.items() if value is not None}
    said = subprocess.run([TUTTI, *args], env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL,
                          timeout=DEADLINE)
    assert said.returncode == code, (args, said)
    return said


def run(*args, **more):
    return tutti("run", *args, **more)


class Flags(unittest.TestCase):
    def test_beginnings(self):
        said = run("--nproc=2", "--stand", "--rdzv_i", "mine", "sh", "-c", "echo $WORLD_SIZE")
        self.assertEqual(said.stdout, "2\n2\n")
        self.assertEqual(run("--rol=a", "--max_r", "0", "printenv", "ROLE_NAME").stdout, "a\n")
        self.assertEqual(run("--t=0", "-t0", "-r=0", "true").stdout, "")  # --tee is torchrun's, --trace is not
        self.assertIn("--log could be --log-dir or --log", run("--log", "x", "true", code=2).stderr)
        self.assertIn("--rdzv- could be --rdzv-backend or --rdzv-", run("--rdzv-", "x", "true", code=2).stderr)

    def test_variables(self):
        with tempfile.TemporaryDirectory() as folder:
            said = run("sh", "-c", "echo $ROLE_NAME $LOCAL_RANK", PET_NPROC_PER_NODE="2", PET_TEE="1",
                       PET_LOG_DIR=folder, PET_LOG_LINE_PREFIX_TEMPLATE="<${rank}>",
                       PET_LOCAL_RANKS_FILTER="1", PET_ROLE="x",
                       PET_VIRTUAL_LOCAL_RANK="1")
        self.assertEqual(said.stdout, "<1>x 0\n")

    def test_wrong_variables_are_named(self):
        for name, value in (("NNODES", "x"), ("NODE_RANK", "1"), ("MAX_RESTARTS", "-1"), ("TEE", "9"), ("WIRE", "x"),
                            ("RDZV_BACKEND", "zeus"), ("RDZV_CONF", "timeout=x"), ("GRACE_PERIOD", "1h")):
            flag, variable = "--" + name.lower().replace("_", "-"), {f"PET_{name}": value}
            self.assertIn(f"(PET_{name} gives {flag})\n", run("true", code=2, **variable).stderr)
            self.assertNotIn("PET_", run(f"{flag}={value}", "true", code=2, **variable).stderr)

    def test_without_ipv4(self):
        """The error spoke of a port, of which none was asked for. With an IPv6 address the job runs."""
        inner = 'ip link set lo up && ip -4 addr del 127.0.0.1/8 dev lo || exit 77; exec "$@"'
        for flags, code in (((), 1), (("--master-addr=::1",), 0)):
            said = subprocess.run(["unshare", "-rn", "sh", "-c", inner, "sh", TUTTI, "run", *flags, "true"], text=True,
                                  capture_output=True, timeout=DEADLINE, check=False)
            if said.returncode in (77, 127) or "unshare" in said.stderr:
                self.skipTest("no network name space can be made here")
            self.assertEqual(said.returncode, code, said.stderr)
            if code:
                self.assertIn("tutti run: --master-addr: can't serve on 127.0.0.1:0: no interface", said.stderr)

    def test_virtual_local_rank(self):
        script = "echo $RANK $LOCAL_RANK $CUDA_VISIBLE_DEVICES $HIP_VISIBLE_DEVICES"
        for cuda, hip, devices in ((None, None, "012"), ("4, 5,7", None, "457"),
                                   ("4,5,7", "a,b,c", ("a a", "b b", "c c")),
                                   ("GPU-1a,GPU-2b, GPU-3c", None, ("GPU-1a", "GPU-2b", "GPU-3c")),
                                   ("MIG-1a-2b,MIG-GPU-1a-2b/1/0,MIG-3", None,
                                    ("MIG-1a-2b", "MIG-GPU-1a-2b/1/0", "MIG-3"))):
            said = run("--nproc-per-node=3", "--virtual-local-rank", "sh", "-c", script, CUDA_VISIBLE_DEVICES=cuda,
                       HIP_VISIBLE_DEVICES=hip)
            self.assertEqual(sorted(said.stdout.splitlines()), [f"{i} 0 {devices[i]}" for i in range(3)])
        said = run("--nproc-per-node=3", "--virtual-local-rank", "true", CUDA_VISIBLE_DEVICES="1,2", code=2)
        self.assertIn("--virtual-local-rank: 3 workers need a device each, but CUDA_VISIBLE_DEVICES=1,2 names 2",
                      said.stderr)

    def test_devices(self):
        """As many workers as the driver lists GPUs and the user allows."""
        inner = ('mount -t tmpfs tmpfs /proc/driver && mkdir -p /proc/driver/nvidia/gpus/1 /proc/driver/nvidia/gpus/2 '
                 '/proc/driver/nvidia/gpus/3 || exit 77; exec "$@"')
        for visible, kind, count in ((None, "gpu", 3), (None, "auto", 3), ("2,0", "gpu", 2),
                                     ("GPU-1a,GPU-2b", "gpu", 2), ("GPU-1a,1", "gpu", 1), ("0,GPU-1a", "gpu", 1),
                                     ("MIG-1,MIG-2,MIG-3,MIG-4", "gpu", 4), ("0,0", "gpu", 0), ("1gpu", "gpu", 1),
                                     ("1,-1,2", "gpu", 1), ("7", "gpu", 0), ("", "gpu", 0)):
            env = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
            said = subprocess.run(["unshare", "-rm", "sh", "-c", inner, "sh", TUTTI, "run", f"--nproc-per-node={kind}",
                                   "printenv", "WORLD_SIZE"], capture_output=True, text=True, timeout=DEADLINE,
                                  env=env if visible is None else {**env, "CUDA_VISIBLE_DEVICES": visible})
            if said.returncode == 77 or "unshare" in said.stderr:
                self.skipTest("no file systems of one's own can be mounted here")
            self.assertEqual(said.stdout, f"{count}\n" * count, (visible, said))
            if not count:
                self.assertIn(f"of 3 GPUs, CUDA_VISIBLE_DEVICES={visible} allows none", said.stderr)

    def test_devices_of_the_driver(self):
        """As many workers as the driver gives devices to programs; the launcher asks it in a child."""
        for changes, kind, count, said in (({}, "gpu", 2, ""), ({}, "auto", 2, ""),
                                           ({"FAKE_CUDA_DEVICES": "5"}, "gpu", 5, ""),
                                           ({"CUDA_VISIBLE_DEVICES": "1"}, "gpu", 1, ""),
                                           ({"CUDA_VISIBLE_DEVICES": "GPU-011,GPU-001"}, "gpu", 2, ""),
                                           ({"CUDA_VISIBLE_DEVICES": MIG_1}, "gpu", 1, ""),
                                           ({"CUDA_VISIBLE_DEVICES": ""}, "gpu", 0,
                                            "there is no NVIDIA GPU here (the driver has none, with CUDA_VISIBLE_"),
                                           ({"FAKE_CUDA_FAIL": "1"}, "gpu", 0,
                                            "NVIDIA's driver does not begin: CUDA error 999")):
            done = run(f"--nproc-per-node={kind}", "printenv", "WORLD_SIZE", code=0 if count else 2,
                       **{"CUDA_VISIBLE_DEVICES": None, "TT_CUDA_PATH": FAKE_CUDA, **changes})
            self.assertEqual(done.stdout, f"{count}\n" * count, changes)
            self.assertIn(said, done.stderr)

    def test_a_driver_that_says_nonsense(self):
        """What the driver says becomes part of a path, and decides how many processes there are."""
        source = """#include <stdio.h>
                    #include <stdlib.h>
                    int cuInit(unsigned flags) { return BROKEN == -7 ? exit(7), 1 : (int)flags; }
                    int cuDeviceGetCount(int *count) { *count = COUNT; return 0; }
                    int cuDeviceGet(int *device, int i) { *device = i; return i == BROKEN ? 101 : 0; }
                    int cuDeviceGetPCIBusId(char *text, int size, int device) {
                        return device < 0 || snprintf(text, size, "%s", BUS_ID) < 0; }"""
        valid = "0000:3B:00.0"
        with tempfile.TemporaryDirectory() as root:
            driver = pathlib.Path(root, "libcuda.so.1")

            def said(bus_id=valid, devices=2, broken=-1, code=2):
                driver.unlink(missing_ok=True)  # one that is mapped elsewhere must not change
                subprocess.run(["cc", "-shared", "-fPIC", "-xc", f'-DBUS_ID="{bus_id}"', f"-DCOUNT={devices}",
                                f"-DBROKEN={broken}", "-o", driver, "-"], input=source, text=True, check=True)
                return run("--nproc-per-node=gpu", "true", code=code, TT_CUDA_PATH=root, CUDA_VISIBLE_DEVICES=None)

            said(code=0)
            for bad, shown in (("../../../../tmp", "../../../../tmp"), ("..", ".."), (r"3b:00\033[31m", "3b:00?[31m"),
                               ("", ""), (valid + r"\nx", "x"), ("0" * 300, "0" * 30)):
                self.assertIn(f'is at the PCI address "{shown}"; expected one as 0000:3b:00.0', said(bad).stderr)
            self.assertIn("NVIDIA's driver does not begin: CUDA error 101", said(broken=1).stderr)
            self.assertIn("the driver has none", said(devices=-5).stderr)
            self.assertIn("NVIDIA's driver ended the process with exit code 7", said(broken=-7).stderr)
            begin = time.monotonic()
            said(devices=2000000000, broken=5)
            self.assertIn("PCI address", said("x", devices=2000000000).stderr)
            self.assertLess(time.monotonic() - begin, 60, "it asked for each of two thousand million devices")

    def test_a_device_for_each_worker(self):
        """Entries that are no numbers reach the workers as they are; the driver there finds each one's device."""
        script = 'echo $RANK $("$TUTTI" doctor | grep -o "cuda:0: Fake GPU .")'
        for visible, devices in ((None, "01"), ("1,0", "10"), ("GPU-011, GPU-001", "10"), (f"{MIG_1},{MIG_0}", "10")):
            said = run("--nproc-per-node=2", "--virtual-local-rank", "sh", "-c", script, CUDA_VISIBLE_DEVICES=visible,
                       TT_CUDA_PATH=FAKE_CUDA, TT_BACKEND_PATH=FAKE_CUDA)
            self.assertEqual(sorted(said.stdout.splitlines()),
                             [f"{i} cuda:0: Fake GPU {devices[i]}" for i in range(2)], visible)

    def test_numa_by_gpus(self):
        """Worker i is near GPU i: here the first GPU is at the second NUMA node. The system's files are replaced."""
        cpus = sorted(os.sched_getaffinity(0))
        if len(cpus) < 2:
            self.skipTest("two CPUs are needed")
        halves = cpus[:len(cpus) // 2], cpus[len(cpus) // 2:]
        ask = [sys.executable, "-c", "import os; mine = ','.join(map(str, sorted(os.sched_getaffinity(0))));"
                                     "os.write(1, (os.environ['RANK'] + ' ' + mine + '\\n').encode())"]
        with tempfile.TemporaryDirectory() as root:
            for gpu, node in (("0000:10:00.0", 1), ("0000:20:00.0", 0), ("0000:30:00.0", -1)):
                os.makedirs(f"{root}/pci/{gpu}")
                pathlib.Path(f"{root}/pci/{gpu}/numa_node").write_text(f"{node}\n")
            for node in 0, 1:
                os.makedirs(f"{root}/node/node{node}")
                pathlib.Path(f"{root}/node/node{node}/cpulist").write_text(",".join(map(str, halves[node])) + "\n")
            inner = (f"mount --bind {root}/pci /sys/bus/pci/devices && mount --bind {root}/node "
                     '/sys/devices/system/node || exit 77; exec "$@"')
            env = {**os.environ, "TT_CUDA_PATH": FAKE_CUDA, "FAKE_CUDA_DEVICES": "3",
                   "HWLOC_SYNTHETIC": f"numa:2 core:{cpus[-1] // 2 + 1} pu:1"}
            env.pop("CUDA_VISIBLE_DEVICES", None)

            def bound(how, workers, **changes):
                done = subprocess.run(["unshare", "-rm", "sh", "-c", inner, "sh", TUTTI, "run",
                                       f"--nproc-per-node={workers}", f"--numa-binding={how}", *ask],
                                      capture_output=True, text=True, timeout=DEADLINE, env={**env, **changes})
                if done.returncode == 77 or "unshare" in done.stderr:
                    self.skipTest("no file systems of one's own can be mounted here")
                return dict((int(rank), sorted(map(int, mine.split(","))))
                            for rank, mine in map(str.split, done.stdout.splitlines())), done.stderr

            self.assertEqual(bound("node", 3)[0], {0: halves[1], 1: halves[0], 2: halves[0]})
            self.assertEqual(bound("node", 1, CUDA_VISIBLE_DEVICES="1")[0], {0: halves[0]})
            ranks = bound("exclusive", 3)[0]
            self.assertEqual(ranks[0], halves[1])
            self.assertLessEqual(set(ranks[1] + ranks[2]), set(halves[0]))
            if len(halves[0]) > 1:
                self.assertFalse(set(ranks[1]) & set(ranks[2]))
            shutil.rmtree(f"{root}/pci/0000:20:00.0")
            self.assertIn("--numa-binding node: the NUMA node of GPU 0000:20:00.0 is not known: ", bound("node", 2)[1])

    def test_logs_specs(self):
        """torchrun's own are named `default`; others are plug-ins (tests/dist/command/test_usage.py)."""
        self.assertEqual(run("--logs_specs=default", "echo", "started").stdout, "started\n")

    def test_endpoint(self):
        port = free_port()
        said = run("--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{port}", "printenv", "MASTER_PORT")
        self.assertEqual(said.stdout, f"{port}\n")
        said = run("--standalone", f"--rdzv-endpoint=localhost:{port}", "printenv", "MASTER_PORT")
        self.assertNotEqual(said.stdout, f"{port}\n")
        self.assertEqual(run("--local-addr=::1", "printenv", "MASTER_ADDR").stdout, "::1\n")
        for wait in (["--rdzv-conf=timeout=1"], ["--rdzv-conf='join_timeout=1'"],
                     ["--join-timeout=1", "--rdzv-conf=timeout=9"]):
            said = tutti("run", "--nnodes=2", "--master-addr=nowhere.invalid", *wait, "true", code=2)
            self.assertIn('waiting, at most 1 s, until "nowhere.invalid" can be resolved', said.stderr)
        self.assertIn("--master-addr: can't resolve", said.stderr)
        self.assertIn("--local-addr: can't resolve", run("--local-addr=nowhere.invalid", "true", code=2).stderr)

    def test_signals(self):
        script = """trap 'echo got it; exit 0' USR1; kill -USR1 "$(ps -o ppid= -p $PPID | tr -d ' ')"
                    while :; do sleep 0.05; done"""
        said = run("--signals-to-handle=SIGTERM,SIGUSR1", "sh", "-c", script, code=128 + 10)
        self.assertEqual(said.stdout, "got it\n")
        said = run("printenv", "TORCHELASTIC_SIGNALS_TO_HANDLE", TORCHELASTIC_SIGNALS_TO_HANDLE="SIGTERM, SIGUSR2")
        self.assertEqual(said.stdout, "SIGTERM, SIGUSR2\n")
        run("--signals_to_handle", "SIGHUP", "sh", "-c", 'kill -TERM "$(ps -o ppid= -p $PPID)"; sleep 60', code=-15)

    def test_shutdown_timeout(self):
        script = """if [ $RANK = 1 ]; then while [ ! -e "$1" ]; do sleep 0.01; done; exit 3; fi
                    trap '' TERM; : >"$1"; while :; do sleep 0.05; done"""
        for flags, env in (("--shutdown-timeout=0", {}),
                           ("--settle-period=0", {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "0"})):
            with tempfile.TemporaryDirectory() as folder:
                said = run("--nproc-per-node=2", flags, "--settle-period=0", "sh", "-c", script, "sh",
                           f"{folder}/ready", code=3, **env)
            self.assertRegex(said.stderr, "rank 0: killed by SIGKILL")

    def test_run_path(self):
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(folder, "script")
            with open(script, "w", encoding="utf-8") as file:
                file.write("import sys\nprint(__name__, sys.argv)\n"
                           "if len(sys.argv) > 2:\n    raise ValueError('enough')\n")
            self.assertEqual(run("--run-path", "--no-python", script, "a").stdout, f"__main__ ['{script}', 'a']\n")
            said = run("--run-path", f"--log-dir={folder}/logs", "--redirects=2", script, "a", "b", code=1)
            (made,) = os.listdir(f"{folder}/logs")
            with open(f"{folder}/logs/{made}/attempt_0/0/error.json", encoding="utf-8") as file:
                error = json.load(file)["message"]
            self.assertEqual(error["message"], "ValueError: enough")
            self.assertIn("Traceback", error["extraInfo"]["py_callstack"])
            self.assertIn("  its message:\n    ValueError: enough\n", said.stderr)
            self.assertIn("there is no such file", run("--run-path", script + "x", code=127).stderr)

    def test_python_exec(self):
        """It starts a script with a run bit, too."""
        with tempfile.TemporaryDirectory() as folder:
            script, python = os.path.join(folder, "script.py"), os.path.join(folder, "python")
            for path, text in ((script, "#!/bin/sh\necho own\n"), (python, "#!/bin/sh\necho python $*\n")):
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                os.chmod(path, 0o755)
            self.assertEqual(run(script, PYTHON_EXEC=None).stdout, "own\n")
            self.assertEqual(run(script, "x", PYTHON_EXEC=python).stdout, f"python -u {script} x\n")
            self.assertEqual(run("--no-python", script, PYTHON_EXEC=python).stdout, "own\n")

    def test_dry_run(self):
        """What it prints is what a worker gets."""
        with tempfile.TemporaryDirectory() as folder:
            flags = ("--nproc-per-node=2", "--master-port=29111", "--role=it's", f"--log-dir={folder}/logs", "--tee=3")
            said = run("--dry-run", *flags, "sh", "-c", 'echo "$1 $RANK $ROLE_NAME $MASTER_PORT $WORLD_SIZE"', "sh",
                       "a 'b'").stdout
            self.assertEqual(os.listdir(folder), [])
        self.assertEqual(re.findall("(?m)^# .*", said), ["# rank 0, local rank 0", "# rank 1, local rank 1"])
        shown = subprocess.run(["sh"], input=said, capture_output=True, text=True, timeout=DEADLINE).stdout
        self.assertEqual(shown, "a 'b' 0 it's 29111 2\na 'b' 1 it's 29111 2\n")

    def test_dry_run_that_fails(self):
        """No other node hears of it."""
        said = run("--dry-run", "--nnodes=2", "--master-addr=198.51.100.1", "/nowhere/to.be", code=127)
        self.assertEqual(said.stderr, "tutti run: /nowhere/to.be: there is no such file\n")

    def test_dry_run_without_a_port(self):
        """It is drawn at the start: what is printed says so, and takes one from the shell."""
        said = run("--dry-run", "--nproc-per-node=2", "sh", "-c", "echo $RANK $MASTER_PORT").stdout
        env = {name: value for name, value in os.environ.items() if name != "MASTER_PORT"}
        shown = subprocess.run(["sh"], input=said, capture_output=True, text=True, timeout=DEADLINE, env=env)
        self.assertEqual(shown.stdout, "")
        self.assertIn("MASTER_PORT: is drawn when the job starts: set it to a free port", shown.stderr)
        shown = subprocess.run(["sh"], input=said, capture_output=True, text=True, timeout=DEADLINE,
                               env=dict(env, MASTER_PORT="29111"))
        self.assertEqual(shown.stdout, "0 29111\n1 29111\n")

    def test_bind(self):
        """Cores are divided, and nothing goes beyond the affinity that the launcher has."""
        cpus = sorted(os.sched_getaffinity(0))
        ask = [sys.executable, "-c", "import os; mine = map(str, sorted(os.sched_getaffinity(0)));"
                                     "os.write(1, (' '.join(mine) + '\\n').encode())"]
        if subprocess.run([TUTTI, "run", "--bind=core", "true"], capture_output=True, timeout=DEADLINE).returncode == 2:
            self.skipTest("hwloc is not here")
        for how in ("--bind=core", "--numa-binding=exclusive", "--bind=numa", "--numa_binding", "--bind=none"):
            flags = (how, "node") if how == "--numa_binding" else (how,)
            said = run("--nproc-per-node=2", *flags, *ask)
            sets = [set(map(int, line.split())) for line in said.stdout.splitlines()]
            self.assertEqual(len(sets), 2)
            self.assertEqual(set.union(*sets) if "none" in how else set(), set(cpus) if "none" in how else set())
            for own in sets:
                self.assertLessEqual(own, set(cpus))
            lines = re.findall("local rank . on CPU", said.stderr)
            self.assertEqual(len(lines), 0 if how == "--bind=none" else 2)
            if how in ("--bind=core", "--numa-binding=exclusive") and len(cpus) > 1:
                self.assertEqual(set.union(*sets), set(cpus))
        said = subprocess.run(["taskset", "-c", str(cpus[-1]), TUTTI, "run", "--bind=core", "--nproc-per-node=2", *ask],
                              capture_output=True, text=True, timeout=DEADLINE)
        self.assertEqual(said.stdout, f"{cpus[-1]}\n" * 2, said.stderr)

    def test_events(self):
        said = run("--nproc-per-node=2", "--event-log-handler=console", "sh", "-c", "exit $((RANK * 3))", code=3)
        events = [json.loads(line) for line in said.stderr.splitlines() if line.startswith("{")]
        self.assertEqual([(e["source"], e["metadata"]["global_rank"], e["metadata"]["state"]) for e in events],
                         [("WORKER", 0, "SUCCEEDED"), ("WORKER", 1, "FAILED"), ("AGENT", None, "FAILED")])
        more = [json.loads(e["metadata"]["metadata"]) for e in events]
        self.assertEqual(([m["exit_code"] for m in more[:2]], more[0]["worker_pid"]), ([[None], [3]], [None]))
        self.assertEqual(more[1]["worker_pid"], [int(events[1]["metadata"]["worker_id"])])
        self.assertEqual([e["metadata"]["raw_error"] for e in events], [None, '{"message": "<NONE>"}', None])
        said = run("--event-log-handler=console", b"--rdzv-id=a\xff", "--role=\u00e9", "true")
        events = [json.loads(line)["metadata"] for line in said.stderr.splitlines() if line.startswith("{")]
        self.assertEqual([(e["run_id"], e["role"]) for e in events], [("a?", "\u00e9")] * 2)
        self.assertNotIn("{", run("--event-log-handler=null", "true").stderr)
        # A worker's message does nothing to a terminal.
        message = r"""printf '{"message": "\302\2332J caf\303\251"}' >$TORCHELASTIC_ERROR_FILE; exit 1"""
        said = run("--event-log-handler=console", "sh", "-c", message, code=1).stderr
        self.assertNotIn("\x9b", said)
        events = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        error = json.loads(events[0]["metadata"]["raw_error"])["message"]
        self.assertEqual((error["message"], error["errorCode"]), ("\x9b2J caf\xe9", 1))

    def test_own_error_file(self):
        """Whoever starts tutti run reads the first failure where it reads torchrun's: another launcher, for one."""
        fail = """[ $RANK = 1 ] || exec sleep 600
            echo '{"message": {"message": "E: x", "extraInfo": {"py_callstack": "a stack", "timestamp": "17"}}}' \\
                >$TORCHELASTIC_ERROR_FILE
            exit 4"""
        failing = ["--nproc-per-node=2", "--settle-period=0", "sh", "-c", fail]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "error.json")
            run(*failing, code=4, TORCHELASTIC_ERROR_FILE=path)
            with open(path) as file:
                error = json.load(file)["message"]
            self.assertEqual((error["message"], error["errorCode"]), ("E: x", 4))
            self.assertEqual((error["extraInfo"]["py_callstack"], error["extraInfo"]["timestamp"]), ("a stack", "17"))
            os.remove(path)
            run("--nproc-per-node=2", "sh", "-c", "kill -9 $$", code=137, TORCHELASTIC_ERROR_FILE=path)
            run("true", TORCHELASTIC_ERROR_FILE=path)
            self.assertFalse(os.path.exists(path))
            run("/no/such/program", code=127, TORCHELASTIC_ERROR_FILE=path)
            with open(path) as file:
                self.assertIn("/no/such/program", json.load(file)["message"]["message"])
            said = run(*failing, code=4, TORCHELASTIC_ERROR_FILE=f"{folder}/none/error.json")
            self.assertIn("can't write " + folder, said.stderr)
        self.assertIn("its message:\n    E: x", run(TUTTI, "run", *failing, code=4).stderr.split("rank 0 failed")[1])

    def test_print_completion(self):
        self.assertEqual(run("--print-completion", "bash").stdout, tutti("completion", "bash").stdout)
        self.assertIn("expected bash, zsh or fish", run("--print-completion=tcsh", code=2).stderr)


class Launch(unittest.TestCase):
    def test_argument(self):
        with tempfile.TemporaryDirectory() as folder:
            script = os.path.join(folder, "script.py")
            with open(script, "w", encoding="utf-8") as file:
                file.write("import os, sys\n"  # one write a line: two ranks share the output
                           "sys.stdout.write(' '.join([os.environ['LOCAL_RANK'], *sys.argv[1:]]) + '\\n')\n")
            said = tutti("launch", "--nproc_per_node=2", "--node_rank=0", script, "--epochs", "5")
            self.assertEqual(sorted(said.stdout.splitlines()),
                             ["0 --local-rank=0 --epochs 5", "1 --local-rank=1 --epochs 5"])
            self.assertEqual(tutti("launch", "--local-rank-name=local_rank", script).stdout, "0 --local_rank=0\n")
            self.assertEqual(tutti("launch", "--use_env", script, "x").stdout, "0 x\n")
            said = tutti("launch", "-m", "script", "x", PYTHONPATH=folder)
            self.assertEqual(said.stdout, "0 --local-rank=0 x\n")
            said = shlex.split(tutti("launch", "--dry-run", script, "x").stdout.splitlines()[-1])
            self.assertEqual(said[-3:], [script, "--local-rank=0", "x"])

    def test_wrong(self):
        said = tutti("launch", "--no_python", "true", code=2)
        self.assertIn("tutti launch: --no-python needs --use-env", said.stderr)
        self.assertEqual(tutti("launch", "--no_python", "--use_env", "echo", "x").stdout, "x\n")
        self.assertIn("tutti launch: unknown flag --frobnicate", tutti("launch", "--frobnicate", "true", code=2).stderr)
        self.assertIn("usage: tutti launch [FLAGS]", tutti("launch", "--help").stdout)


if __name__ == "__main__":
    unittest.main()
