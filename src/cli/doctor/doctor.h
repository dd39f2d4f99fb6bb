/* What `tutti doctor` looks at. Each file of checks looks at one part of the machine and adds findings; doctor.c prints
 * them. */
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
    char fix[480]; /* what to do about it; "": nothing */
} tt__finding;

enum { TT__FINDINGS_MAX = 96 };

typedef struct tt__doctor {
    const char *root; /* stands before /proc, /sys and /dev; "" except in tests */
    const tt__environment *environment;
    tt__launched launched; /* .name NULL: none */
    int n;
    tt__finding findings[TT__FINDINGS_MAX]; /* (n); further ones are left out */
} tt__doctor;

/* Add a finding, without bytes that a terminal would act upon. */
void tt__doctor_add(tt__doctor *doctor, const char *check, tt__finding_level verdict, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Say what to do about the last finding. */
void tt__doctor_fix(tt__doctor *doctor, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Read what follows "NAME:" in a file of lines, without blanks; "" if there is no such line. */
void tt__doctor_read_line(const char *path, const char *name, char *value, size_t size);

/* Does the launcher tell of ranks on other hosts? */
bool tt__doctor_several_hosts(const tt__doctor *doctor);

/* ---- checks */

/* Which rank this process would be, and where ranks would meet; `endpoint` (may be NULL) is another place to try. */
void tt__doctor_place(tt__doctor *doctor, const char *endpoint);
/* This host's name, its interfaces, what is open between hosts. */
void tt__doctor_network(tt__doctor *doctor);
/* Limits of this process, how many ranks they leave room for on this host, cores, memory, clock. */
void tt__doctor_machine(tt__doctor *doctor);
/* Other hosts, as `tutti run` takes them by --ssh or --hostfile; one of the two is NULL. Errors: as
 * tt__hosts_from_list(). */
tt_status tt__doctor_hosts(tt__doctor *doctor, const char *list, const char *path);
/* GPUs and what they need, libraries that are loaded when they are first needed, plug-ins, Python. */
void tt__doctor_parts(tt__doctor *doctor);

#endif
