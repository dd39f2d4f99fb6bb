/* Workers that come and go: not there yet. */
#include "base/error.h"
#include "rpc/network.h"

tt_status tt__rpc_network_of_store(tt__rpc_network **out, const tt_rpc_init_args *args) {
    (void)args;
    *out = NULL;
    return tt__fail(TT_ERR_UNSUPPORTED, "tt_rpc_init: .store is not supported yet");
}
