/* Texts of etcd's gateway: JSON in which keys and values are base64. */
#ifndef TT_STORE_ETCD_TEXT_H
#define TT_STORE_ETCD_TEXT_H

#include "base/bytes.h"

/* Append text as it is; a whole number; bytes in base64; a string in quotes, with escapes. */
void tt__etcd_put_text(tt__bytes *out, const char *text);
void tt__etcd_put_i64(tt__bytes *out, int64_t number);
void tt__etcd_put_base64(tt__bytes *out, const void *data, size_t size);
void tt__etcd_put_json_string(tt__bytes *out, const char *text);

/* Append what the base64 stands for, padding required; false: it is none, or memory is out (out->failed). */
bool tt__etcd_take_base64(tt__bytes *out, tt__span base64);

#endif
