// Where in the user's script a collective was called, for errors on this rank and on those that it differs from.
#pragma once

namespace tutti_torch {

struct CallSite {
    const char *file; // lives as long as the process
    int line;         // 0: `file` says in words what the call is part of
};

// The innermost frame of this thread's Python code that is neither PyTorch's nor ours. `otherwise`: the words where no
// Python has called, as in a backward pass.
CallSite call_site(const char *otherwise);

// Which folders' frames are passed over.
void pass_over(const char *folder);

} // namespace tutti_torch
