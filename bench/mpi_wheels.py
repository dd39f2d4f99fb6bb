"""The MPIs that PyPI has as wheels, each in a virtual environment of its own, with the settings that made it fastest on
one host."""
import functools
import os
import shutil
import statistics
import subprocess
import sys

from contenders import Missing, compiled, run

PACKAGES = {"Intel MPI": "impi-rt", "MPICH 5": "mpich>=5,<6", "Open MPI 5": "openmpi>=5,<6"}
LONGEST = 25  # seconds a run may take: where ranks that don't yield share CPUs, a call can take milliseconds
LEAST, MEAN = 0.95, 1.2  # how many times as fast as each of these Tutti means to be: at every size, and on average


def folder_of(out, name):
    return out / "mpi" / name.lower().replace(" ", "-")


@functools.lru_cache
def environment(out, name, may_fetch):
    """The virtual environment that has this MPI, made when there is none and fetching is allowed. Raises Missing."""
    folder = folder_of(out, name)
    complete = folder / "complete"
    if complete.exists():
        return folder
    if not may_fetch:
        raise Missing("./dev bench --wheels fetches it from PyPI")
    shutil.rmtree(folder, ignore_errors=True)
    install(folder, PACKAGES[name])
    complete.touch()
    return folder


def install(folder, package):
    folder.parent.mkdir(parents=True, exist_ok=True)
    steps = ([sys.executable, "-m", "venv", folder],
             [folder / "bin" / "pip", "--disable-pip-version-check", "install", "-q", "--only-binary=:all:",
              "--retries", "1", package])
    for step in steps:
        done = subprocess.run([str(word) for word in step], capture_output=True, text=True)
        if done.returncode:
            said = (done.stderr + done.stdout).strip().splitlines()
            raise Missing(f"{package} could not be installed: {said[-1] if said else step}")


def program_of(out, name, may_fetch):
    """The all_reduce peer, linked with this MPI. Intel's wheel has no header; it shares MPICH's binary interface, so
    that what MPICH's describes runs with it."""
    folder = environment(out, name, may_fetch)
    header = environment(out, "MPICH 5", may_fetch) if name == "Intel MPI" else folder
    library = "libmpi.so.40" if name == "Open MPI 5" else "libmpi.so.12"
    return compiled(out, "gcc", "mpi_allreduce.c", "-O2", f"-I{header}/include", f"-L{folder}/lib", f"-l:{library}",
                    f"-Wl,-rpath,{folder}/lib", name=f"mpi_allreduce-{folder.name}")


def ways_of(folder, name, world):
    """The launcher's words and the environment of each way to run this MPI on one host; which of them is fastest
    depends on sizes."""
    crowded = world > len(os.sched_getaffinity(0))
    if name == "Intel MPI":
        env = dict(os.environ, I_MPI_ROOT=str(folder), I_MPI_FABRICS="shm")
        ways = [([], env), ([], dict(env, I_MPI_PIN="0"))] if crowded else [([], env)]
    elif name == "MPICH 5":  # in its waits only a throttle gives the CPU to another rank
        throttle = dict(os.environ, MPIR_CVAR_CH4_PROGRESS_THROTTLE="1",
                        MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT="1")
        larger = dict(throttle, MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT="10",
                      MPIR_CVAR_ALLREDUCE_POSIX_INTRA_ALGORITHM="release_gather")
        ways = [([], throttle), ([], larger)] if crowded else [([], dict(os.environ))]
    else:
        env = dict(os.environ, OMPI_MCA_pml="ob1", OMPI_MCA_btl="sm,self")
        if os.geteuid() == 0:
            env.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
        if crowded:
            ways = [(["--map-by", ":oversubscribe"], dict(env, OMPI_MCA_mpi_yield_when_idle="1"))]
        else:
            ways = [([], env), ([], dict(env, OMPI_MCA_coll_sm_priority="100"))]
    launcher = folder / "bin" / ("mpirun" if name == "Open MPI 5" else "mpiexec")
    return [([launcher, *words], env) for words, env in ways]


def all_reduce(out, name, world, sizes, may_fetch):
    """Of each size the result of the fastest way."""
    program = program_of(out, name, may_fetch)
    best = {}
    for launcher, env in ways_of(environment(out, name, may_fetch), name, world):
        for found in run([*launcher, "-n", world, program, *sizes], env, LONGEST, partial=True):
            known = best.get(found["bytes"])
            if not known or found["usec_median"] < known["usec_median"]:
                best[found["bytes"]] = found
    return [best[size] for size in sizes if size in best]


def verdicts(section):
    """A line a pair of contenders: the geometric mean and the least ratio, beside what is meant to be."""
    lines = []
    for ours, theirs in section.ratios:
        times = {row: section.median(row, theirs) / section.median(row, ours) for row in section.values
                 if section.median(row, ours) and section.median(row, theirs)}
        if not times:
            continue
        mean, low = statistics.geometric_mean(times.values()), min(times, key=times.get)
        behind = [f"{row} {times[row]:.2f} x" for row in times if times[row] < LEAST]
        behind += [f"geometric mean {mean:.2f} x"] if mean <= MEAN else []
        lines.append(f"{ours} : {theirs}: geometric mean {mean:.2f} x, least {times[low]:.2f} x at {low}: "
                     + (f"BEHIND at {', '.join(behind)}" if behind else "ahead")
                     + ("" if len(times) == len(section.values) else f" ({len(times)} of {len(section.values)} sizes)"))
    return lines + [f"meant: no size below {LEAST} x, geometric means above {MEAN} x"] if lines else []
