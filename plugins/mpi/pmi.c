/* PMI-1's three verbs, and which ranks share a host, on a tt_store. */
#include "pmi.h"

#include "plugin.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static struct {
    pthread_mutex_t lock; /* of `store`: the wire's thread uses it, too */
    tt_store *store;      /* NULL: not begun, or ended */
    int rank, size, barriers;
    uint32_t job;
    int *hosts; /* (size) */
} pmi = {.lock = PTHREAD_MUTEX_INITIALIZER};

int pmi_rank(void) { return pmi.rank; }
uint32_t pmi_job(void) { return pmi.job; }
int pmi_size(void) { return pmi.size; }
int pmi_host_of(int r) { return pmi.hosts[r]; }

static tt_status put(const char *key, const char *value) {
    char full[PMI_KEY_MAX + 16];
    snprintf(full, sizeof full, "pmi/%s", key);
    return mpi_host->store_set(pmi.store, full, value, strlen(value));
}

/* Wait for a key that will come. */
static tt_status await(const char *key, char *value, size_t size) {
    char full[PMI_KEY_MAX + 16];
    tt_store_value got;
    snprintf(full, sizeof full, "pmi/%s", key);
    tt_status status = mpi_host->store_get(pmi.store, full, &got);
    if (status)
        return status;
    if (got.size < size)
        memcpy(value, got.data, got.size + 1);
    else
        status = mpi_host->fail(TT_ERR_INVALID, "mpi: the value of \"%s\" has %zu bytes, MPI expects at most %zu", key,
                                got.size, size - 1);
    mpi_host->store_value_free(&got);
    return status;
}

static tt_status get(const char *key, char *value, size_t size) {
    char full[PMI_KEY_MAX + 16];
    bool there = false;
    snprintf(full, sizeof full, "pmi/%s", key);
    tt_status status = mpi_host->store_check(pmi.store, &(const char *){full}, 1, &there);
    if (status || !there)
        return status ? status : TT_ERR_NOT_FOUND;
    return await(key, value, size);
}

/* Wait until all are here; the last to arrive opens the barrier. */
static tt_status barrier(void) {
    char key[64], value[8];
    int64_t here = 0;
    snprintf(key, sizeof key, "pmi/barrier/%d", ++pmi.barriers);
    tt_status status = mpi_host->store_add(pmi.store, key, 1, &here);
    snprintf(key, sizeof key, "open/%d", pmi.barriers);
    if (!status && here == pmi.size)
        status = put(key, "1");
    return status ? status : await(key, value, sizeof value);
}

tt_status pmi_put(const char *key, const char *value) {
    pthread_mutex_lock(&pmi.lock);
    tt_status status = pmi.store ? put(key, value) : TT_OK;
    pthread_mutex_unlock(&pmi.lock);
    return status;
}

tt_status pmi_get(const char *key, char *value, size_t size) {
    pthread_mutex_lock(&pmi.lock);
    tt_status status = pmi.store ? get(key, value, size) : TT_ERR_NOT_FOUND;
    pthread_mutex_unlock(&pmi.lock);
    return status;
}

tt_status pmi_barrier(void) {
    pthread_mutex_lock(&pmi.lock);
    tt_status status = pmi.store ? barrier() : TT_OK;
    pthread_mutex_unlock(&pmi.lock);
    return status;
}

/* Write this host's id: the kernel's boot and the network name space, which its processes share; or TT_HOST_ID. */
static void own_host(char *text, size_t size) {
    const char *given = getenv("TT_HOST_ID");
    char boot[64] = "", net[64] = "";
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t n = read(fd, boot, sizeof boot - 1);
        boot[n > 0 ? strcspn(boot, "\n") : 0] = '\0';
        close(fd);
    }
    if (readlink("/proc/self/ns/net", net, sizeof net - 1) < 0)
        net[0] = '\0';
    snprintf(text, size, "%.80s/%s/%s", given ? given : "", given ? "" : boot, given ? "" : net);
}

static tt_status find_hosts(void) {
    char key[32], text[PMI_KEY_MAX];
    char(*names)[PMI_KEY_MAX] = calloc((size_t)pmi.size, sizeof *names);
    int hosts = 0;
    tt_status status = names ? TT_OK : mpi_host->fail(TT_ERR_MEMORY, "mpi: no memory for %d ranks", pmi.size);
    own_host(text, sizeof text);
    snprintf(key, sizeof key, "host/%d", pmi.rank);
    if (!status)
        status = put(key, text);
    for (int r = 0; !status && r < pmi.size; r++) {
        snprintf(key, sizeof key, "host/%d", r);
        status = await(key, text, sizeof text);
        int h = 0;
        while (h < hosts && strcmp(names[h], text) != 0)
            h++;
        if (h == hosts)
            memcpy(names[hosts++], text, sizeof text);
        pmi.hosts[r] = h;
    }
    free(names);
    return status;
}

/* Agree on the job's number, which rank 0 draws. Open MPI packs it as two numbers of 15 bits, neither of which is 0. */
static tt_status agree_on_job(void) {
    char text[16];
    uint32_t number = 0;
    if (pmi.rank == 0) {
        if (getrandom(&number, sizeof number, 0) != sizeof number)
            return mpi_host->fail(TT_ERR_SYSTEM, "mpi: the system gives no random numbers");
        snprintf(text, sizeof text, "%u", (number & 0x7fff7fff) | 0x10001);
        tt_status status = put("job", text);
        if (status)
            return status;
    }
    tt_status status = await("job", text, sizeof text);
    pmi.job = status ? 0 : (uint32_t)strtoul(text, NULL, 10);
    return status;
}

tt_status pmi_begin(const tt_backend_member *member) {
    pmi.rank = member->rank;
    pmi.size = member->world_size;
    pmi.hosts = calloc((size_t)pmi.size, sizeof *pmi.hosts);
    if (!pmi.hosts)
        return mpi_host->fail(TT_ERR_MEMORY, "mpi: no memory for %d ranks", pmi.size);
    pmi.store = member->store;
    tt_status status = find_hosts();
    if (!status)
        status = agree_on_job();
    if (!status)
        status = pmi_announce();
    if (status)
        pmi_end();
    return status;
}

void pmi_end(void) {
    pmi_unannounce();
    pthread_mutex_lock(&pmi.lock);
    pmi.store = NULL;
    pthread_mutex_unlock(&pmi.lock);
}
