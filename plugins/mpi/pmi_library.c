/* PMI-1 as a library. If FLUX_JOB_ID is set, Open MPI 4 loads the library that FLUX_PMI_LIBRARY_PATH names, and calls
 * its functions. So this shared object names itself there. */
#include "pmi.h"

#include "plugin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

enum { PMI_SUCCESS = 0, PMI_FAIL = -1 };

/* The functions that Open MPI looks up by name. */
TT_API int PMI_Init(int *spawned);
TT_API int PMI_Initialized(int *initialized);
TT_API int PMI_Finalize(void);
TT_API int PMI_Get_size(int *size);
TT_API int PMI_Get_rank(int *rank);
TT_API int PMI_Get_universe_size(int *size);
TT_API int PMI_Get_appnum(int *appnum);
TT_API int PMI_Barrier(void);
TT_API int PMI_Abort(int code, const char *text);
TT_API int PMI_KVS_Get_my_name(char *name, int size);
TT_API int PMI_KVS_Get_name_length_max(int *length);
TT_API int PMI_KVS_Get_key_length_max(int *length);
TT_API int PMI_KVS_Get_value_length_max(int *length);
TT_API int PMI_KVS_Put(const char *name, const char *key, const char *value);
TT_API int PMI_KVS_Commit(const char *name);
TT_API int PMI_KVS_Get(const char *name, const char *key, char *value, int size);
TT_API int PMI_Get_clique_size(int *size);
TT_API int PMI_Get_clique_ranks(int *ranks, int size);

static int answer(int *out, int value) {
    *out = value;
    return PMI_SUCCESS;
}

int PMI_Init(int *spawned) { return answer(spawned, 0); }
int PMI_Initialized(int *initialized) { return answer(initialized, 0); }
int PMI_Finalize(void) { return PMI_SUCCESS; }
int PMI_Get_size(int *size) { return answer(size, pmi_size()); }
int PMI_Get_rank(int *rank) { return answer(rank, pmi_rank()); }
int PMI_Get_universe_size(int *size) { return answer(size, pmi_size()); }
int PMI_Get_appnum(int *appnum) { return answer(appnum, 0); }
int PMI_Barrier(void) { return pmi_barrier() ? PMI_FAIL : PMI_SUCCESS; }

/* MPI calls exit() itself afterwards. */
int PMI_Abort(int code, const char *text) {
    (void)code;
    mpi_host->log(TT_LOG_WARNING, "MPI aborts: %s", text ? text : "");
    return PMI_SUCCESS;
}

int PMI_KVS_Get_my_name(char *name, int size) {
    return snprintf(name, (size_t)size, "tutti") < size ? PMI_SUCCESS : PMI_FAIL;
}

int PMI_KVS_Get_name_length_max(int *length) { return answer(length, PMI_NAME_MAX); }
int PMI_KVS_Get_key_length_max(int *length) { return answer(length, PMI_KEY_MAX); }
int PMI_KVS_Get_value_length_max(int *length) { return answer(length, PMI_VALUE_MAX); }

int PMI_KVS_Put(const char *name, const char *key, const char *value) {
    (void)name;
    return pmi_put(key, value) ? PMI_FAIL : PMI_SUCCESS;
}

int PMI_KVS_Commit(const char *name) {
    (void)name;
    return PMI_SUCCESS;
}

int PMI_KVS_Get(const char *name, const char *key, char *value, int size) {
    (void)name;
    return pmi_get(key, value, (size_t)size) ? PMI_FAIL : PMI_SUCCESS;
}

/* The clique: the ranks of this host. */
int PMI_Get_clique_size(int *size) {
    *size = 0;
    for (int r = 0; r < pmi_size(); r++)
        *size += pmi_host_of(r) == pmi_host_of(pmi_rank());
    return PMI_SUCCESS;
}

int PMI_Get_clique_ranks(int *ranks, int size) {
    int n = 0;
    for (int r = 0; r < pmi_size() && n < size; r++)
        if (pmi_host_of(r) == pmi_host_of(pmi_rank()))
            ranks[n++] = r;
    return PMI_SUCCESS;
}

tt_status pmi_announce(void) {
    Dl_info self;
    char job[16];
    if (!dladdr((void *)(uintptr_t)pmi_announce, &self) || !self.dli_fname)
        return mpi_host->fail(TT_ERR_SYSTEM, "mpi: can't find out where this back end was loaded from");
    snprintf(job, sizeof job, "%u", pmi_job());
    /* Choose the component that asks us: the default one for processes without a launcher would take precedence. */
    setenv("FLUX_JOB_ID", job, 1);
    setenv("FLUX_PMI_LIBRARY_PATH", self.dli_fname, 1);
    setenv("OMPI_MCA_pmix", "flux", 1);
    return TT_OK;
}

void pmi_unannounce(void) {
    unsetenv("FLUX_JOB_ID");
    unsetenv("FLUX_PMI_LIBRARY_PATH");
    unsetenv("OMPI_MCA_pmix");
}
