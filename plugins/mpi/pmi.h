/* A process manager for an MPI that was not started by mpirun: its processes meet through the group's store.
 *
 * An MPI library asks its launcher for its rank and exchanges its addresses through it, by a protocol called PMI-1: put
 * a key, get a key, wait until all are here. Here these are calls on a tt_store (pmi.c). MPICH asks over a descriptor
 * that it finds in PMI_FD, which a thread of ours answers (pmi_wire.c). Open MPI 4 asks the library that
 * FLUX_PMI_LIBRARY_PATH names, which is this one (pmi_library.c). */
#ifndef TUTTI_PLUGINS_MPI_PMI_H
#define TUTTI_PLUGINS_MPI_PMI_H

#include <tutti/backend.h>

enum { PMI_NAME_MAX = 64, PMI_KEY_MAX = 256, PMI_VALUE_MAX = 4096 };

/* Serve this process while it starts MPI. Errors: the store's. */
tt_status pmi_begin(const tt_backend_member *member);

/* Release the store, as MPI is up. Later questions, of MPI_Finalize(), are answered without it. */
void pmi_end(void);

/* Set the environment variables by which the MPI library finds us; and remove them again, as they are not meant for
 * processes that this one starts. One of the two ways is compiled in. */
tt_status pmi_announce(void);
void pmi_unannounce(void);

/* Return a number that no other job has: Open MPI uses it in names that all jobs of a host share. */
uint32_t pmi_job(void);

int pmi_rank(void);
int pmi_size(void);
tt_status pmi_put(const char *key, const char *value);
tt_status pmi_get(const char *key, char *value, size_t size); /* TT_ERR_NOT_FOUND */
tt_status pmi_barrier(void);

/* Return the number of the host that rank r runs on, counted by first appearance. */
int pmi_host_of(int r);

#endif
