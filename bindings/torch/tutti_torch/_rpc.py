"""The agent of torch.distributed.rpc: rpc.init_rpc(..., backend=rpc.BackendType.TUTTI)."""
import atexit
import datetime
import functools

import torch
import torch.distributed as dist

NAME = "TUTTI"
LONG = datetime.timedelta(minutes=30)  # of joining, as groups have it


def _options_class(rpc):
    """Return the class of rpc_backend_options for init_rpc(), which takes TensorPipe's, too."""

    class TuttiRpcBackendOptions(rpc.TensorPipeRpcBackendOptions):
        """num_worker_threads (16): functions that may run at once. rpc_timeout (60): in seconds, for calls that give
        none; 0: none. init_method ("env://"): as in init_process_group(). device_maps: only from CPU to CPU."""

    return TuttiRpcBackendOptions


def _expect_host_devices(options):
    """Refuse mappings of devices: only tensors of the CPU are sent."""
    places = [place for mapping in options.device_maps.values() for pair in mapping.items() for place in pair]
    strange = [str(place) for place in [*places, *options.devices] if torch.device(place).type != "cpu"]
    if strange:
        raise ValueError("rpc_backend_options: the RPC back end TUTTI sends tensors of the CPU alone, and device_maps "
                         f"or devices name {strange[0]}: leave them out, and send x.cpu()")


def _expect_one_kind(store, is_static):
    """Refuse a group of which some workers give a world_size and some don't. Key and text are TensorPipe's."""
    own = "true" if is_static else "false"
    found = store.compare_set("rpcIsStaticGroup", "", own).decode()
    if found != own:
        raise RuntimeError("RPC group mixes statically and dynamically initialized members which is not supported. "
                           f"Static group property is initialized as {found} and is trying to be set as {own}")


def _create(module, store, name, rank, world_size, rpc_backend_options, faults=None):
    """Make an agent that has joined the others, and make it PyTorch's current one."""
    options = rpc_backend_options
    from torch.distributed.rpc import api
    if not isinstance(store, dist.Store):
        raise TypeError(f"`store` must be a c10d::Store. {store}")
    if not all(hasattr(options, name) for name in ("num_worker_threads", "device_maps", "devices")):
        raise TypeError("`rpc_backend_options` must be a `TensorPipeRpcBackendOptions` or tutti_torch."
                        f"RpcBackendOptions. {options}")
    _expect_host_devices(options)
    if not options.rpc_timeout:  # init_rpc() has given it to the store, where 0 does not mean for ever
        store.set_timeout(LONG)
    _expect_one_kind(store, bool(world_size))
    how = (store, name, rank, world_size or 0, options.num_worker_threads, options.rpc_timeout)
    agent = module.create_rpc_agent(*how) if faults is None else module.create_faulty_rpc_agent(*how, *faults)
    api._init_rpc_states(agent)
    return agent


def _let_dynamic_workers_leave(api, module):
    """Keep shutdown() from waiting for all workers if they come and go: it waits for those that were there when this
    one joined, and not all of them are about to leave."""
    wait_for_all = api._wait_all_workers

    @functools.wraps(wait_for_all)
    def _wait_all_workers(*args, **how):
        agent = api._get_current_rpc_agent()
        if not isinstance(agent, module.RpcAgent) or agent.is_static_group:
            wait_for_all(*args, **how)

    api._wait_all_workers = _wait_all_workers


def _wait_within_tutti(api, module):
    """Let rpc_sync() wait in Tutti, and not in PyTorch's future: the same thread takes the response, and Tutti starts
    another one if this one serves other workers."""
    invoke = api._invoke_rpc

    @functools.wraps(invoke)
    def _invoke_rpc(to, func, rpc_type, *args, **how):
        if rpc_type is not api.RPCExecMode.SYNC or not isinstance(api._get_current_rpc_agent(), module.RpcAgent):
            return invoke(to, func, rpc_type, *args, **how)
        module.begin_rpc_call()
        try:
            return invoke(to, func, rpc_type, *args, **how)
        finally:
            module.finish_rpc_call()

    api._invoke_rpc = _invoke_rpc


def register(module):
    """Register the back end with torch.distributed.rpc. Returns the class of its options and the function that makes an
    agent; (None, None): this PyTorch has no RPC, or one that this can't be added to."""
    if torch.__version__.startswith("1.") or not hasattr(torch._C, "_rpc_init"):
        return None, None
    import torch.distributed.rpc as rpc
    if not hasattr(rpc, "TensorPipeRpcBackendOptions"):
        return None, None
    module.define_rpc()
    kind, create = _options_class(rpc), functools.partial(_create, module)
    if not rpc.backend_registry.backend_registered(NAME):
        rpc.backend_registry.register_backend(
            NAME, lambda rpc_timeout, init_method, **how: kind(rpc_timeout=rpc_timeout, init_method=init_method, **how),
            create)
        rpc.BackendType = rpc.backend_registry.BackendType  # a new one, and init_rpc() accepts members of it alone
        _let_dynamic_workers_leave(rpc.api, module)
        _wait_within_tutti(rpc.api, module)
        atexit.register(module.leave_rpc)
    return kind, create
