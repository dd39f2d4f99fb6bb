"""A PyTorch DDP job for test_run_torch.py: started by the launcher under test, once per rank.

  torch_ddp.py train FOLDER   a DistributedSampler loop, an all_gather, save and load
  torch_ddp.py fail           rank 1 raises
  torch_ddp.py fail-once FOLDER   as train, but in the first attempt rank 1 fails in the middle of it
"""

import os
import sys
import traceback

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Tens(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, i):
        return torch.tensor([float(10 * i)])


def train(folder):
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    model = DistributedDataParallel(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    sampler = DistributedSampler(Tens(), shuffle=True, seed=0)
    loader = DataLoader(Tens(), batch_size=4, sampler=sampler)
    seen = []
    for epoch in range(2):
        sampler.set_epoch(epoch)
        for batch in loader:
            optimizer.zero_grad()
            model(batch).sub(1).square().mean().backward()
            optimizer.step()
            gathered = [torch.zeros_like(batch) for _ in range(world)]
            dist.all_gather(gathered, batch)
            seen.append([int(x) for part in gathered for x in part])
    path = os.path.join(folder, "model.pt")
    if rank == 0:
        torch.save(model.state_dict(), path)
    dist.barrier()
    loaded = torch.load(path)
    for name, value in model.state_dict().items():
        assert torch.equal(value, loaded[name]), name
    print(f"rank {rank} of {world} saw {seen}", flush=True)


def fail():
    """As an exception that nobody catches, but over at once: while Python ends, rank 0 could be faster."""
    try:
        raise ValueError("rank one has had enough")
    except ValueError:
        traceback.print_exc()
        os._exit(1)


def main():
    dist.init_process_group("gloo")
    if sys.argv[1] == "fail":
        if dist.get_rank() == 1:
            fail()
        dist.barrier()
    elif sys.argv[1] == "fail-once" and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        train(sys.argv[2])
        if dist.get_rank() == 1:
            fail()
        dist.barrier()
    else:
        train(sys.argv[2])
    dist.destroy_process_group()


main()
