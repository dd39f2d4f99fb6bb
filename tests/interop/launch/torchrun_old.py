"""torchrun of PyTorch 1.13, whose --redirects=0 is nothing in Python 3.11: an enumeration there has no member 0 when it
is walked through."""

from torch.distributed.elastic.multiprocessing import api

found = api.Std.from_str
api.Std.from_str = classmethod(lambda cls, text: found(text) or api.Std.NONE)

if __name__ == "__main__":
    from torch.distributed.run import main
    main()
