"""What the back end owes to Python: its log lines go to the logger "tutti", and how the process ends is told to the
other ranks and to the launcher."""
import atexit
import contextlib
import json
import logging
import os
import signal
import stat
import sys
import sysconfig
import time
import traceback

import torch

LEVELS = logging.DEBUG, logging.INFO, logging.WARNING  # by tt_log_level
LONGEST_WORDS = 230  # bytes of what other ranks are told
LONGEST_REPORT = 1 << 22  # bytes of an error file
logger = logging.getLogger("tutti")


def _log(level, line):
    logger.log(LEVELS[level], "%s", line)


def failure():
    """The exception that ends the program; None: there is none. Prompts go on after theirs."""
    return None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)


def _readable(text):
    """As what is made of a name that is no UTF-8, which Python can hold, can't be told to others."""
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\0")


def _shortened(text, size):
    """At most `size` bytes of UTF-8."""
    whole = text.encode()
    return text if len(whole) <= size else whole[:max(0, size - 3)].decode(errors="ignore") + "..."


def _message(error):
    """As a traceback's last line."""
    return _readable(" ".join(traceback.format_exception_only(type(error), error)[-1].split()))


def _words(error):
    """"ValueError: boom (train.py:12)", with the innermost line that is not an installed package's."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "-packages/" not in f.filename and not f.filename.startswith("<frozen")] or frames
    place = f" ({_shortened(_readable(os.path.basename(own[-1].filename)), 80)}:{own[-1].lineno})" if own else ""
    return _shortened(_message(error), LONGEST_WORDS - len(place.encode())) + place


def is_another_s(error):
    """Does the process end because another rank did?"""
    seen = []
    while error is not None and error not in seen:
        if "TT_ERR_PEER: " in str(error):
            return True
        seen.append(error)
        error = error.__cause__ or error.__context__
    return False


def _open_own(path):
    """Open a launcher's file, or make it; None: what is there is no file of this user's alone, but perhaps a link or
    a FIFO that another has put there."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC, 0o600)
    except OSError:
        return None
    found = os.fstat(file)
    if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and found.st_nlink == 1:
        return file
    os.close(file)
    return None


def _rewrite(file, text):
    """All of it, or, on a full disk, nothing."""
    os.posix_fallocate(file, 0, len(text))
    os.pwrite(file, text, 0)
    os.ftruncate(file, len(text))


def _recorded(text, error):
    """What @record has left of this error; None: the file is empty, or has something else in it, of a process that
    the rank started, perhaps."""
    with contextlib.suppress(ValueError, LookupError, TypeError):
        said = json.loads(text)
        if said["message"]["message"] == f"{type(error).__name__}: {error}":
            return said
    return None


def _tell_launcher(error):
    """Leave the exception where launchers look for it (TORCHELASTIC_ERROR_FILE), as PyTorch's @record does, and mark
    one that another rank has caused, so that it is not taken for the first failure."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if not path:
        return
    file = _open_own(path)
    if file is None:
        return
    try:
        said = _recorded(os.pread(file, LONGEST_REPORT, 0), error) or {"message": {
            "message": _message(error), "extraInfo": {
                "py_callstack": _readable("".join(traceback.format_exception(type(error), error, error.__traceback__))),
                "timestamp": str(int(time.time()))}}}
        if is_another_s(error):
            extra = said["message"]["extraInfo"]
            # torchrun takes the earliest as the cause, and time is in whole seconds
            extra.update(secondary=True, timestamp=str(int(extra.get("timestamp", time.time())) + 1))
        _rewrite(file, json.dumps(said).encode())
    finally:
        os.close(file)


@contextlib.contextmanager
def _ended_by_interrupts():
    """Meanwhile Ctrl-C ends the process at once, as it ends other programs: an exception would be a traceback of ours,
    in which nobody is interested. A handler of the program's own stays."""
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with contextlib.suppress(ValueError):  # not the main thread, as in a child that another thread forked
        if ours:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
    yield
    with contextlib.suppress(ValueError):
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _at_exit(module):
    if not module.has_joined():  # nor has a forked child of a rank, in which locks may be held
        return
    with _ended_by_interrupts():
        _leave(module)


def _leave(module):
    error, words = failure(), ""
    if error is not None:
        with contextlib.suppress(Exception):  # whatever the error's own __str__() raises: groups are left
            words = "" if isinstance(error, SystemExit) else _words(error)
        with contextlib.suppress(Exception):  # nor is it theirs what becomes of the file
            _tell_launcher(error)
    try:
        module.shutdown_all(words)
    finally:
        module.end_log()


def attach(module):
    """Begin. `module`: the one in C++."""
    module.log_to(_log)
    own = os.path.dirname(os.path.abspath(__file__))
    for folder in (os.path.dirname(torch.__file__), own, *map(sysconfig.get_path, ("stdlib", "platstdlib"))):
        module.pass_over(folder)
    atexit.register(_at_exit, module)
