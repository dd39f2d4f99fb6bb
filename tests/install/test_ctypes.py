"""Python's ctypes uses both libraries: the functions that the macros stand over, with structs that end where the
caller's knowledge does."""
import ctypes
import os
import subprocess
import sys

LIBRARIES = os.path.join(os.environ["TT_BUILD"], "lib")
TT_F32, TT_F64 = 0, 1
TT_SUM = 0


class InitProcessGroup(ctypes.Structure):
    _fields_ = [("out", ctypes.c_void_p)]


class AllReduce(ctypes.Structure):
    _fields_ = [("group", ctypes.c_void_p), ("buf", ctypes.c_void_p), ("count", ctypes.c_int64),
                ("dtype", ctypes.c_int), ("op", ctypes.c_int)]


class Shape(ctypes.Structure):
    _fields_ = [("ndim", ctypes.c_int), ("dim", ctypes.c_int64 * 8)]


class Linear(ctypes.Structure):
    _fields_ = [("in_features", ctypes.c_int64), ("out_features", ctypes.c_int64)]


class Ddp(ctypes.Structure):
    _fields_ = [("module", ctypes.c_void_p), ("group", ctypes.c_void_p)]


class Backward(ctypes.Structure):
    _fields_ = [("y", ctypes.c_void_p)]


class Loss(ctypes.Structure):
    _fields_ = [("input", ctypes.c_void_p), ("target", ctypes.c_void_p)]


class Sgd(ctypes.Structure):
    _fields_ = [("params", ctypes.c_void_p), ("lr", ctypes.c_double)]


def declare(library, name, result, *arguments):
    function = getattr(library, name)
    function.restype, function.argtypes = result, arguments
    return function


def call(function, args):
    return function(ctypes.byref(args), ctypes.sizeof(args))


class Comm:
    def __init__(self):
        library = ctypes.CDLL(os.path.join(LIBRARIES, "libtutti-comm.so"))
        args = (ctypes.c_void_p, ctypes.c_size_t)
        self.init = declare(library, "tt_init_process_group_with", ctypes.c_int, *args)
        self.all_reduce = declare(library, "tt_all_reduce_with", ctypes.c_int, *args)
        self.rank = declare(library, "tt_get_rank", ctypes.c_int, ctypes.c_void_p)
        self.last_error = declare(library, "tt_last_error", ctypes.c_char_p)
        self.destroy = declare(library, "tt_destroy_process_group", None, ctypes.c_void_p)

    def check(self, status):
        assert status == 0, self.last_error().decode()


class Tensors:
    def __init__(self):
        library = ctypes.CDLL(os.path.join(LIBRARIES, "libtutti.so"))
        pointer, args = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_size_t)
        self.manual_seed = declare(library, "tt_manual_seed", None, ctypes.c_uint64)
        self.full = declare(library, "tt_full", pointer, Shape, ctypes.c_int, ctypes.c_double)
        self.linear = declare(library, "tt_nn_linear_with", pointer, *args)
        self.ddp = declare(library, "tt_ddp_with", pointer, *args)
        self.sgd = declare(library, "tt_sgd_with", pointer, *args)
        self.parameters = declare(library, "tt_module_parameters", pointer, pointer)
        self.forward = declare(library, "tt_module_forward", pointer, pointer, pointer)
        self.mse_loss = declare(library, "tt_mse_loss_with", pointer, *args)
        self.backward = declare(library, "tt_backward_with", ctypes.c_int, *args)
        self.item = declare(library, "tt_item", ctypes.c_int, pointer, pointer)
        self.step = declare(library, "tt_optimizer_step", ctypes.c_int, pointer)
        self.zero_grad = declare(library, "tt_optimizer_zero_grad", None, pointer)
        self.scope_begin = declare(library, "tt_scope_begin", ctypes.c_int)
        self.scope_end = declare(library, "tt_scope_end", None, ctypes.c_int)
        self.module_free = declare(library, "tt_module_free", None, pointer)
        self.optimizer_free = declare(library, "tt_optimizer_free", None, pointer)


def filled(tensors, rows, columns, value):
    return tensors.full(Shape(2, (ctypes.c_int64 * 8)(rows, columns)), TT_F32, value)


def train(comm, tensors, world):
    tensors.manual_seed(0)
    model = call(tensors.linear, Linear(3, 2))
    ddp = call(tensors.ddp, Ddp(model, world))
    assert ddp, comm.last_error().decode()
    sgd = call(tensors.sgd, Sgd(tensors.parameters(ddp), 0.1))
    assert sgd, comm.last_error().decode()
    losses, value, size = [], ctypes.c_double(), comm.rank(world) + 1
    for _ in range(20):
        scope = tensors.scope_begin()
        tensors.zero_grad(sgd)
        y = tensors.forward(ddp, filled(tensors, 8, 3, size))
        loss = call(tensors.mse_loss, Loss(y, filled(tensors, 8, 2, 2 * size)))
        comm.check(tensors.item(loss, ctypes.byref(value)))
        comm.check(call(tensors.backward, Backward(loss)))
        comm.check(tensors.step(sgd))
        losses.append(value.value)
        tensors.scope_end(scope)
    assert losses[-1] < losses[0] / 2, losses
    tensors.optimizer_free(sgd)
    tensors.module_free(ddp)
    tensors.module_free(model)


def rank_main():
    comm = Comm()
    world = ctypes.c_void_p()
    comm.check(call(comm.init, InitProcessGroup(ctypes.addressof(world))))
    x = (ctypes.c_double * 4)(*[comm.rank(world) + i for i in range(4)])
    comm.check(call(comm.all_reduce, AllReduce(world, ctypes.addressof(x), 4, TT_F64, TT_SUM)))
    assert list(x) == [1, 3, 5, 7], list(x)
    train(comm, Tensors(), world)
    comm.destroy(world)


def main():
    if "RANK" in os.environ:
        return rank_main()
    return subprocess.run([os.environ["TUTTI"], "run", "--standalone", "--nproc-per-node", "2", "--no-python",
                           sys.executable, __file__], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
