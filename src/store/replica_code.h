/* libraft's messages as bytes. Addresses are not written: they follow from member and id. */
#ifndef TT_STORE_REPLICA_CODE_H
#define TT_STORE_REPLICA_CODE_H

#include "store/replica_load.h"
#include "store/replica_words.h"

enum { TT__REPLICA_ADDRESS_SIZE = 32 };

/* Write the address by which libraft knows a replica, "MEMBER/ID", which no two have; and find its member: -1, it is
 * none. */
void tt__replica_address(int member, uint64_t id, char address[TT__REPLICA_ADDRESS_SIZE]);
int tt__replica_member_of(const char *address);

/* Append a message. Of entries so many are written as fit: the others are sent again. */
void tt__replica_put_message(tt__bytes *out, const struct raft_message *message);

/* Read one, but for the sender's id and address. What it holds is libraft's to free. False: it is none, or memory is
 * out. */
bool tt__replica_take_message(const tt__raft *raft, tt__span bytes, struct raft_message *message);

/* Free what a message holds that libraft did not get. */
void tt__replica_free_message(const tt__raft *raft, struct raft_message *message);

#endif
