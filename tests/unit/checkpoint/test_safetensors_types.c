/* checkpoint: element types of other programs' files that tensors don't have. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "unit/checkpoint/safetensors_file.h"

/* Three unsigned integers each, largest and smallest among them, then what can't be read. */
static const char foreign[] = "{\"a16\":{\"dtype\":\"U16\",\"shape\":[3],\"data_offsets\":[0,6]}"
                              ",\"b32\":{\"dtype\":\"U32\",\"shape\":[3,1],\"data_offsets\":[6,18]}"
                              ",\"c64\":{\"dtype\":\"U64\",\"shape\":[3],\"data_offsets\":[18,42]}"
                              ",\"d64\":{\"dtype\":\"U64\",\"shape\":[2],\"data_offsets\":[42,58]}"
                              ",\"e8\":{\"dtype\":\"F8_E4M3\",\"shape\":[2],\"data_offsets\":[58,60]}"
                              ",\"f\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[60,61]}"
                              ",\"g\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[61,62]}}";

static unsigned char *foreign_file(size_t *size) {
    const uint16_t u16[] = {UINT16_MAX, 0, 0x8001};
    const uint32_t u32[] = {1, UINT32_MAX, 0x80000000};
    const uint64_t u64[] = {INT64_MAX, 2, 0}, beyond[] = {7, (uint64_t)INT64_MAX + 1};
    unsigned char *bytes = make_file(foreign, 62, size), *data = bytes + 8 + sizeof foreign - 1;
    memcpy(data, u16, 6);
    memcpy(data + 6, u32, 12);
    memcpy(data + 18, u64, 24);
    memcpy(data + 42, beyond, 16);
    return bytes;
}

static void what_fits_no_tensor_is_skipped_by_name(void **state) {
    (void)state;
    static const int32_t a16[] = {UINT16_MAX, 0, 0x8001};
    static const int64_t b32[] = {1, UINT32_MAX, 0x80000000}, c64[] = {INT64_MAX, 2, 0};
    static const char *const left[] = {"d64", "e8", "f"};
    size_t size;
    int64_t count = -1;
    unsigned char *bytes = foreign_file(&size);
    tt_safetensors *file;
    assert_int_equal(tt_safetensors_parse(&file, bytes, size, "x", .skip_unsupported = true), TT_OK);
    const tt_named_tensors *t = tt_safetensors_tensors(file);
    assert_int_equal(t->count, 4);
    assert_int_equal(tt_tensor_dtype(t->tensors[0]), TT_I32);
    assert_memory_equal(tt_tensor_data(t->tensors[0]), a16, sizeof a16);
    assert_int_equal(tt_tensor_dim(t->tensors[1]), 2);
    assert_memory_equal(tt_tensor_i64(t->tensors[1]), b32, sizeof b32);
    assert_memory_equal(tt_tensor_i64(t->tensors[2]), c64, sizeof c64);
    assert_string_equal(t->names[3], "g");
    const char *const *skipped = tt_safetensors_skipped(file, &count);
    assert_int_equal(count, 3);
    for (int i = 0; i < 3; i++)
        assert_string_equal(skipped[i], left[i]);
    tt_safetensors_free(file);
    assert_null(tt_safetensors_skipped(NULL, &count));
    assert_int_equal(count, 0);
    free(bytes);
}

static void what_fits_no_tensor_is_an_error_by_name(void **state) {
    (void)state;
    size_t size;
    unsigned char *bytes = foreign_file(&size);
    tt_safetensors *file;
    assert_int_equal(tt_safetensors_parse(&file, bytes, size, "x"), TT_ERR_UNSUPPORTED);
    assert_null(file);
    memcpy(strstr((char *)bytes + 8, "\"F8_E4M3\""), "\"U8\"     ", 9); /* what the header alone shows is mended */
    memcpy(strstr((char *)bytes + 8, "1,1,1,1,1,1,1,1,1"), "1,1,1,1,1,1,1,1  ", 17);
    assert_int_equal(tt_safetensors_parse(&file, bytes, size, "x"), TT_ERR_UNSUPPORTED);
    assert_non_null(strstr(tt_last_error(), "x: tensor \"d64\": its U64 become I64, but element 1 is above"));
    free(bytes);
}

static void unsigned_integers_get_a_sign(void **state) {
    (void)state;
    static const struct {
        const char *header;
        size_t data;
        tt_dtype dtype;
    } cases[] = {
        {W("U16", "[2]", "0", "4"), 4, TT_I32}, {W("U32", "[]", "0", "4"), 4, TT_I64},
        {W("U64", "[1]", "0", "8"), 8, TT_I64}, {W("U16", "[0,3]", "0", "0"), 0, TT_I32},
        {W("U64", "[0]", "0", "0"), 0, TT_I64},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tt_safetensors *file;
        int64_t skipped = -1;
        assert_int_equal(parse(cases[i].header, cases[i].data, &file), TT_OK);
        assert_int_equal(tt_tensor_dtype(tt_safetensors_tensors(file)->tensors[0]), cases[i].dtype);
        tt_safetensors_skipped(file, &skipped);
        assert_int_equal(skipped, 0);
        tt_safetensors_free(file);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_fits_no_tensor_is_skipped_by_name),
        cmocka_unit_test(what_fits_no_tensor_is_an_error_by_name),
        cmocka_unit_test(unsigned_integers_get_a_sign),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
