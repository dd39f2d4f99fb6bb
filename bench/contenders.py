"""How contenders run: each program prints JSON objects, one a line, which are its results."""
import json
import os
import pathlib
import shutil
import subprocess

BENCH = pathlib.Path(__file__).resolve().parent
PEERS = BENCH / "peers"


class Missing(Exception):
    """A peer can't run here; the text says why and what would help."""


class Failed(Exception):
    """A contender ran and ended badly."""


def objects(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{") and line.endswith("}")]


def run(command, env=None, seconds=600, partial=False):
    """The objects a command prints. One that takes longer than `seconds` is ended; `partial`: what it printed until
    then counts."""
    words = [str(word) for word in command]
    late = False
    with subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            printed, said = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            late = True
            printed, said = end(process)
        except BaseException:
            process.terminate()
            raise
    if late and not (partial and objects(printed)):
        raise Failed(f"{' '.join(words)}: still running after {seconds} s")
    if process.returncode and not late:
        raise Failed(f"{' '.join(words)}: exit code {process.returncode}\n{said[-800:]}")
    return objects(printed)


def end(process):
    """What a process has printed when it has ended. It is asked to first: launchers end their ranks then."""
    process.terminate()
    try:
        return process.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.communicate()


def compiled(out, compiler, source, *words, name=None):
    """Builds a C or C++ peer once into `out`."""
    program = out / (name or pathlib.Path(source).stem)
    if not shutil.which(compiler):
        raise Missing(f"there is no {compiler} (./dev setup --interop installs it)")
    if not program.exists() or program.stat().st_mtime < max(p.stat().st_mtime for p in PEERS.glob("*.[ch]*")):
        subprocess.run([compiler, PEERS / source, "-o", program, *words], check=True)
    return program
