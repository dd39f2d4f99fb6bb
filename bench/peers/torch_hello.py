"""Peer: the smallest distributed job: join, one all_reduce, leave. Run: launch.py 2 /usr/bin/python3 torch_hello.py"""
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
dist.destroy_process_group()
