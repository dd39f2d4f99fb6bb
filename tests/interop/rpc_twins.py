"""The examples examples/rpc_*.c in PyTorch: rpc_twins.py EXAMPLE, on three ranks, prints the example's lines.
TT_RPC_BACKEND is the name of a back end, TT_TWIN_DATA a folder with digits and a text."""
import math
import os
import struct
import sys
import threading

import one_job
import torch
import torch.distributed as dist
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
import torch.nn.functional as F
from torch import nn, optim
from torch.distributed.nn import RemoteModule
from torch.distributed.optim import DistributedOptimizer
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

EXAMPLE = one_job.function(sys.argv[1])
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
BATCHES, LOCK = 8, threading.Lock()
FOLDER, BACKEND = os.environ["TT_TWIN_DATA"], os.environ["TT_RPC_BACKEND"]
MEET = f"file://{FOLDER}/{EXAMPLE}.{BACKEND}"  # cases of one job share the launcher's store


def join(first, others):
    rpc.init_rpc(f"{others}{RANK}" if RANK else first, rank=RANK, world_size=WORLD,
                 backend=getattr(rpc.BackendType, BACKEND),
                 rpc_backend_options=rpc.TensorPipeRpcBackendOptions(init_method=MEET))


def read_idx(path, kind):
    with open(path, "rb") as file:
        data = file.read()
    dims = struct.unpack_from(f">{data[3]}I", data, 4)
    return torch.frombuffer(bytearray(data[4 + 4 * len(dims):]), dtype=torch.uint8).to(kind).reshape(dims)


def batches_of(size, trainers=1, trainer=0):
    x = read_idx(f"{FOLDER}/digits/train-images-idx3-ubyte", torch.float32)
    y = read_idx(f"{FOLDER}/digits/train-labels-idx1-ubyte", torch.int64)
    digits = TensorDataset(x.div(255).sub(0.1307).div(0.3081).unsqueeze(1), y)
    sampler = DistributedSampler(digits, trainers, trainer)
    return [batch for batch, _ in zip(DataLoader(digits, size, sampler=sampler, drop_last=True), range(BATCHES))]


def make_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))


# ---- parameter_server

def forward(x):
    with LOCK:
        return forward.net(x)


def parameters():
    return [rpc.RRef(p) for p in forward.net.parameters()]


def parameter_server():
    dist.init_process_group("gloo", init_method=f"{MEET}.group", rank=RANK, world_size=WORLD)
    trainers = dist.new_group(list(range(1, WORLD)))
    forward.net = make_net()
    join("ps", "trainer")
    if RANK > 0:
        sgd = DistributedOptimizer(optim.SGD, rpc.rpc_sync("ps", parameters), lr=0.03)
        for i, (x, y) in enumerate(batches_of(32, WORLD - 1, RANK - 1)):
            with dist_autograd.context() as context:
                loss = F.cross_entropy(rpc.rpc_sync("ps", forward, args=(x,)), y)
                dist_autograd.backward(context, [loss])
                dist.barrier(trainers)
                sgd.step(context)
                dist.barrier(trainers)
            print(f"trainer{RANK}, batch {i}: loss {loss.item():.6f}")
    rpc.shutdown()


# ---- batch_server

class BatchServer:
    def __init__(self, trainers):
        self.lock, self.net, self.trainers, self.came = threading.Lock(), make_net(), trainers, 0
        self.sgd = optim.SGD(self.net.parameters(), lr=0.05, momentum=0.9)
        self.updated = torch.futures.Future()
        self.sgd.zero_grad()

    @staticmethod
    @rpc.functions.async_execution
    def update(server, gradients):
        self = server.local_value()
        with self.lock:
            updated = self.updated
            for p, g in zip(self.net.parameters(), gradients):
                share = g * (1 / self.trainers)
                p.grad = share if p.grad is None else p.grad + share
            self.came += 1
            if self.came == self.trainers:
                self.sgd.step()
                self.sgd.zero_grad()
                self.came, self.updated = 0, torch.futures.Future()
                updated.set_result([p.detach() for p in self.net.parameters()])
        return updated


