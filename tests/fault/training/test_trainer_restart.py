"""tutti run --max-restarts with a trainer that resumes from its checkpoint: ranks are killed in the middle of epochs,
the job goes on by itself, and the final parameters are those of a job that nobody disturbed, to the bit."""
import os
import re
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ["TT_SOURCE"], "tests", "support"))
from patience import DEADLINE  # noqa: E402

TUTTI, BUILD = os.environ["TUTTI"], os.environ["TT_BUILD"]
TRAINER = os.path.join(BUILD, "examples", "mnist_trainer")
EPOCHS = 40
TRAIN = 400 if os.environ.get("TT_SANITIZED") else 2000  # so that an epoch takes a while
KILLS = [(4, 1), (9, 0), (16, 1)]  # after which epoch which rank is killed

# Goes on from the checkpoint, if there is one; says which process is which rank, which it stays.
PROGRAM = f"""#!/bin/sh
echo "rank $RANK of attempt $TORCHELASTIC_RESTART_COUNT is $$."
test -e "$1" && exec {TRAINER} --data small --epochs {EPOCHS} --save-every 2 --checkpoint "$1" --resume "$1"
exec {TRAINER} --data small --epochs {EPOCHS} --save-every 2 --checkpoint "$1"
"""


def start(folder, checkpoint):
    return subprocess.Popen([TUTTI, "run", "--standalone", "--nproc-per-node=2", "--max-restarts=3",
                             os.path.join(folder, "program"), checkpoint], cwd=folder, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def fail(text, job, lines):
    job.kill()
    sys.exit(f"FAILED: {text}\n{''.join(lines)}\n{job.communicate(timeout=DEADLINE)[1]}")


def kill_in_the_middle(job, lines):
    """Kill the ranks, one an attempt."""
    for attempt, (epoch, rank) in enumerate(KILLS):
        pids = {}
        for line in job.stdout:
            lines.append(line)
            who = re.fullmatch(r"rank (\d) of attempt (\d) is (\d+)\.\n", line)
            if who and int(who[2]) == attempt:
                pids[int(who[1])] = int(who[3])
            if line.startswith(f"Epoch {epoch},") and rank in pids:
                os.kill(pids[rank], signal.SIGKILL)
                break
        else:
            fail(f"the job ended before epoch {epoch} of attempt {attempt}", job, lines)


def main():
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "program"), "w", encoding="utf-8") as f:
            f.write(PROGRAM)
        os.chmod(os.path.join(folder, "program"), 0o755)
        subprocess.run([TUTTI, "data", "digits", "small", "--train", str(TRAIN), "--test", "100"], cwd=folder,
                       check=True, stdout=subprocess.DEVNULL, timeout=DEADLINE)
        undisturbed = start(folder, "undisturbed.safetensors")
        _, err = undisturbed.communicate(timeout=DEADLINE)
        if undisturbed.returncode:
            sys.exit(f"FAILED: the undisturbed job ended with {undisturbed.returncode}\n{err}")
        job, lines = start(folder, "disturbed.safetensors"), []
        kill_in_the_middle(job, lines)
        out, err = job.communicate(timeout=DEADLINE)
        out = "".join(lines) + out
        if job.returncode:
            sys.exit(f"FAILED: exit code {job.returncode}\n{out}\n{err}")
        for attempt, (_, rank) in enumerate(KILLS):
            if not re.search(rf"attempt {attempt + 1} of 4: rank {rank} \(pid \d+\) was killed by SIGKILL", err):
                sys.exit(f"FAILED: attempt {attempt + 1} does not name rank {rank}\n{err}")
        if out.count("Resumed after epoch") != len(KILLS):
            sys.exit(f"FAILED: expected {len(KILLS)} resumes\n{out}")
        bytes_of = {}
        for name in ("undisturbed", "disturbed"):
            with open(os.path.join(folder, name + ".safetensors"), "rb") as f:
                bytes_of[name] = f.read()
        if bytes_of["disturbed"] != bytes_of["undisturbed"]:
            sys.exit("FAILED: the parameters differ from the undisturbed job's")
        print(f"{len(KILLS)} ranks killed, {len(bytes_of['disturbed'])} bytes of state are the same")


main()
