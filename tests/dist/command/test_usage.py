"""Calling the command wrongly: exit code 2, one line on stderr that says who complains and of what, and where to read
more. All subcommands stand in one table."""
import concurrent.futures
import os
import re
import shlex
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.environ["TT_SOURCE"], "tests", "support"))
from patience import DEADLINE  # noqa: E402

TUTTI = os.environ["TUTTI"]

# Who is called: (arguments, part of what it says).
WRONG = {
    "": [
        ("walk", 'unknown command "walk"'),
        ("help walk", 'unknown command "walk"'),
    ],
    "run": [
        ("--frobnicate 1 true", "unknown flag --frobnicate"),
        ("--nproc-per-nod2 2 true", "did you mean --nproc-per-node?"),
        ("-x y true", "unknown flag -x"),
        ("--tee=4 true", '--tee: expected 0 (nothing), 1 (stdout), 2 (stderr), 3 (both), or LOCAL_RANK:0..3'),
        ("-r 0:1,1 true", '--redirects: expected 0 (nothing)'),
        ("-r 0:1,1:33 true", 'got "0:1,1:33"'),
        ("-r 3, true", 'got "3,"'),
        ("--local-ranks-filter 0,x true", '--local-ranks-filter: expected local ranks as 0,1,2, got "0,x"'),
        ("--logs_specs mine true", "--logs-specs names a plug-in"),
        ("--nproc-per-node 0 true", "--nproc-per-node: expected a number from 1"),
        ("--nproc-per-node xpu true", "--nproc-per-node=xpu: such devices are not counted here"),
        ("--nproc-per-node hpu true", 'auto, cpu or gpu, got "hpu"'),
        ("--signals-to-handle SIGTERM,SIGKILL true", 'got "SIGKILL", which is a signal that can\'t be handled'),
        ("--signals-to-handle SIGTERM,,SIGINT true", 'got "", which is no signal'),
        ("--signals-to-handle TERM true", 'got "TERM", which is no signal'),
        ("--start-method=clone true", "--start-method: expected spawn, fork or forkserver"),
        ("--monitor-interval=soon true", "--monitor-interval: expected a number"),
        ("--health-check-port=65536 true", "--health-check-port: expected a number from 0 to 65535"),
        ("--event-log-handler=mine true", "--event-log-handler: expected null or console"),
        ("--grace-period 1 --shutdown-timeout 1 true", "both say how long after SIGTERM"),
        ("--bind=all true", '--bind: expected none, core or numa, got "all"'),
        ("--numa-binding=none true", "--numa-binding: expected node, socket, exclusive or core-complex"),
        ("--bind=core --numa-binding=node true", "both say where workers run"),
        ("--nproc-per-node 2x true", 'got "2x"'),
        ("--nproc-per-node", "--nproc-per-node: expected a value"),
        ("--nnodes 2:1 true", "--nnodes: expected MIN:MAX"),
        ("--ssh a,b --nnodes 1:2 true", "--ssh starts a fixed set of hosts"),
        ("--nnodes 1: true", "--nnodes: expected"),
        ("--nnodes=1:2 --rdzv-backend=static true", "expected --rdzv-backend=c10d"),
        ("--nnodes=1:2 --rdzv-conf=is_host=perhaps true", "is_host: expected true or false"),
        ("--nnodes=1:2 --rdzv-conf=heartbeat=0.1 true", "heartbeat: expected seconds from 0.5"),
        ("--nnodes=1:2 --rdzv-conf=rejoin=-1 true", "rejoin: expected seconds from 0"),
        ("--nnodes=1:2 --rdzv-endpoint=localhost:0 true", "expected a port in --rdzv-endpoint"),
        ("--nnodes 0 true", "--nnodes: expected a number from 1"),
        ("--nnodes=2 --standalone true", "--standalone is for a job on one node"),
        ("--nnodes=2 --master-port=0 true", "2 nodes: expected a --master-port that they all know"),
        ("--node-rank 1 true", "--node-rank: expected a number from 0 to 0"),
        ("--store-auth some true", "--store-auth: expected local, required or none"),
        ("--join-timeout=0.5 true", "--join-timeout: expected seconds from 1 to 86400"),
        ("--rdzv-conf heartbeat=x true", "--rdzv-conf: heartbeat: expected a number"),
        ("--rdzv-conf nonsense true", "--rdzv-conf: expected NAME=VALUE"),
        ("--nnodes=2 --rdzv-conf protocol=torch true", "protocol=torch: one job mixes no launchers"),
        ("--nnodes=2 --rdzv-backend=c10d --rdzv-conf timeout=9,protocol=torch1 true", "protocol=torch1: one job mixes"),
        ("--rdzv-endpoint 192.0.2.1:29500 true", "expected a loopback address"),
        ("-n 2 true", "unknown flag -n; did you mean --nproc-per-node?"),
        ("-np 2 true", "unknown flag -np; did you mean --nproc-per-node?"),
        ("--num-processes=2 true", "unknown flag --num-processes; did you mean --nproc-per-node?"),
        ("--host a,b true", "unknown flag --host; did you mean --ssh?"),
        ("--rdzv-endpoint a:b:1 true", "--rdzv-endpoint: expected HOST:PORT"),
        ("--nnodes=2 --rdzv-backend c10d --rdzv-endpoint a:1,b:2,c:3 true", "only etcd has several endpoints"),
        ("--rdzv-endpoint a:1,b:2 true", "got \"a:1,b:2\" with static"),
        ("--rdzv-backend zookeeper true", "expected static, c10d or etcd"),
        ("--nnodes=2 --rdzv-backend etcd-v2 true", "v2 API is gone since etcd 3.6: expected etcd"),
        ("--nnodes=2 --rdzv-backend etcd true", "expected --rdzv-endpoint=HOST:2379, where etcd is"),
        ("--nnodes=2 --rdzv-backend etcd --rdzv-endpoint=127.0.0.1 --rdzv-conf=protocol=ftp true", "http or https"),
        ("--max-restarts some true", "--max-restarts: expected a number"),
        ("--max-restarts=-1 true", "--max-restarts: expected a number from 0 to"),
        ("--master-port 70000 true", "--master-port: expected a number from 0 to 65535"),
        ("--master-addr 192.0.2.1 true", "expected a loopback address"),
        ("--grace-period -1 true", "--grace-period: expected seconds"),
        ("--settle-period 100000 true", "--settle-period: expected seconds"),
        ("--wait-notice=soon true", "--wait-notice: expected a number"),
        ("--log-level=loud true", 'expected debug, info or warning, got "loud"'),
        ("--standalone=1 x true", "takes no value"),
        ("--help=1 true", "--help takes no value, got \"1\""),
        ("--standalone", "expected a program"),
        ("--standalone --module --no-python package.module",
         "--module starts Python, --no-python forbids it: give one of them"),
    ],
    "submit": [
        ("--slurm --frobnicate", "unknown flag --frobnicate"),
        ("--slurm ./train", 'put "tutti run" before the program'),
    ],
    "launch": [
        ("--no-python true", "--no-python needs --use-env"),
        ("--local-rank-name=rank true", "--local-rank-name: expected local-rank or local_rank"),
        ("--frobnicate 1 true", "unknown flag --frobnicate"),
        ("--use-env", "expected a program"),
    ],
    "top": [
        ("a --pid=3", "a job and --pid were given: expected one of them"),
        ("--interval=0", '--interval: expected seconds from 0.05 to 3600, got "0"'),
        ("--frobnicate", "unknown flag --frobnicate"),
        ("a b", 'unexpected argument "b"'),
    ],
    "trace": [
        ("--frobnicate", "unknown flag --frobnicate"),
        ("a b", 'unexpected argument "b"'),
        ("--pipeline f a", "--pipeline and a job were given: expected one of them"),
        ("--pipeline f -o p.png", '-o of --pipeline writes .svg: expected a name that ends in that, got "p.png"'),
        ("-o p.svg", 'writes .json: expected a name that ends in that, got "p.svg"'),
    ],
    "store": [
        ("--port 65536", "--port: expected a number from 0 to 65535"),
        ("--port -1", "--port: expected a number from 0 to 65535"),
        ("--port ''", "--port: expected a number from 0 to 65535, but it is empty"),
        ("--port", "--port needs a value"),
        ("--prot 1", "unknown flag --prot"),
        ("now", 'unexpected argument "now"'),
        ("--store-auth everybody", "--store-auth: expected local, required or none"),
    ],
    "tune": [
        ("--world 1", '--world: not understood: "1"'),
        ("--transport shm", '--transport: not understood: "shm"'),
        ("--sizes 8,4", '--sizes: not understood: "8,4"'),
        ("--sizes x", '--sizes: not understood: "x"'),
        ("--nothing", "unknown flag --nothing"),
        ("word", 'unexpected argument "word"'),
        ("--only none", '--only: not understood: "none"'),
        ("--only barrier,none", '--only: not understood: "barrier,none"'),
        ("--only send_recv", '--only: not understood: "send_recv"'),
        ("--only ,", '--only: not understood: ","'),
    ],
    "bench": [
        ("nonsense", 'unknown benchmark "nonsense"'),
        ("", "expected the name"),
    ],
    "bench all_reduce": [
        ("--sizes", "--sizes needs a value"),
        ("--sizes x", '--sizes: not understood: "x"'),
        ("--sizes 0", '--sizes: not understood: "0"'),
        ("--sizes ,", '--sizes: not understood: ","'),
        ("--world 0", '--world: not understood: "0"'),
        ("--world 65", '--world: not understood: "65"'),
        ("--buffers soft", '--buffers: not understood: "soft"'),
        ("--iterations -1", '--iterations: not understood: "-1"'),
        ("--nothing", "unknown flag --nothing"),
        ("word", 'unexpected argument "word"'),
        ("--dtype x", '--dtype: not understood: "x"'),
        ("--op y", '--op: not understood: "y"'),
        ("--transport pigeon", '--transport: not understood: "pigeon"'),
        ("--algorithm none", '--algorithm: all_reduce has no "none"; expected one of inline, carried, symmetric, '),
    ],
    "bench step": [
        ("--frobnicate", "unknown flag --frobnicate"),
        ("--what", "unknown flag --what"),
        ("x", 'unexpected argument "x"'),
        ("file", 'unexpected argument "file"'),
        ("--model x", '--model: expected mlp, conv, gpt, gpt2 or resnet50, got "x"'),
        ("--world 0", '--world: expected a number from 1 to 1024, got "0"'),
        ("--steps -1", '--steps: expected a number from 1 to 1000000, got "-1"'),
        ("--graph --world 1", "--graph captures the step of one rank on a GPU: add --world 1 and --device cuda:0"),
        ("--graph --device cuda", "--graph captures the step of one rank on a GPU"),
    ],
    "bench store": [
        ("--clients 0", "--clients: expected a number from 1"),
        ("--client_count 1", "unknown flag --client-count"),
    ],
    "bench rpc": [
        ("--frobnicate", "unknown flag --frobnicate"),
        ("x", 'unexpected argument "x"'),
        ("--world 1", '--world: not understood: "1"'),
        ("--sizes 1,x", '--sizes: not understood: "1,x"'),
        ("--workers 0", '--workers: not understood: "0"'),
        ("--values texts", '--values: not understood: "texts"'),
        ("--transport pigeon", '--transport: not understood: "pigeon"'),
    ],
    "bench startup": [
        ("--world zero", "world: expected a number"),
        ("--frobnicate", "unknown flag --frobnicate"),
        ("--jobs", "jobs needs a value"),
        ("x", 'unexpected argument "x"'),
    ],
    "data": [
        ("", 'expected "mnist", "cifar10", "cifar100", "digits" or "show"'),
        ("paint", 'unknown command "paint"'),
        ("cifar", 'did you mean'),
    ],
    "data mnist": [
        ("", "expected a folder"),
        ("x --mirror ftp://y", '--mirror: expected an address http://... or https://..., got "ftp://y"'),
        ("x y", 'unexpected argument "y"'),
    ],
    "data cifar10": [
        ("", "expected a folder"),
    ],
    "data cifar100": [
        ("x --mirror", "--mirror needs a value"),
    ],
    "data digits": [
        ("", "expected a folder"),
        ("x --colour", "unknown flag --colour"),
        ("x --seed", "--seed needs a value"),
        ("x --train 0", "--train: expected a number from 1 to"),
        ("x y", 'unexpected argument "y"'),
    ],
    "data show": [
        ("", "expected a file"),
    ],
    "ckpt": [
        ("", 'expected "show", "verify", "diff" or "convert"'),
        ("paint", 'unknown command "paint"'),
    ],
    "ckpt show": [
        ("", "expected a file, got 0"),
        ("a b", "expected a file, got 2"),
        ("a --colour", "unknown flag --colour"),
    ],
    "ckpt verify": [
        ("", "expected a file or more, got 0"),
    ],
    "ckpt diff": [
        ("a", "expected two files, got 1"),
        ("a b c", "expected two files, got 3"),
    ],
    "ckpt convert": [
        ("a", "expected two files, got 1"),
        ("a b.txt", "expected a new file that ends in .safetensors"),
        ("a b.pt --max-shard 0", "--max-shard: expected a number from 1"),
    ],
    "plot": [
        ("", "expected files or folders of runs, got none"),
        ("a --x=weeks", 'expected step, time or epoch, got "weeks"'),
        ("a --smooth=1", 'expected a number from 0 to below 1, got "1"'),
        ("a --smooth=much", "--smooth: expected a number"),
        ("a --width=3", "--width: expected a number from 30"),
        ("a --follow --svg=b", "--follow draws in the terminal"),
        ("a --colour", "unknown flag --colour"),
        ("a --svg=b.png", '--svg writes .svg: expected a name that ends in that, got "b.png"'),
        ("a --svg", "--svg needs a value"),
        ("a --png=b.png", "unknown flag --png"),
    ],
    "doctor": [
        ("here", 'unexpected argument "here"'),
        ("--fix", "unknown flag --fix"),
        ("--rdzv-endpoint", "--rdzv-endpoint needs a value"),
        ("--ssh=a --hostfile=b", "--ssh and --hostfile were given: expected one of them"),
        ("--ssh=a,,b", "--ssh: "),
        ("--hostfile=/no/such/file", "/no/such/file"),
    ],
    "completion": [
        ("ksh", 'expected bash, zsh or fish, got "ksh"'),
        ("", "expected bash, zsh or fish"),
    ],
}


