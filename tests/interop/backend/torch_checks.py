"""What programs of several ranks expect, counted, so that their tests see that something was checked."""
import torch.distributed as dist

count = 0


def expect(holds, what):
    global count
    count += 1
    if not holds:
        raise AssertionError(f"rank {dist.get_rank()}: {what}")


def refused(call, *parts, kind=RuntimeError):
    """The call raises an error of this kind, whose text has all the parts."""
    try:
        call()
    except kind as error:
        for part in parts:
            expect(part in str(error), f"{part!r} in {str(error)!r}")
        return
    raise AssertionError(f"rank {dist.get_rank()}: expected a {kind.__name__} with {parts}")
