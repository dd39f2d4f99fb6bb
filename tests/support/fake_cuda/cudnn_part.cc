/* libcudnn_graph.so.9, the part of cuDNN without which libcudnn.so.9 can't be used; in the fake it is empty. */
extern "C" int fake_cudnn_graph_part() { return 9; }
