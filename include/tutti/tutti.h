/* tutti/tutti.h: all headers. Programs that only exchange buffers include comm.h (and reducer.h) and link
 * libtutti-comm. */
#ifndef TUTTI_TUTTI_H
#define TUTTI_TUTTI_H

#include <tutti/amp.h>
#include <tutti/autograd.h>
#include <tutti/base.h>
#include <tutti/checkpoint.h>
#include <tutti/comm.h>
#include <tutti/comm_hooks.h>
#include <tutti/data.h>
#include <tutti/data_parallel.h>
#include <tutti/datasets.h>
#include <tutti/device.h>
#include <tutti/elastic.h>
#include <tutti/elastic_training.h>
#include <tutti/fully_shard.h>
#include <tutti/functional.h>
#include <tutti/graph.h>
#include <tutti/init.h>
#include <tutti/job.h>
#include <tutti/join.h>
#include <tutti/layers.h>
#include <tutti/loader.h>
#include <tutti/local_sgd.h>
#include <tutti/mesh.h>
#include <tutti/metrics.h>
#include <tutti/model_parallel.h>
#include <tutti/models.h>
#include <tutti/nn.h>
#include <tutti/optim.h>
#include <tutti/parallel.h>
#include <tutti/pipeline.h>
#include <tutti/reducer.h>
#include <tutti/rpc.h>
#include <tutti/rpc_training.h>
#include <tutti/samplers.h>
#include <tutti/spawn.h>
#include <tutti/store.h>
#include <tutti/sync_batch_norm.h>
#include <tutti/tensor.h>
#include <tutti/tensor_parallel.h>
#include <tutti/trainer.h>
#include <tutti/transforms.h>
#include <tutti/zero.h>

#endif
