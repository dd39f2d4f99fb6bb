"""bindings/torch, built for the PyTorch that runs this: features of torch.distributed beside gloo's
(torch_features.py), and how ranks meet: by any store, under any launcher, or none. Skipped (77) where torch or its
headers are missing, and under a sanitizer."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))
import torch_package  # noqa: E402
from patience import DEADLINE, free_port  # noqa: E402

PROGRAM, FUTURES, MEETING = HERE / "torch_features.py", HERE / "torch_futures.py", HERE / "torch_meeting.py"


def command(*words, **environment):
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=DEADLINE, check=False,
                          env=torch_package.environment(**environment))


class Features(unittest.TestCase):
    def part(self, name, world, program=PROGRAM):
        done = torch_package.launch(world, program, name)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for line in done.stdout.splitlines():
            if " lacks " in line or "checks" in line:
                print(line)
        self.assertRegex(done.stdout, rf"{name}: [1-9]\d* checks|{name} lacks all")

    def test_groups(self):
        # PyTorch's own recorder, which it attaches to back ends of others, writes its files in a thread when a group
        # breaks; a process that ends meanwhile is aborted ("exception not rethrown").
        self.part("groups", 4)

    def test_training(self):
        self.part("training", 2)

    def test_sharding(self):
        self.part("sharding", 4)

    def test_futures(self):
        self.part("futures", 2, FUTURES)


class Meeting(unittest.TestCase):
    def met(self, done, ranks=2):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(sorted(done.stdout.split()), [f"met-{r}" for r in range(ranks)], done.stdout + done.stderr)

    def by_hand(self, *arguments, **environment):
        """Two processes that nobody but this has started."""
        ranks = [subprocess.Popen([sys.executable, str(MEETING), *map(str, arguments)], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True,
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
