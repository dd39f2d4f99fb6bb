"""PyTorch's TCPStore, of 1.13 or current, as client of our server, and our client against its server; both in one
FileStore."""
import os
import subprocess
import sys
import tempfile
import threading
from datetime import timedelta

try:
    import torch
    import torch.distributed as dist
except ImportError as error:
    print(f"skipped: PyTorch can't be imported ({error}); ./dev setup --interop installs it")
    sys.exit(77)

PATIENCE = timedelta(seconds=100)
SHORT = timedelta(seconds=5)  # what is refused is tried again until then


def need(condition, what):
    if not condition:
        raise AssertionError(what)


def is_old():
    """Does this PyTorch speak the dialect of 1.13?"""
    return torch.__version__.startswith("1.")


def raises(call):
    try:
        call()
    except Exception:  # PyTorch 1.13 raises RuntimeError, others their own kinds
        return True
    return False


def operations(store):
    store.set("k", "vv")
    need(store.get("k") == b"vv", "set and get")
    store.set("bytes", "")
    need(store.get("bytes") == b"", "an empty value")
    need(store.add("n", 5) == 5 and store.add("n", -7) == -2 and store.get("n") == b"-2", "add")
    need(store.compare_set("c", "x", "new") == b"x", "compare_set of a missing key, expecting something")
    need(store.compare_set("c", "", "new") == b"new", "compare_set of a missing key, expecting nothing")
    need(store.compare_set("c", "old", "other") == b"new", "compare_set that does not match")
    need(store.compare_set("c", "new", "newer") == b"newer", "compare_set that matches")
    need(store.num_keys() >= 4, "num_keys")
    need(store.delete_key("k") and not store.delete_key("k"), "delete_key")
    store.wait(["n", "c"])
    large = "x" * 3_000_000
    store.set("large", large)
    need(store.get("large") == large.encode(), "a large value")
    if hasattr(store, "append") and hasattr(store, "multi_get"):  # PyTorch 2
        store.append("a", "one")
        store.append("a", "two")
        store.multi_set(["m1", "m2"], ["1", "2"])
        need(store.multi_get(["a", "m1", "m2"]) == [b"onetwo", b"1", b"2"], "append, multi_set, multi_get")
    if hasattr(store, "queue_push") and hasattr(store, "list_keys"):  # PyTorch 2.15
        store.queue_push("q", "one")
        store.queue_push("q", "")
        need(store.queue_len("q") == 2 and store.check(["q"]), "queue_len, check of a queue")
        need(store.queue_pop("q") == b"one" and store.queue_pop("q", False) == b"", "queue_pop")
        need(store.queue_len("q") == 0 and raises(lambda: store.queue_pop("q", False)), "queue_pop of an empty queue")
        need({"a", "c", "n"} <= set(store.list_keys()) and "q" not in store.list_keys(), "list_keys")
        store.barrier("here", 1)
        need(store.clone().get("c") == b"newer", "clone")


def serve(*flags, secret=""):
    env = dict(os.environ, TT_SECRET=secret)
    return subprocess.Popen([os.environ["TUTTI"], "store", "--port", "0", *flags], stdout=subprocess.PIPE, env=env,
                            text=True)


def torch_as_client(secret):
    server = serve(secret=secret)
    try:
        line = server.stdout.readline()
        need(line.startswith("serving on 127.0.0.1:"), f"unexpected first line {line!r}")
        port = int(line.rsplit(":", 1)[1])
        first = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=PATIENCE)
        second = dist.TCPStore("127.0.0.1", port, 2, False, timeout=PATIENCE)
        operations(first)
        operations(dist.PrefixStore("p", dist.PrefixStore("q", second)))
        need(first.get("q/p/c") == b"newer", "PrefixStore's keys")

        got = []
        waiting = threading.Thread(target=lambda: got.append(second.get("late")))
        waiting.start()
        first.set("late", "here")
        waiting.join(100)
        need(got == [b"here"], "a get that waits is released by set")
        first.set_timeout(timedelta(seconds=1))
        need(raises(lambda: first.get("never")), "a get of a key that never comes ends in an error")
        second.set("text", "no number")
        need(raises(lambda: second.add("text", 1)), "add to no number ends in an error")
        third = dist.TCPStore("127.0.0.1", port, is_master=False, timeout=PATIENCE)
        need(third.get("late") == b"here", "and harms nobody else")
        del first, second, third
    finally:
        server.terminate()
        need(server.wait(100) == 0, f"tutti store ended with {server.returncode}")


def torch_is_refused():
    """Where everybody must prove to belong to the job, PyTorch can't."""
    server = serve("--store-auth", "required", secret="an old and well kept secret")
    try:
        port = int(server.stdout.readline().rsplit(":", 1)[1])
        need(raises(lambda: dist.TCPStore("127.0.0.1", port, 1, False, timeout=SHORT).get("k")), "PyTorch is let in")
    finally:
        server.terminate()
        server.wait(100)


def with_our_client(store, place):
    store.set("from_python", "hello")
    store.add("counter", 10)
    dist.PrefixStore("pre", store).set("from_python", "below a prefix")
    env = dict(os.environ, TT_SECRET="an old and well kept secret")  # which PyTorch's store knows nothing of
    dialect = ["old"] if is_old() else []
    client = subprocess.Popen([os.path.join(os.environ["TT_PROGRAMS"], "store_client"), place, *dialect], env=env)
    try:
        need(store.get("from_c") == b"hello back", "a value set by our client")
        need(store.get("cas") == b"second" and store.get("counter") == b"15", "values changed by our client")
        need(dist.PrefixStore("pre", store).get("from_c") == b"below a prefix, too", "our prefix store's key")
        store.set("goodbye", "1")
        need(client.wait(100) == 0, f"store_client ended with {client.returncode}")
    finally:
        if client.poll() is None:
            client.kill()
            client.wait()


def torch_as_server():
    store = dist.TCPStore("127.0.0.1", 0, 2, True, timeout=PATIENCE, wait_for_workers=False)
    with_our_client(store, str(store.port))
    if is_old():
        need(store.add("after", 0) == 0, "nothing was sent after the timeout")
    else:
        need(store.get("after") == b"x", "what our client set after the timeout")


def a_job_meets_through_torchs_store(transport):
    """As ranks that torchrun starts: env:// finds out by itself which dialect its store speaks."""
    store = dist.TCPStore("127.0.0.1", 0, 1, True, timeout=PATIENCE, wait_for_workers=False)
    env = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(store.port), WORLD_SIZE="3",
               TORCHELASTIC_USE_AGENT_STORE="True", TT_TRANSPORT=transport)
    program = [os.path.join(os.environ["TT_PROGRAMS"], "store_client"), "join"]
    ranks = [subprocess.Popen(program, env=dict(env, RANK=str(rank))) for rank in range(3)]
    try:
        need([rank.wait(100) for rank in ranks] == [0, 0, 0], "the ranks did not meet through PyTorch's store")
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def both_in_one_file():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "store")
        store = dist.FileStore(path, 2)
        store.set_timeout(PATIENCE)
        with_our_client(store, path)
        need(store.get("after") == b"x", "what our client set last")
        del store
        need(not os.path.exists(path), "the last user did not remove the file")


torch_as_client("")
torch_as_client("an old and well kept secret")
torch_is_refused()
torch_as_server()
a_job_meets_through_torchs_store("auto")
a_job_meets_through_torchs_store("tcp")
both_in_one_file()