def call(command, arguments):
    return subprocess.run([TUTTI, *command.split(), *shlex.split(arguments)], capture_output=True, text=True,
                          timeout=DEADLINE, stdin=subprocess.DEVNULL, check=False)


class Usage(unittest.TestCase):
    def test_each_mistake_is_told(self):
        cases = [(command, *row) for command, rows in WRONG.items() for row in rows]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            calls = list(pool.map(lambda case: call(*case[:2]), cases))
        for (command, arguments, text), done in zip(cases, calls):
            with self.subTest(command=command, arguments=arguments):
                name = f"tutti {command}".strip()
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertEqual(done.stdout, "")
                said, hint = done.stderr.splitlines()
                self.assertTrue(said.startswith(f"{name}: "), said)
                self.assertIn(text, said)
                self.assertEqual(hint, f"Try '{name} --help'.")

    def test_every_command_is_tried(self):
        shell = call("completion", "bash").stdout
        commands = {name.strip() for name in re.findall(r"'tutti([^']*)'\) flags=", shell)}
        collectives = {name for name in commands if name.startswith("bench ")} - WRONG.keys()
        self.assertEqual(commands - collectives, WRONG.keys())
        for name in collectives:  # one function reads the flags of them all
            self.assertIn("--algorithm", call(name, "--help").stdout, name)

    def test_no_command(self):
        done = call("", "")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertTrue(done.stderr.startswith("usage: tutti COMMAND"), done.stderr)


if __name__ == "__main__":
    unittest.main()
