#!/usr/bin/env python3
"""timed.py LOG NAME COMMAND...: run a test and append its times to LOG, as ctest measures none but the whole.

A line of LOG: name, seconds by the clock, seconds of CPU that it and all that it waited for used, exit code.
Signals end the test with the runner's process group, so nothing is passed on.
"""
import os
import signal
import sys
import time


def main(log, name, *command):
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, not by who runs the test
            signal.signal(ignored, signal.SIG_DFL)
        try:
            os.execvp(command[0], command)
        except OSError as error:
            print(f"timed.py: {command[0]}: {error}", file=sys.stderr)
            os._exit(127)
    _, status, usage = os.wait4(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    line = f"{name}\t{time.monotonic() - began:.2f}\t{usage.ru_utime + usage.ru_stime:.2f}\t{code}\n"
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.write(descriptor, line.encode())
        os.close(descriptor)
    except OSError as error:  # of another user's build: the test's own verdict counts
        print(f"timed.py: {log}: {error}", file=sys.stderr)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