def train(server):
    net = make_net()
    for i, (x, y) in enumerate(batches_of(32, WORLD - 1, RANK - 1)):
        loss = F.cross_entropy(net(x), y)
        gradients = torch.autograd.grad(loss, list(net.parameters()))
        updated = rpc.rpc_sync(server.owner(), BatchServer.update, args=(server, list(gradients)))
        with torch.no_grad():
            for p, new in zip(net.parameters(), updated):
                p.copy_(new)
        print(f"trainer{RANK}, batch {i}: loss {loss.item():.6f}")


def batch_server():
    join("ps", "trainer")
    if RANK == 0:
        server = rpc.RRef(BatchServer(WORLD - 1))
        torch.futures.wait_all([rpc.rpc_async(f"trainer{t}", train, args=(server,)) for t in range(1, WORLD)])
    rpc.shutdown()


# ---- reinforce

SEED, STEPS, EPISODES, GAMMA = 543, 200, 6, 0.99


class CartPole:
    def __init__(self, random):
        self.state = [float(x) * 0.1 - 0.05 for x in torch.rand(4, generator=random)]

    def push(self, right):
        position, speed, angle, turning = self.state
        mass, moment, force = 1.0 + 0.1, 0.1 * 0.5, 10.0 if right else -10.0
        cosine, sine = math.cos(angle), math.sin(angle)
        push = (force + moment * turning * turning * sine) / mass
        turn = (9.8 * sine - cosine * push) / (0.5 * (4.0 / 3.0 - 0.1 * cosine * cosine / mass))
        acceleration = push - moment * turn * cosine / mass
        self.state = [position + 0.02 * speed, speed + 0.02 * acceleration, angle + 0.02 * turning,
                      turning + 0.02 * turn]

    def lost(self):
        return abs(self.state[0]) > 2.4 or abs(self.state[2]) > 12 * 2 * math.pi / 360


class Agent:
    def __init__(self, observers):
        torch.manual_seed(SEED)
        self.policy = nn.Sequential(nn.Linear(4, 128), nn.ReLU(), nn.Linear(128, 2))
        self.adam = optim.Adam(self.policy.parameters(), lr=0.01)
        self.actions = [torch.Generator().manual_seed(SEED + i + 1) for i in range(observers)]
        self.begin()

    def begin(self):
        self.games = [([], [], []) for _ in self.actions]

    def select_action(self, observer, state):
        with torch.no_grad():
            likely = F.softmax(self.policy(state), dim=0)
        right = bool(torch.rand(1, generator=self.actions[observer]) >= likely[0])
        self.games[observer][0].append(state)
        self.games[observer][1].append(int(right))
        return right

    def report_reward(self, observer, reward):
        self.games[observer][2].append(reward)

    def finish_episode(self):
        returns = []
        for _, _, rewards in self.games:
            from_here, won = 0.0, []
            for reward in reversed(rewards):
                from_here = reward + GAMMA * from_here
                won.insert(0, from_here)
            returns += won
        returns = torch.tensor(returns)
        returns = (returns - returns.mean()) / (returns.std() + torch.finfo(torch.float32).eps)
        states = torch.stack([state for game in self.games for state in game[0]])
        chosen = torch.tensor([action for game in self.games for action in game[1]])
        loss = (F.cross_entropy(self.policy(states), chosen, reduction="none") * returns).mean()
        self.adam.zero_grad()
        loss.backward()
        self.adam.step()
        return sum(sum(game[2]) for game in self.games) / len(self.games), loss.item()


def run_episode(agent, steps):
    cart = CartPole(run_episode.starts)
    for _ in range(steps):
        right = agent.rpc_sync().select_action(RANK - 1, torch.tensor(cart.state, dtype=torch.float32))
        cart.push(right)
        agent.rpc_sync().report_reward(RANK - 1, 1.0)
        if cart.lost():
            break


