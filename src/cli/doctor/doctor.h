/* What `tutti doctor` looks at. Each file of checks reads the machine and writes findings; doctor.c prints them. */
#ifndef TT_CLI_DOCTOR_H
#define TT_CLI_DOCTOR_H

#include "comm/rendezvous/rendezvous.h"
#include "launch/adapters/hosts.h"

#include <stdio.h>

typedef enum tt__finding_level { TT__FINE, TT__DOUBTFUL, TT__BAD } tt__finding_level;

typedef struct tt__finding {
    const char *check; /* what was looked at: "memory" */
    tt__finding_level verdict;
    char found[640];
    char fix[480]; /* what to do; "" where nothing is to be done */
} tt__finding;

enum { TT__FINDINGS_MAX = 96 };

typedef struct tt__doctor {
    const char *root; /* before /proc, /sys and /dev; "" except in tests */
    const tt__environment *environment;
    tt__launched launched; /* .name NULL: none */
    int n;
    tt__finding findings[TT__FINDINGS_MAX]; /* those beyond are left out */
} tt__doctor;

/* Add a finding. Bytes that a terminal would act upon are removed. */
void tt__doctor_add(tt__doctor *doctor, const char *check, tt__finding_level verdict, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Say what to do about the last one. */
void tt__doctor_fix(tt__doctor *doctor, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Are there ranks on other hosts, as far as the launcher tells? */
bool tt__doctor_several_hosts(const tt__doctor *doctor);

/* ---- checks */

/* Who this process would be, and where ranks would meet; `endpoint` (may be NULL) is another place to try. */
void tt__doctor_place(tt__doctor *doctor, const char *endpoint);
/* This host's name, its interfaces, what is open between hosts. */
void tt__doctor_network(tt__doctor *doctor);
void tt__doctor_limits(tt__doctor *doctor);
/* How many ranks the limits leave room for on this host, and whether they can hand each other their memory. */
void tt__doctor_ranks(tt__doctor *doctor);
/* Cores, memory, clock. */
void tt__doctor_machine(tt__doctor *doctor);
/* Returns whether programs are given a GPU here. */
bool tt__doctor_devices(tt__doctor *doctor);
/* The driver, libtutti-cuda.so and NVIDIA's libraries: what is there, and, if there are GPUs, what is missing. */
void tt__doctor_cuda(tt__doctor *doctor, bool gpus);
/* Other hosts, as `tutti run` takes them by --ssh or --hostfile; one of the two is NULL. Errors: as
 * tt__hosts_from_list(). */
tt_status tt__doctor_hosts(tt__doctor *doctor, const char *list, const char *path);
/* Libraries that are loaded when they are first needed, plug-ins, Python. */
void tt__doctor_parts(tt__doctor *doctor);

#endif
