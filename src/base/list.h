/* A doubly linked list whose nodes are embedded in what they link. Its head is a node, too; a node in no list is a list
 * of its own. */
#ifndef TT_BASE_LIST_H
#define TT_BASE_LIST_H

#include <stdbool.h>

typedef struct tt__list_node {
    struct tt__list_node *prev, *next;
} tt__list_node;

static inline void tt__list_init(tt__list_node *node) { node->prev = node->next = node; }

/* Is the list with this head empty, or this node in no list? */
static inline bool tt__list_empty(const tt__list_node *node) { return node->next == node; }

static inline void tt__list_append(tt__list_node *head, tt__list_node *node) {
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}

static inline void tt__list_remove(tt__list_node *node) {
    node->prev->next = node->next;
    node->next->prev = node->prev;
    tt__list_init(node);
}

#endif
