"""Python programs that begin with what the test has imported already: PyTorch takes a new process a second."""
import os
import runpy
import signal
import subprocess
import sys
import traceback


def popen(argv, env, **more):
    """subprocess.Popen([sys.executable, *argv], env=env, **more), of which argv is [script, ...]."""
    return subprocess.Popen([sys.executable, *map(str, argv)], preexec_fn=lambda: _become(argv, env), **more)


def _become(argv, env):
    """Never comes back, so that nothing is executed."""
    code = 1
    try:
        os.closerange(3, 1 << 16)  # what makes Popen() come back, too
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as a Python that begins
        os.environ.clear()
        os.environ.update(env)
        sys.path[:0] = [path for path in env.get("PYTHONPATH", "").split(":") if path]
        sys.argv = list(map(str, argv))
        sys.path.insert(0, os.path.dirname(sys.argv[0]))
        runpy.run_path(sys.argv[0], run_name="__main__")
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
