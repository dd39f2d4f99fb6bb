/* A list of hosts as Slurm writes it, and its tasks for each node. Whatever the text is, each host is found or refused
 * without walking through those before it, names fit, and beyond the last there is nothing. */
#include "comm/rendezvous/launchers.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = malloc(size + 1), host[64];
    static const uint64_t at[] = {0, 1, 2, 1000, UINT32_MAX, UINT64_MAX};
    int before = 1;
    if (!text)
        return 0;
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        memset(host, 'x', sizeof host);
        int got = tt__slurm_host(text, at[i], host, sizeof host);
        if (got == 1 && (!memchr(host, '\0', sizeof host) || !*host))
            abort();
        if (before == 0 && got == 1)
            abort();
        before = got;
        if (tt__slurm_tasks(text, at[i]) < -1)
            abort();
    }
    free(text);
    return 0;
}
