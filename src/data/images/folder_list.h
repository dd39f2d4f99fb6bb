/* The pictures below a folder, by class, in torchvision's order. */
#ifndef TT_DATA_FOLDER_LIST_H
#define TT_DATA_FOLDER_LIST_H

#include <tutti/base.h>

/* Texts that grow one by one. Zeroed = none. */
typedef struct tt__texts {
    char **text;
    int64_t count, room;
} tt__texts;

typedef struct tt__folder_list {
    tt__texts classes, files; /* names; paths */
    int64_t *begins;          /* of each class: its first file; one more: the number of files */
} tt__folder_list;

/* List a folder. After success or failure tt__folder_list_free() must follow. `who` begins errors. */
tt_status tt__folder_list_make(tt__folder_list *list, const char *who, const char *dir);
void tt__folder_list_free(tt__folder_list *list);

#endif
