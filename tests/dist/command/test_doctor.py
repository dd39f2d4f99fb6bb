#!/usr/bin/env python3
"""`tutti doctor` in places that are made wrong on purpose: each thing is named, and how to mend it."""
import json
import os
import pathlib
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(os.environ["TT_SOURCE"]) / "tests" / "support"))
from patience import DEADLINE, free_port  # noqa: E402

TUTTI = os.environ["TUTTI"]
VECTORS = pathlib.Path(os.environ["TT_SOURCE"]) / "tests" / "vectors" / "launchers"
LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC_", "TT_", "PET_", "SLURM", "OMPI_", "PMI", "MPI_",
             "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "VIRTUAL_ENV")
RESETS = pathlib.Path(os.environ["TT_BUILD"]) / "tests" / "support" / "libresets.so"
USER = 61236  # whom no machine has
BY_HAND = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}


def clean(changes):
    env = {name: value for name, value in os.environ.items() if not name.startswith(LAUNCHERS)}
    return dict(env, **changes)


def recorded(name):
    lines = (VECTORS / f"{name}.env").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


class Doctor(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="tutti-doctor-"))
        self.addCleanup(shutil.rmtree, self.root)

    def look(self, *flags, before=(), preexec=None, command=TUTTI, cwd=None, **changes):
        """What it says as JSON, after its exit code was compared with that."""
        done = subprocess.run([*before, command, "doctor", "--json", *flags], env=clean(changes), capture_output=True,
                              text=True, timeout=DEADLINE, preexec_fn=preexec, cwd=cwd)
        said = json.loads(done.stdout.splitlines()[0])
        wrong = [c for c in said["checks"] if c["verdict"] == "WRONG"]
        self.assertEqual(said["wrong"], len(wrong))
        if not before:
            self.assertEqual(done.returncode, 1 if wrong else 0, done.stdout + done.stderr)
        for check in said["checks"]:
            self.assertTrue(check["found"])
            if check["verdict"] != "ok":
                self.assertTrue(check["fix"], check)
        return said

    def expect(self, said, check, verdict, text):
        """One of a check's findings has this verdict and this text."""
        found = [c for c in said["checks"] if c["check"] == check]
        self.assertTrue(any(c["verdict"] == verdict and text in c["found"] for c in found),
                        f"expected {verdict} and {text!r} among {found}")

    def put(self, path, text=""):
        full = self.root / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_text(text)

    # ---- launchers and places

    def test_nothing_is_set(self):
        said = self.look()
        self.assertIsNone(said["launcher"])
        self.expect(said, "launcher", "ok", "none is recognised")

    def test_text_and_json_agree(self):
        env = clean(dict(BY_HAND, MASTER_PORT="70000"))
        text = subprocess.run([TUTTI, "doctor"], env=env, capture_output=True, text=True, timeout=DEADLINE).stdout
        said = self.look(**BY_HAND, MASTER_PORT="70000")
        lines = [line for line in text.splitlines() if not line.startswith("      ->")]
        self.assertEqual([line[:5].strip() for line in lines[:-1]], [c["verdict"] for c in said["checks"]])
        self.assertEqual(lines[-1], f"{said['wrong']} wrong, {said['warnings']} to think about.")

    def test_each_recorded_launcher(self):
        for name, launcher, rank, world in (("openmpi", "mpirun (Open MPI)", 1, 2),
                                            ("mpich", "mpirun (MPICH or Intel MPI)", 1, 2), ("srun", "srun", 2, 3),
                                            ("kubeflow-worker", "the environment", 2, 3)):
            said = self.look(**dict(recorded(name), MASTER_ADDR="127.0.0.1", MASTER_PORT="1"))
            self.assertEqual([said["launcher"][key] for key in ("name", "rank", "world")], [launcher, rank, world])

    def test_what_only_looks_like_a_launcher(self):
        said = self.look(**recorded("sbatch"))
        self.expect(said, "launcher", "WRONG", "saw SLURM_PROCID=0 and SLURM_NTASKS=3, but no SLURM_STEP_ID")
        self.assertEqual(said["checks"][0]["fix"], "start the program with `srun PROGRAM`")
        said = self.look(**recorded("kubeflow-trainer-v2"))
        self.expect(said, "launcher", "WRONG", "saw PET_NNODES=2")
        self.assertIn("`tutti run PROGRAM`", said["checks"][0]["fix"])
        self.expect(self.look(RANK="x", WORLD_SIZE="2"), "launcher", "WRONG", 'RANK: expected a number')

    def test_half_of_what_a_launcher_sets(self):
        """Joining is an error then, so it is wrong, whatever else is recognised."""
        self.expect(self.look(RANK="0"), "launcher", "WRONG", "RANK is set, but WORLD_SIZE is not")
        self.expect(self.look(WORLD_SIZE="2"), "launcher", "WRONG", "WORLD_SIZE is set, but RANK is not")
        self.expect(self.look(RANK="0", SLURM_JOB_ID="7"), "launcher", "WRONG", "RANK is set, but WORLD_SIZE is not")

    def test_the_meeting_place(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = str(taken.getsockname()[1])
            self.expect(self.look(**BY_HAND, MASTER_PORT=port), "meeting place", "WRONG", "in use")
            self.expect(self.look(**dict(BY_HAND, RANK="1"), MASTER_PORT=port), "meeting place", "ok", "answers")
        free = str(free_port())
        self.expect(self.look(**BY_HAND, MASTER_PORT=free), "meeting place", "ok", "is free, and rank 0 can serve it")
        self.expect(self.look(**dict(BY_HAND, RANK="1"), MASTER_PORT=free), "meeting place", "ok",
                    "not serve there yet")
        # Rank 0's own doctor served it for a moment, which resets who connected then.
        self.expect(self.look(**dict(BY_HAND, RANK="1"), MASTER_PORT=free, LD_PRELOAD=str(RESETS),
                              ASAN_OPTIONS=os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0"),
                    "meeting place", "ok", "not serve there yet")
        self.expect(self.look(**BY_HAND, MASTER_PORT=free, TORCHELASTIC_USE_AGENT_STORE="True"), "meeting place",
                    "WRONG", "nobody serves there")
        self.expect(self.look(**BY_HAND), "meeting place", "WRONG", "MASTER_PORT: expected a number")
        for rank in "01":
            self.expect(self.look(**dict(BY_HAND, RANK=rank, MASTER_ADDR="host.invalid"), MASTER_PORT=free),
                        "meeting place", "WRONG", "host.invalid")
        # What is loopback here can't be a host of another node.
        said = self.look(**dict(recorded("srun"), MASTER_ADDR="localhost"))
        self.expect(said, "meeting place", "WRONG", "localhost is this host itself")
        self.expect(said, "job secret", "WRONG", "none, but there are several hosts")

    def test_under_real_launchers(self):
        commands = {"tutti run": [TUTTI, "run", "--standalone", "--nproc-per-node=1"]}
        for mpi, name, flags in (("openmpi", "mpirun (Open MPI)", ["--allow-run-as-root"]),
                                 ("mpich", "mpirun (MPICH or Intel MPI)", [])):
            if shutil.which(f"mpirun.{mpi}"):
                commands[name] = [f"mpirun.{mpi}", *flags, "-n", "1"]
        for name, command in commands.items():
            said = self.look(before=command)
            self.assertEqual(said["launcher"], {"name": name, "rank": 0, "world": 1, "local_rank": 0, "local_world": 1})

    def test_an_endpoint(self):
        secret = {"TT_SECRET": "0123456789abcdef0123456789abcdef"}
        store = subprocess.Popen([TUTTI, "store", "--port=0"], env=clean(secret), stdout=subprocess.PIPE, text=True)
        self.addCleanup(store.stdout.close)
        self.addCleanup(store.wait)
        self.addCleanup(store.terminate)
        endpoint = "--rdzv-endpoint=" + store.stdout.readline().split()[-1]
        self.expect(self.look(endpoint, **secret), "endpoint", "ok", "a store serves this process there")
        self.expect(self.look(endpoint, TT_SECRET="another secret of the job"), "endpoint", "WRONG", "secret")
        self.expect(self.look(f"--rdzv-endpoint=127.0.0.1:{free_port()}"), "endpoint", "WRONG", "nobody serves there")
        for text in ("localhost", "localhost:", ":1", "localhost:x", "localhost:70000"):
            self.expect(self.look(f"--rdzv-endpoint={text}"), "endpoint", "WRONG", "expected HOST:PORT")

    # ---- this machine

    def test_settings(self):
        self.expect(self.look(TT_SOCKET_IFNAME="=nosuch0"), "interfaces", "WRONG", "TT_SOCKET_IFNAME==nosuch0")
        self.expect(self.look(TT_SOCKET_IFNAME="=lo"), "interfaces", "ok", "")
        self.expect(self.look(TT_SECRET="short"), "job secret", "WRONG", "TT_SECRET: expected a job secret")

    def test_limits(self):
        def lower(limit, value):
            return lambda: resource.setrlimit(limit, (value, value))

        said = self.look(preexec=lower(resource.RLIMIT_NOFILE, 50))
        self.expect(said, "open files", "WRONG", "50 may be open")
        said = self.look(preexec=lower(resource.RLIMIT_NOFILE, 300))
        self.expect(said, "open files", "warn", "300 may be open")
        said = self.look(preexec=lower(resource.RLIMIT_FSIZE, 1 << 20))
        self.expect(said, "file size", "warn", "limited to 1048576 bytes")
        said = self.look(preexec=lower(resource.RLIMIT_MEMLOCK, 0))
        self.expect(said, "locked memory", "warn", "0 bytes")

    def test_ranks_of_a_host(self):
        said = self.look(preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100)))
        self.expect(said, "ranks of a host", "ok" if os.cpu_count() <= 9 else "warn",
                    "this user may run 9 here; the limit is open files")
        env = dict(BY_HAND, LOCAL_WORLD_SIZE="10", WORLD_SIZE="10", MASTER_PORT=str(free_port()))
        said = self.look(preexec=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100)), **env)
        self.expect(said, "ranks of a host", "WRONG", "this user may run 9 here")
        self.put("proc/self/cgroup", "0::/job\n")
        self.put("sys/fs/cgroup/job/pids.max", "50\n")
        self.put("sys/fs/cgroup/job/pids.current", "20\n")
        said = self.look(f"--root={self.root}", **env)
        self.expect(said, "ranks of a host", "ok", "this user may run 10 here; the limit is processes of the cgroup")

    @unittest.skipIf(os.geteuid() != 0, "only root can be a user who has no other process")
    def test_ranks_of_an_ordinary_user(self):
        def be_user(limit, most):
            def become():
                resource.setrlimit(limit, (most, most))
                os.setgroups([])
                os.setresgid(USER, USER, USER)
                os.setresuid(USER, USER, USER)
            return become

        copy = self.root / "tutti"
        self.root.chmod(0o755)
        shutil.copy2(TUTTI, copy)
        looks = dict(command=copy, cwd="/")
        said = self.look(preexec=be_user(resource.RLIMIT_NPROC, 30), **looks)
        self.expect(said, "ranks of a host", "ok" if os.cpu_count() <= 9 else "warn",
                    "this user may run 9 here; the limit is processes")
        receiver, sender = socket.socketpair()
        with receiver, sender:
            if not (pid := os.fork()):
                be_user(resource.RLIMIT_NOFILE, 1024)()
                for _ in range(40):
                    socket.send_fds(sender, [b"."], [0] * 8)
                os._exit(0)
            self.assertEqual(os.waitpid(pid, 0)[1], 0)
            said = self.look(preexec=be_user(resource.RLIMIT_NOFILE, 256), **looks)
        self.expect(said, "shared memory", "WRONG", "more than 256 descriptors on their way")
        self.assertNotIn("WRONG", [c["verdict"] for c in self.look(
            preexec=be_user(resource.RLIMIT_NOFILE, 1024), **looks)["checks"] if c["check"] == "shared memory"])

    def test_memory(self):
        self.put("proc/meminfo", "MemTotal:       8388608 kB\nMemFree: 1 kB\nMemAvailable:   4194304 kB\n")
        root = f"--root={self.root}"
        self.expect(self.look(root), "memory", "ok", "4096 of 8192 MiB are free; no cgroup limits it")
        self.put("proc/self/cgroup", "0::/job\n")
        self.put("sys/fs/cgroup/job/memory.max", f"{1 << 30}\n")
        self.put("sys/fs/cgroup/job/memory.current", f"{768 << 20}\n")
        self.expect(self.look(root), "memory", "warn", "the cgroup's limit is 1024 MiB, of which 256 are left")
        self.put("sys/fs/cgroup/job/memory.current", f"{1000 << 20}\n")
        self.put("sys/fs/cgroup/job/memory.events", "oom 3\noom_kill 2\n")
        said = self.look(root)
        self.expect(said, "memory", "WRONG", "of which 24 are left")
        self.expect(said, "memory", "warn", "has killed 2 processes")

    # ---- GPUs

    def put_gpus(self, n, given):
        for i in range(n):
            self.put(f"proc/driver/nvidia/gpus/0000:{i + 1:02x}:00.0/information",
                     f"Model: \t\t NVIDIA Test {i}\nIRQ:   \t\t 24\nGPU UUID: \t GPU-{i}{i}{i}0-aaaa\n"
                     f"Bus Type: \t PCIe\nDevice Minor: \t {i}\n")
            if i in given:
                self.put(f"dev/nvidia{i}")

    def gpus(self, **changes):
        said = self.look(f"--root={self.root}", **changes)
        return [c["found"] for c in said["checks"] if c["check"] == "GPU"]

    def test_gpus(self):
        self.assertIn("none", self.gpus()[0])
        self.put_gpus(3, {0, 1, 2})
        self.assertEqual(self.gpus(), [f"device {i}: NVIDIA Test {i} (GPU-{i}{i}{i}0-aaaa)" for i in range(3)])
        self.assertEqual(self.gpus(CUDA_VISIBLE_DEVICES="2,0"), ["device 0: NVIDIA Test 2 (GPU-2220-aaaa)",
                                                                 "device 1: NVIDIA Test 0 (GPU-0000-aaaa)"])
        self.assertEqual(self.gpus(CUDA_VISIBLE_DEVICES="GPU-111"), ["device 0: NVIDIA Test 1 (GPU-1110-aaaa)"])
        for hidden in ("", "-1"):
            self.assertEqual(self.gpus(CUDA_VISIBLE_DEVICES=hidden), [f"CUDA_VISIBLE_DEVICES={hidden} hides all 3"])
        found = self.gpus(CUDA_VISIBLE_DEVICES="1,3,0")
        self.assertEqual(len(found), 2)
        self.assertIn('"3" means none of the 3 GPUs here', found[1])
        for visible, bad in (("GPU-2,GPU-", "GPU-"), ("GPU-2,GPU-0,GPU-7", "GPU-7"), ("GPU-2,0", "0"),
                             ("2,GPU-0", "GPU-0"), ("MIG-1,GPU-0", "GPU-0"), ("1,", "")):
            found = self.gpus(CUDA_VISIBLE_DEVICES=visible)
            self.assertEqual(len(found), visible.count(",") + 1, visible)
            self.assertIn(f'"{bad}" means none of the 3 GPUs here', found[-1])
        for visible in ("2,0,2", "GPU-2,GPU-22", "MIG-1,MIG-1"):
            self.assertEqual(self.gpus(CUDA_VISIBLE_DEVICES=visible),
                             [f"CUDA_VISIBLE_DEVICES={visible} names a device twice: CUDA sees none"])
        self.assertEqual(self.gpus(CUDA_VISIBLE_DEVICES="MIG-GPU-1/7/0,MIG-2"),
                         ["device 0: MIG-GPU-1/7/0, a part of a GPU", "device 1: MIG-2, a part of a GPU"])

    def test_cuda(self):
        """The driver (a fake one), the device, libraries: what is there and what is missing; all in a child."""
        fake = str(pathlib.Path(os.environ["TT_BUILD"]) / "tests" / "fake_cuda")
        places = {"TT_CUDA_PATH": fake, "CUDA_HOME": "/nowhere"}
        said = self.look(**places, TT_BACKEND_PATH=fake)
        self.expect(said, "CUDA", "ok", f"driver: for CUDA 13.0, {fake}/libcuda.so.1")
        self.expect(said, "CUDA", "ok", f"libtutti-cuda.so: {fake}/libtutti-cuda.so")
        self.expect(said, "CUDA", "ok", f"cuDNN: 9.19.0, {fake}/libcudnn.so.9")
        self.expect(said, "CUDA", "ok", "cuda:0: Fake GPU 0, 64 MiB, compute capability 9.0")
        said = self.look(**places, TT_BACKEND_PATH=fake, FAKE_CUDA_DRIVER="11080")
        self.expect(said, "CUDA", "WRONG", "cuda:0 can't be used: tt_device_get: the NVIDIA driver is too old")
        said = self.look(**places, TT_BACKEND_PATH=fake, FAKE_CUDA_DEVICES="0")
        self.expect(said, "CUDA", "WRONG", "there is no device cuda:0")
        said = self.look(**places, TT_BACKEND_PATH=fake, CUDA_VISIBLE_DEVICES="7")
        self.expect(said, "CUDA", "WRONG", "there is no device cuda:0: CUDA has 0 (CUDA_VISIBLE_DEVICES=7)")
        for hidden in ("", "-1"):  # as somebody wants it
            said = self.look(**places, TT_BACKEND_PATH=fake, CUDA_VISIBLE_DEVICES=hidden)
            self.assertFalse([c for c in said["checks"] if c["check"] == "CUDA" and c["verdict"] != "ok"], said)

    def test_cuda_libraries(self):
        """A library's version; one that crashes takes only the child with it; what is missing matters if there is a
        GPU alone."""
        source = self.root / "blas.c"
        folder = self.root / "libraries"
        folder.mkdir()

        def make(body):
            source.write_text(f"#include <stdlib.h>\nsize_t cublasLtGetVersion(void) {{ {body} }}\n")
            subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "libcublasLt.so.13", source], check=True)

        make("return 130402;")
        places = {"TT_CUDA_PATH": str(folder), "CUDA_HOME": "/nowhere"}
        self.expect(self.look(**places), "CUDA", "ok", f"cuBLASLt: 13.4.2, {folder}/libcublasLt.so.13")
        make("abort();")
        self.expect(self.look(**places), "CUDA", "WRONG", "what CUDA needs crashed: Aborted")
        make("return 130402;")
        sly = self.root / "a\nNCCL\tok\tgood\nNCCL\tbroken\tbad"
        sly.mkdir()
        shutil.copy(folder / "libcublasLt.so.13", sly)
        found = [c["found"] for c in self.look(TT_CUDA_PATH=str(sly), CUDA_HOME="/nowhere")["checks"]
                 if c["check"] == "CUDA"]
        shown = "a NCCL ok good NCCL broken bad/libcublasLt"
        self.assertEqual(len([text for text in found if shown in text]), 1, found)
        self.assertFalse([text for text in found if text.startswith("NCCL: good") or "can't be used" in text], found)
        (folder / "libcublasLt.so.13").unlink()
        alone = self.look(**places)
        self.assertFalse([c for c in alone["checks"] if c["check"] == "CUDA" and c["verdict"] != "ok"])
        self.put_gpus(1, {0})
        missing = self.look("--root", str(self.root), **places)
        self.expect(missing, "CUDA", "warn", "NVIDIA's driver was not found: expected libcuda.so.1")

    def test_gpus_that_a_container_is_not_given(self):
        self.put_gpus(4, {2})
        self.assertEqual(self.gpus(), ["device 0: NVIDIA Test 2 (GPU-2220-aaaa)"])
        os.unlink(self.root / "dev" / "nvidia2")
        self.assertIn("the machine has 4, but none of their device files is here", self.gpus()[0])

    def test_python(self):
        self.put("usr/lib/python3.9/dist-packages/torch/version.py", "debug = False\n__version__ = '9.8.7'\n")
        if shutil.which("python3"):
            self.expect(self.look(f"--root={self.root}", PATH=os.environ["PATH"]), "Python", "ok", "PyTorch 9.8.7")
        self.expect(self.look(PATH="/nonexistent"), "Python", "ok", "no python3 in PATH")

    # ---- other hosts

    def test_clocks_of_hosts(self):
        """By ssh, which is played here: "here" has the command itself, the others have clocks of their own."""
        version = subprocess.run([TUTTI, "--version"], capture_output=True, text=True, check=True).stdout.strip()
        ssh = self.root / "ssh"
        ssh.write_text(f"""#!{sys.executable}
import os, sys, time
host, *command = sys.argv[1:]
if host == "here":
    os.execv(command[0], command)
if host == "nowhere":
    sys.exit(255)
if host == "other":
    sys.exit(print("Welcome!"))
assert command[1] == "remote-clock", command
print({version!r}, flush=True)
for _ in sys.stdin:
    print(time.time_ns() + int({{"ahead": 5, "behind": -7.5, "hour": 3600}}[host] * 1e9), flush=True)
""", encoding="utf-8")
        ssh.chmod(0o755)
        said = self.look("--ssh=here,ahead,behind,hour,nowhere,other", TUTTI_SSH=str(ssh))
        self.expect(said, "clock", "ok", "1 host by ssh: within ")
        self.expect(said, "clock", "warn", "that of ahead is ")
        self.expect(said, "clock", "warn", " s ahead of this host's")
        self.expect(said, "clock", "warn", "that of behind is ")
        self.expect(said, "clock", "warn", " s behind this host's")
        self.expect(said, "clock", "WRONG", "that of hour is ")
        skews = [re.search(r"is ([\d.]+) s .* \(give or take ([\d.]+) s\)", c["found"]) for c in said["checks"]
                 if "give or take" in c["found"]]
        for skew, true in zip(skews, (5, 7.5, 3600)):
            self.assertLessEqual(abs(float(skew[1]) - true), float(skew[2]) + 0.001)
        self.expect(said, "hosts", "WRONG", "nowhere: the command there ended without an answer, with exit code 255")
        self.expect(said, "hosts", "WRONG", f'other: expected "{version}" from there, got "Welcome!"')
        hosts = self.root / "hosts"
        hosts.write_text("here slots=4 # this one\n")
        said = self.look(f"--hostfile={hosts}", TUTTI_SSH=str(ssh))
        self.expect(said, "clock", "ok", "1 host by ssh: within ")
        said = self.look("--ssh=here", TUTTI_SSH="/no/such/ssh")
        self.expect(said, "hosts", "WRONG", "here: can't run /no/such/ssh: No such file")


if __name__ == "__main__":
    unittest.main()
