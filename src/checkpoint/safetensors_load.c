#include "base/args.h"
#include "base/error.h"
#include "checkpoint/safetensors.h"

tt_status tt_safetensors_load_with(const tt_safetensors_load_args *given, size_t size) {
    tt_safetensors_load_args args;
    TT__ARGS_COPY(args, given, size);
    if (!args.out || !args.path)
        return tt__fail(TT_ERR_INVALID, "tt_safetensors_load: `%s` is NULL", args.out ? "path" : "out");
    *args.out = NULL;
    return tt__safetensors_is_index(args.path) ? tt__safetensors_read_index(args.out, args.path, args.skip_unsupported)
                                               : tt__safetensors_read_file(args.out, args.path, args.skip_unsupported);
}
