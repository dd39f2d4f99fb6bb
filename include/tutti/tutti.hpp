/* tutti/tutti.hpp: the same library in C++17: the names of the C headers in namespace tutti, without their tt_.
 *
 * An object owns what it stands for and gives it back when it is destroyed; objects can be moved, not copied. What they
 * do is explained by the C functions of the same names; get() gives the C object for calls that have no wrapper here.
 *
 * A call that fails throws tutti::error, which has the status and the text of tt_last_error(). Destructors never throw.
 *
 * Options stand in a struct behind the required arguments: in C++20 sgd(params, 0.1, {.momentum = 0.9}), in C++17 a
 * struct that is filled before. Its fields have the names, meanings and defaults of the C struct's options.
 *
 * Buffers are typed: a std::vector, std::array or C array, or {pointer, count}. The element type follows from them, and
 * a tensor is no buffer: calls on tensors are overloads of the same names.
 *
 * Threads: as in C. */
#ifndef TUTTI_TUTTI_HPP
#define TUTTI_TUTTI_HPP

#include <tutti/cpp/amp.hpp>
#include <tutti/cpp/autograd.hpp>
#include <tutti/cpp/base.hpp>
#include <tutti/cpp/checkpoint.hpp>
#include <tutti/cpp/comm.hpp>
#include <tutti/cpp/comm_hooks.hpp>
#include <tutti/cpp/data.hpp>
#include <tutti/cpp/data_parallel.hpp>
#include <tutti/cpp/datasets.hpp>
#include <tutti/cpp/device.hpp>
#include <tutti/cpp/elastic.hpp>
#include <tutti/cpp/elastic_training.hpp>
#include <tutti/cpp/fully_shard.hpp>
#include <tutti/cpp/functional.hpp>
#include <tutti/cpp/graph.hpp>
#include <tutti/cpp/init.hpp>
#include <tutti/cpp/job.hpp>
#include <tutti/cpp/join.hpp>
#include <tutti/cpp/layers.hpp>
#include <tutti/cpp/loader.hpp>
#include <tutti/cpp/mesh.hpp>
#include <tutti/cpp/local_sgd.hpp>
#include <tutti/cpp/metrics.hpp>
#include <tutti/cpp/model_parallel.hpp>
#include <tutti/cpp/models.hpp>
#include <tutti/cpp/nn.hpp>
#include <tutti/cpp/optim.hpp>
#include <tutti/cpp/parallel.hpp>
#include <tutti/cpp/pipeline.hpp>
#include <tutti/cpp/reducer.hpp>
#include <tutti/cpp/rpc.hpp>
#include <tutti/cpp/rpc_training.hpp>
#include <tutti/cpp/samplers.hpp>
#include <tutti/cpp/spawn.hpp>
#include <tutti/cpp/store.hpp>
#include <tutti/cpp/sync_batch_norm.hpp>
#include <tutti/cpp/tensor.hpp>
#include <tutti/cpp/tensor_parallel.hpp>
#include <tutti/cpp/trainer.hpp>
#include <tutti/cpp/transforms.hpp>
#include <tutti/cpp/zero.hpp>
#include <tutti/tutti.h>

#endif
