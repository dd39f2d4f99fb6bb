/* Texts with names to fill in, as Python's string.Template.safe_substitute() reads them: "${name}", "$name", "$$". */
#ifndef TT_LAUNCH_LOCAL_TEMPLATE_H
#define TT_LAUNCH_LOCAL_TEMPLATE_H

typedef struct tt__filling {
    const char *name, *value;
} tt__filling;

/* Fill in the names that `fillings` has (the last one's name is NULL); others stay as they are. Allocated; NULL: no
 * memory. */
char *tt__template_fill(const char *text, const tt__filling *fillings);

#endif
