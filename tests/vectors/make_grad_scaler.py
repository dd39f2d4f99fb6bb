"""Write grad-scaler.json: the scales of a gradient scaler by PyTorch's rules (torch.cuda.amp.GradScaler and
_amp_update_scale_, which in PyTorch 1.13 need a GPU), in plain Python. Needs numpy."""
import json
import pathlib
import random

import numpy


def update(scale, tracker, found, growth, backoff, interval):
    """One update: f32 throughout; a scale that would become infinite stays."""
    if found:
        return numpy.float32(scale * numpy.float32(backoff)), 0
    tracker += 1
    if tracker < interval:
        return scale, tracker
    with numpy.errstate(over="ignore"):
        grown = numpy.float32(scale * numpy.float32(growth))
    return (grown if numpy.isfinite(grown) else scale), 0


def run(name, init, growth, backoff, interval, share, steps, seed):
    draw = random.Random(seed)
    found = [int(draw.random() < share) for _ in range(steps)]
    scale, tracker, scales, trackers = numpy.float32(init), 0, [], []
    for f in found:
        scale, tracker = update(scale, tracker, f, growth, backoff, interval)
        scales.append(float(scale))
        trackers.append(tracker)
    return {"name": name, "init_scale": init, "growth_factor": growth, "backoff_factor": backoff,
            "growth_interval": interval, "found": found, "scales": scales, "trackers": trackers}


RUNS = [run("defaults", 65536.0, 2.0, 0.5, 2000, 0.002, 5000, 1),
        run("short", 1024.0, 2.0, 0.5, 3, 0.2, 200, 2),
        run("odd factors", 1000.0, 1.3, 0.7, 2, 0.3, 200, 3),
        run("to the end of f32", 1e30, 10.0, 0.5, 1, 0.0, 20, 4),
        run("down", 4.0, 2.0, 0.5, 5, 0.9, 60, 5)]

if __name__ == "__main__":
    target = pathlib.Path(__file__).with_name("grad-scaler.json")
    target.write_text(json.dumps({"runs": RUNS}) + "\n")
