"""tutti bench step: one JSON object, of the form that scripts expect; memory below 60 MB a rank."""
import json
import os
import subprocess
import sys

TUTTI = os.environ["TUTTI"]


def bench(*flags):
    return subprocess.run([TUTTI, "bench", "step", *flags], capture_output=True, text=True,
                          timeout=0.9 * float(os.environ["TT_TIMEOUT"]))


steps = "2" if "TT_SANITIZED" in os.environ else "20"
for world in (1, 2):
    done = bench("--model", "mlp", "--world", str(world), "--steps", steps)
    if done.returncode != 0 or len(done.stdout.splitlines()) != 1:
        sys.exit(f"FAILED: exit code {done.returncode}: {done.stdout}{done.stderr}")
    result = json.loads(done.stdout)
    if list(result) != ["bench", "model", "world", "ms_median", "ms_min", "rss_mb"]:
        sys.exit(f"FAILED: fields {list(result)}")
    if (result["bench"], result["model"], result["world"]) != ("step", "mlp", world):
        sys.exit(f"FAILED: {result}")
    if not 0 < result["ms_min"] <= result["ms_median"]:
        sys.exit(f"FAILED: times {result}")
    with open(TUTTI, "rb") as f:
        program = f.read()
    sanitized = b"__asan_init" in program or b"__tsan_init" in program  # whose memory is not ours
    if not sanitized and not 1 < result["rss_mb"] < 60:
        sys.exit(f"FAILED: expected less than 60 MB a rank: {result}")
if bench("--help").returncode != 0:
    sys.exit("FAILED: --help")
