/* FNV over words of 4 bytes; a shorter last word is filled with zeros. */
#include "parallel/value_hash.h"

#include "base/error.h"
#include "tensor/shape/host_copy.h"

#include <string.h>

tt_status tt__hash_values(uint64_t *hash, const tt_tensor *x) {
    tt__host_copy elements;
    TT__TRY(tt__host_copy_make(&elements, x));
    const char *bytes = elements.data;
    for (size_t i = 0; i < elements.size; i += sizeof(uint32_t)) {
        const size_t left = elements.size - i;
        uint32_t word = 0;
        memcpy(&word, bytes + i, left < sizeof word ? left : sizeof word);
        *hash = tt__fnv_number(*hash, word);
    }
    tt__host_copy_free(&elements);
    return TT_OK;
}
