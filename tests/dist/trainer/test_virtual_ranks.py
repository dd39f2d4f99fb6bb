"""Virtual ranks, as a training program has them: the SHA-256 of trained parameters is the same for any number of ranks,
over any transport and back end, for any bucket cap, and after a kill and a resume on another number of ranks. An MLP, a
convolutional net with batch norm and dropout, and a GPT with dropout and clipping; the last batch is smaller.

TT_VIRTUAL_LONG=1 tries all worlds on all transports (minutes)."""
import hashlib
import os
import subprocess
import sys
import tempfile

TUTTI, BUILD, PROGRAMS = os.environ["TUTTI"], os.environ["TT_BUILD"], os.environ["TT_PROGRAMS"]
PATIENCE = 0.9 * float(os.environ["TT_TIMEOUT"])
LONG, SANITIZED = "TT_VIRTUAL_LONG" in os.environ, "TT_SANITIZED" in os.environ
MODELS = ["convnet"] if SANITIZED else ["mlp", "convnet", "gpt"]


def fail(text):
    sys.exit("FAILED: " + text)


def launch(ranks, *arguments, transport="", threads="1"):
    environment = dict(os.environ, OMP_NUM_THREADS=threads, OMPI_ALLOW_RUN_AS_ROOT="1",
                       OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    if transport:
        environment["TT_TRANSPORT"] = transport
    return subprocess.run([TUTTI, "run", "--standalone", f"--nproc-per-node={ranks}",
                           os.path.join(PROGRAMS, "virtual_train"), *arguments], env=environment, capture_output=True,
                          text=True, timeout=PATIENCE)


def train(ranks, *arguments, **how):
    """The hash of the parameters, and the loss to the bit."""
    done = launch(ranks, *arguments, "save=trained", **how)
    if done.returncode:
        fail(f"{ranks} ranks, {arguments}, {how}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    with open("trained", "rb") as file:
        return hashlib.sha256(file.read()).hexdigest(), done.stdout


def expect(same, ranks, *arguments, **how):
    got = train(ranks, *arguments, **how)
    if got != same:
        fail(f"{ranks} ranks, {arguments}, {how}: expected {same}, got {got}")


def kill_and_resume(same, model, before, after, *options, **how):
    """Killed in the step behind a checkpoint's, inside an epoch."""
    if os.path.exists("checkpoint"):
        os.remove("checkpoint")
    done = launch(before, model, *options, "checkpoint=checkpoint", "every=2", "die=5", **how)
    if not done.returncode or not os.path.exists("checkpoint"):
        fail(f"{model}: expected {before} ranks to end in step 6, with a checkpoint of step 4: {done.stderr}")
    got, _ = train(after, model, *options, "resume=checkpoint", **how)
    if got != same[0]:
        fail(f"{model}: killed on {before} ranks, resumed on {after}, {how}: expected {same[0]}, got {got}")


def is_built(backend):
    return os.path.exists(os.path.join(BUILD, "lib", "tutti", f"libtutti-backend-{backend}.so"))


def all_ways(model, same, backends):
    for ranks in [2, 3, 4, 5, 6, 8]:
        for cap in ["cap=0", "cap=1000"]:
            expect(same, ranks, model, cap)
            expect(same, ranks, model, cap, transport="tcp")
            for backend in backends:
                expect(same, ranks, model, cap, "backend=" + backend)
    for before, after in [(1, 2), (2, 1), (2, 3), (3, 8), (8, 3), (4, 6), (6, 4), (5, 2)]:
        kill_and_resume(same, model, before, after)
        kill_and_resume(same, model, before, after, transport="tcp")


def some_ways(model, same, backends):
    expect(same, 2, model, "cap=1000", transport="tcp")
    expect(same, 3, model, "workers=1")
    kill_and_resume(same, model, 3, 2)
    if SANITIZED or model != "model=convnet":
        return
    expect(same, 4, model, "cap=1000")
    expect(same, 6, model)
    expect(same, 8, model, transport="tcp")
    for backend in backends:
        expect(same, 2 if backend == backends[0] else 3, model, "backend=" + backend)
    kill_and_resume(same, model, 2, 4, transport="tcp")


def is_what_that_many_ranks_get(model, *options):
    """The definition: V ranks without the option."""
    same = train(4, model, *options, "virtual=0")
    expect(same, 4, model, *options, "virtual=4")
    for ranks in [1, 2, 3]:
        got, _ = train(ranks, model, *options, "virtual=4")
        if got != same[0]:
            fail(f"{model}, {options}: 4 virtual ranks on {ranks}: expected the bits of 4 ranks")


def accumulates(model):
    """Steps of two batches of each virtual rank; the epoch's last one has one."""
    options = "accumulate=2", "batch=1", "examples=151"
    same = train(1, model, *options)
    expect(same, 2, model, *options, "workers=1")
    kill_and_resume(same, model, 3, 2, *options)
    if not SANITIZED:
        expect(same, 3, model, *options, transport="tcp")
        kill_and_resume(same, model, 1, 4, *options)
        is_what_that_many_ranks_get(model, *options)


def differing_ranks_are_told():
    done = launch(3, "model=mlp", "virtual=2")
    if not done.returncode or "expected at least as many .virtual_ranks as ranks (3), got 2" not in done.stderr:
        fail(f"2 virtual ranks on 3: {done.stderr}")


def main():
    backends = [b for b in ("mpi-openmpi", "mpi-mpich") if is_built(b)]
    for backend in ("mpi-openmpi", "mpi-mpich"):
        if backend not in backends:
            print(f"left out: the back end {backend} was not built")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name in MODELS:
            model = "model=" + name
            same = train(1, model)
            (all_ways if LONG else some_ways)(model, same, backends)
            if LONG or name == "convnet":
                is_what_that_many_ranks_get(model)
                accumulates(model)
            print(f"ok: {name} {same[0]}")
        differing_ranks_are_told()
        os.chdir("/")


main()
