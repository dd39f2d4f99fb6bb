// Where in the user's script a collective was called, for errors on this rank and on those that it differs from.
#pragma once

namespace tutti_torch {

struct CallSite {
    const char *file; // lives as long as the process
    int line;         // 0: `file` says in words what the call is part of
};

// The innermost frame of this thread's Python code that is the user's: neither of PyTorch, nor ours, nor of Python's
// own library, and rather the script's than an installed package's. A backward pass on CPU runs in the thread that
// asked for it, so that what DDP sends is said to come from the line of backward(). `otherwise`: the words where no
// Python has called, as in a thread of PyTorch's.
CallSite call_site(const char *otherwise);

// Which folders' frames are never the user's.
void pass_over(const char *folder);

} // namespace tutti_torch
