/* A worker that fails in the library and reports it, for test_run_logs_torch.py. */
#include <tutti/store.h>

int main(void) {
    tt_store *store = NULL;
    if (!tt_tcp_store(&store, "127.0.0.1", -1)) /* no port has this number */
        return 0;
    tt_report();
    return 3;
}
