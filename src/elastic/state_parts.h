/* What the state of an elastic job is made of, and copies of it. */
#ifndef TT_ELASTIC_STATE_PARTS_H
#define TT_ELASTIC_STATE_PARTS_H

#include "base/bytes.h"

#include <tutti/elastic.h>

typedef struct tt__elastic_part {
    char *name;
    tt_elastic_part_class cls;
    void *user;
} tt__elastic_part;

typedef struct tt__parts {
    tt__elastic_part *list;
    size_t count, capacity;
    size_t bound; /* of them stand on a group */
} tt__parts;

/* Append a part of this name, which is copied. Errors: TT_ERR_MEMORY. */
tt_status tt__parts_append(tt__parts *parts, const char *name, const tt_elastic_part_class *cls, void *user);

/* Write a copy of all parts to `out`, in place of what it held. */
tt_status tt__parts_save(const tt__parts *parts, tt__bytes *out);

/* Set all parts to what a copy says, which another rank may have made. TT_ERR_MISMATCH: of other parts. */
tt_status tt__parts_load(const tt__parts *parts, const tt__bytes *copy);

/* Bind all parts to the group; and let go of it, however far that came. */
tt_status tt__parts_bind(tt__parts *parts, tt_group *group);
void tt__parts_unbind(tt__parts *parts);

/* Destroy all. */
void tt__parts_free(tt__parts *parts);

#endif