def reinforce():
    run_episode.starts = torch.Generator().manual_seed(SEED + 1000 + RANK)
    join("agent", "observer")
    if RANK == 0:
        agent = Agent(WORLD - 1)
        self = rpc.RRef(agent)
        for episode in range(EPISODES):
            torch.futures.wait_all([rpc.rpc_async(f"observer{i}", run_episode, args=(self, STEPS))
                                    for i in range(1, WORLD)])
            won, loss = agent.finish_episode()
            agent.begin()
            print(f"episode {episode}: mean reward {won:.2f}, loss {loss:.6f}")
    rpc.shutdown()


# ---- pipeline

class Shard(nn.Module):
    def __init__(self, half):
        super().__init__()
        torch.manual_seed(half)
        self.net = (nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2)) if half == 0 else
                    nn.Sequential(nn.Conv2d(8, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 10)))

    def forward(self, x):
        x = x.to_here() if isinstance(x, rpc.PyRRef) else x
        with LOCK:
            return self.net(x)

    def rrefs(self):
        return [rpc.RRef(p) for p in self.parameters()]


def pipeline():
    join("master", "worker")
    if RANK == 0:
        first, second = (rpc.remote(f"worker{half + 1}", Shard, args=(half,)) for half in range(2))
        sgd = DistributedOptimizer(optim.SGD, first.rpc_sync().rrefs() + second.rpc_sync().rrefs(), lr=0.1)
        for i, (x, y) in enumerate(batches_of(64)):
            with dist_autograd.context() as context:
                out = [second.rpc_async().forward(first.remote().forward(part)) for part in x.split(16)]
                loss = F.cross_entropy(torch.cat(torch.futures.wait_all(out)), y)
                dist_autograd.backward(context, [loss])
                sgd.step(context)
            print(f"batch {i}: loss {loss.item():.6f}")
    rpc.shutdown()


# ---- rnn

class Table(nn.Embedding):
    def __init__(self, characters):
        torch.manual_seed(1111)
        super().__init__(characters, 32)
        nn.init.uniform_(self.weight, -0.1, 0.1)


class Decoder(nn.Linear):
    def __init__(self, characters, hidden):
        torch.manual_seed(1112)
        super().__init__(hidden, characters)
        nn.init.uniform_(self.weight, -0.1, 0.1)
        nn.init.zeros_(self.bias)


def train_rnn():
    with open(f"{FOLDER}/text", encoding="ascii") as file:
        text = file.read()
    numbers = {c: i for i, c in enumerate(sorted(set(text)))}
    length = len(text) // 10
    columns = torch.tensor([numbers[c] for c in text[:10 * length]]).reshape(10, length).t()
    table = RemoteModule("ps", Table, args=(len(numbers),))
    params = table.remote_parameters()  # it is there: the two draw from one generator
    decoder = RemoteModule("ps", Decoder, args=(len(numbers), 64))
    params += decoder.remote_parameters()
    torch.manual_seed(1113)
    lstm = nn.LSTM(32, 64, 2)
    state = torch.zeros(2, 10, 64), torch.zeros(2, 10, 64)
    sgd = DistributedOptimizer(optim.SGD, params + [rpc.RRef(p) for p in lstm.parameters()], lr=2)
    for i in range(BATCHES):
        x, y = columns[20 * i:20 * i + 20], columns[20 * i + 1:20 * i + 21]
        with dist_autograd.context() as context:
            output, state = lstm(table(x.contiguous()), state)
            loss = F.cross_entropy(decoder(output).reshape(-1, len(numbers)), y.reshape(-1))
            dist_autograd.backward(context, [loss])
            sgd.step(context)
        state = tuple(s.detach() for s in state)
        print(f"batch {i}: loss {loss.item():.6f}")


def rnn():
    join("ps", "trainer")  # the second trainer has nothing to do
    if RANK == 1:
        train_rnn()
    rpc.shutdown()


if __name__ == "__main__":
    torch.set_num_threads(1)
    if BACKEND == "TUTTI":
        import tutti_torch  # noqa: F401: makes itself known
    {f.__name__: f for f in (parameter_server, batch_server, reinforce, rnn, pipeline)}[EXAMPLE]()
    sys.stdout.flush()
    os._exit(0)  # ending in order, gloo's threads now and then abort the current version's process
