"""The same processes fail the same way under torch.multiprocessing.spawn and under tt_spawn(): index, exit code and
signal agree, and ours says the words of PyTorch's error, then more."""
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest

try:
    import torch.multiprocessing as mp
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

WORLD = 3


def wait_forever():
    while True:
        time.sleep(60)


def returns(rank):
    return None


def system_exit(rank, guilty, code):
    if rank == guilty:
        sys.exit(code)
    if code:
        wait_forever()


def at_once(rank, guilty, code):
    if rank == guilty:
        os._exit(code)
    wait_forever()


def signalled(rank, guilty, number):
    if rank == guilty:
        os.kill(os.getpid(), number)
    wait_forever()


def raises(rank, guilty, _):
    if rank == guilty:
        raise OSError("can't open /data")
    wait_forever()


# What happens, PyTorch's function, arguments of the program: how, who, number.
CASES = [("exit", system_exit, 1, 3), ("exit", system_exit, 0, 0), ("_exit", at_once, 2, 7),
         ("signal", signalled, 0, 9), ("signal", signalled, 1, 11), ("signal", signalled, 2, 6),
         ("signal", signalled, 0, 15), ("raise", raises, 1, 0)]


def of_torch(function, guilty, number):
    """What the exception says, without what differs from run to run; None: there is none."""
    try:
        mp.start_processes(function, args=(guilty, number), nprocs=WORLD, start_method="fork")
    except mp.ProcessExitedException as e:
        return {"index": e.error_index, "code": e.exit_code, "signal": e.signal_name or "", "words": str(e), "text": ""}
    except mp.ProcessRaisedException as e:
        return {"index": e.error_index, "code": 1, "signal": "", "words": "", "text": str(e)}
    return None


def of_tutti(how, guilty, number):
    with tempfile.TemporaryFile("w+") as out:
        subprocess.run([os.path.join(os.environ["TT_PROGRAMS"], "spawn_ends"), how, str(guilty), str(number)],
                       check=True, stdout=out, timeout=240)
        out.seek(0)
        said = out.read()
    if said == "none\n":
        return None
    index, code, signal, words, text = re.fullmatch(r"(\d+)\n(-?\d+)\n(\w*)\n(.*)\n(.*)\n", said).groups()
    return {"index": int(index), "code": int(code), "signal": signal, "words": words, "text": text}


class Ends(unittest.TestCase):
    def test_failures_agree(self):
        for how, function, guilty, number in CASES:
            with self.subTest(how=how, guilty=guilty, number=number):
                theirs, ours = of_torch(function, guilty, number), of_tutti(how, guilty, number)
                if theirs is None:
                    self.assertIsNone(ours)
                    continue
                self.assertIsNotNone(ours)
                for field in ("index", "code", "signal"):
                    self.assertEqual(ours[field], theirs[field])
                self.assertTrue(ours["words"].startswith(theirs["words"]), (ours["words"], theirs["words"]))
                for said in (theirs["text"], ours["text"]):
                    self.assertEqual("can't open /data" in said, how == "raise", said)


if __name__ == "__main__":
    unittest.main()
