"""For tests of examples in Python: run one, alone or on several ranks, and look at what it prints."""
import os
import signal
import subprocess
import sys

TUTTI, BUILD = os.environ["TUTTI"], os.environ["TT_BUILD"]
PATIENCE = 0.9 * float(os.environ["TT_TIMEOUT"])


def fail(text):
    sys.exit("FAILED: " + text)


def run(name, ranks, *flags, code=0):
    """What it prints, as text where it can be; of a run that is to fail with `code`: its errors."""
    launcher = [TUTTI, "run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
    done = subprocess.run([*launcher, os.path.join(BUILD, "examples", name), *flags], capture_output=True, text=True,
                          errors="replace", env=dict(os.environ, OMP_NUM_THREADS="1"), timeout=PATIENCE)
    if done.returncode != code:
        fail(f"{name} {flags}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout if code == 0 else done.stderr


def stop(name, *flags, when):
    """Send SIGTERM after a line that begins with `when`; what it prints from there on. It is to end well."""
    started = subprocess.Popen([os.path.join(BUILD, "examples", name), *flags], stdout=subprocess.PIPE, text=True,
                               errors="replace", env=dict(os.environ, OMP_NUM_THREADS="1"))
    for line in started.stdout:
        if line.startswith(when):
            started.send_signal(signal.SIGTERM)
            break
    out = started.stdout.read()
    if started.wait(PATIENCE) != 0 or "Training stopped" not in out:
        fail(f"{name} {flags}: expected a good end after SIGTERM, got exit code {started.returncode}\n{out}")
    return out


def tells_mistakes(name, always, mistakes):
    """Each of `mistakes` (flags, exit code, what is told) is one line; `always`: flags that are right."""
    for flags, code, text in mistakes:
        told = run(name, 1, *always, *flags, code=code)
        if text not in told or len(told.splitlines()) != 1:
            fail(f"{name} {flags}: expected one line with \"{text}\", got: {told}")


def read(path):
    with open(path, "rb") as file:
        return file.read()
