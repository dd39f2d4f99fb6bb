/* An IDX file: as it is, and, if it is not gzip itself, packed as well, which must come to the same. */
#include "fuzz/folder.h"

#include <tutti/data.h>

#include <stdint.h>
#include <stdlib.h>
#include <zlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t *pack(const uint8_t *data, size_t size, size_t *packed) {
    z_stream z = {0};
    if (deflateInit2(&z, 1, Z_DEFLATED, 16 + 9, 1, Z_DEFAULT_STRATEGY) != Z_OK)
        abort();
    size_t room = deflateBound(&z, size) + 64;
    uint8_t *out = malloc(room);
    z.next_in = (Bytef *)(uintptr_t)data;
    z.avail_in = (uInt)size;
    z.next_out = out;
    z.avail_out = (uInt)room;
    if (!out || deflate(&z, Z_FINISH) != Z_STREAM_END)
        abort();
    *packed = room - z.avail_out;
    deflateEnd(&z);
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tt_tensor *plain = NULL, *unpacked = NULL;
    tt_status status = tt_idx_read(&plain, fuzz_file("plain", data, size));
    if (!status != (plain != NULL))
        abort();
    if (size >= 2 && !(data[0] == 0x1f && data[1] == 0x8b)) {
        size_t packed_size;
        uint8_t *packed = pack(data, size, &packed_size);
        if (tt_idx_read(&unpacked, fuzz_file("packed", packed, packed_size)) != status ||
            (plain && !tt_equal(plain, unpacked)))
            abort();
        tt_tensor_free(unpacked);
        free(packed);
    }
    tt_tensor_free(plain);
    return 0;
}
