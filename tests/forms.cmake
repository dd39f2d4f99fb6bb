# What the forms of ./dev test run: docs/testing.md says what each test has found, and why it is in which form.

# Left to the gate (--gate): they run beside PyTorch, or take five seconds of CPU time or more while others of
# their kind stay.
set(TT_ONLY_GATE "^((interop|parity)/|conformance/cuda-|fault/test_(chaos|elastic|storm_(restarts|torch|training))$\
|fault/test_rpc_storm$\
|dist/test_(bench_step|example_(ddp_hooks|resnet_cifar)|examples_device|sparse_settings|top|virtual_ranks)$\
|install/test_(cpp|examples|headers|null_calls)$|security/test_half_hellos$|slips/test_slips$|docs/test_cpp$\
|(dist|unit)/test_(cuda_.*|models|nccl.*)$|fault/test_nccl_peers$)")

# Left to the long form (--long) altogether. interop/test_rpc_examples_torch was late once in eight runs on a busy
# machine. 160 cases on TensorPipe and 90 on Tutti beside a load found no wait without end; it is not known whether the
# machine or a wait was the cause.
set(TT_ONLY_LONG install/test_torch_wheel interop/test_rpc_examples_torch
                 interop/test_fully_shard_torch interop/test_hooks_torch
                 interop/test_local_sgd_torch interop/test_sparse_torch interop/test_torch_backend_training
                 sim/test_plants)
if(TT_SANITIZE)
  # Waits that are left out on purpose are races; NVIDIA's own library is no code of ours.
  list(APPEND TT_ONLY_LONG dist/test_cuda_mutants unit/test_cuda_dnn_planner)
endif()
if(TT_SANITIZE MATCHES "thread")
  # Arithmetic of one thread. Kernels of a family run in the one thread of a device, as those of unit/test_cuda do.
  list(APPEND TT_ONLY_LONG unit/test_conv_pieces unit/test_models unit/test_spread_products)
  foreach(family amp attention conv dnn dnn_attention dnn_attention_plans dnn_plans fail index losses mixed models norm
                 oom optim order reduction rnn)
    list(APPEND TT_ONLY_LONG unit/test_cuda_${family})
  endforeach()
endif()

function(tt_long_forms)
  set(hours 14400)
  foreach(test storm_kills storm_limits storm_mismatch storm_first_cause storm_restarts storm_training pipeline_faults
               parallel_peers zero_peers storm_signals)
    tt_long(fault/test_${test} ${hours} TT_STORM_CASES=500)
  endforeach()
  # Every world, compiler and header (tests/support/long_form.py), where few gate a change.
  set(pages checkpoints cpp data datasets elastic mixed_precision models modules operators optimizers parallel
            reproducibility spawn trainer)
  list(TRANSFORM pages PREPEND docs/test_)
  foreach(test ${pages} conformance/cuda-native conformance/cuda-nccl conformance/gloo conformance/mpi-mpich
               conformance/mpi-openmpi dist/test_example_ddp_hooks
               install/test_cpp install/test_headers interop/test_ddp_features_torch
               interop/test_sync_bn_torch interop/test_torch_backend interop/test_torch_backend_results
               interop/test_torch_backend_symmetric interop/test_zero_torch parity/test_parity_cuda
               security/test_half_hellos unit/test_cuda_models unit/test_models)
    tt_long(${test} ${hours} TT_LONG=1)
  endforeach()
  foreach(test elastic storm_torch storm_torch_current)
    tt_long(fault/test_${test} ${hours} TT_STORM_CASES=300)
  endforeach()
  tt_long(fault/test_comm_injected ${hours} TT_STORM_CASES=1) # every call fails once
  tt_long(fault/test_socket_fuzz ${hours} TT_STORM_SECONDS=450)
  tt_long(fault/test_chaos ${hours} TT_CHAOS_FAULTS=100)
  tt_long(fault/test_run_ranks ${hours} TT_STORM_SECONDS=7200)
  tt_long(fault/test_rpc_storm ${hours} TT_STORM_CASES=1000)
  tt_long(dist/test_rpc_autograd ${hours} TT_RPC_GRAPHS=1000)
  tt_long(parity/test_parity_half ${hours} TT_SPECIAL_CASES=2000)
  tt_long(sim/test_simulation ${hours} TT_SIM_SEEDS=10000)
endfunction()
