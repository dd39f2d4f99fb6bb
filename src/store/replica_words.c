#include "store/replica_words.h"

#include "store/wire.h"

enum { WORDS_VERSION = 2 };

uint64_t tt__replica_take(tt__replica_reader *reader, size_t size) {
    if (reader->rest.size < size) {
        reader->bad = true;
        reader->rest.size = 0;
        return 0;
    }
    uint64_t number = tt__store_number(reader->rest.data, size);
    reader->rest.data += size;
    reader->rest.size -= size;
    return number;
}

tt__span tt__replica_take_span(tt__replica_reader *reader) {
    uint64_t size = tt__replica_take(reader, 8);
    if (size > reader->rest.size) {
        reader->bad = true;
        size = 0;
    }
    tt__span span = {reader->rest.data, (size_t)size};
    if (size) {
        reader->rest.data += size;
        reader->rest.size -= (size_t)size;
    }
    return span;
}

void tt__replica_put_hello(tt__bytes *out, const tt__replica_hello *hello) {
    tt__store_put_u8(out, WORDS_VERSION);
    tt__store_put_u8(out, (uint8_t)hello->member);
    tt__store_put_u64(out, hello->id);
    tt__store_put_u64(out, hello->cluster);
    tt__store_put_string(out, hello->list);
}

bool tt__replica_take_hello(tt__span bytes, tt__replica_hello *hello) {
    tt__replica_reader reader = {.rest = bytes};
    bool known = tt__replica_take(&reader, 1) == WORDS_VERSION;
    hello->member = (int)tt__replica_take(&reader, 1);
    hello->id = tt__replica_take(&reader, 8);
    hello->cluster = tt__replica_take(&reader, 8);
    hello->list = tt__replica_take_span(&reader);
    return known && !reader.bad && !reader.rest.size && hello->id && hello->member < TT__REPLICAS_MAX;
}
