/* checkpoint: .pt files, read and written. The files that are read are put together here, byte by byte; PyTorch's own
 * are in tests/vectors and tests/interop. */
#include "unit/alloc_fail.h"
#include "unit/expect.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "support/own_folder.h"
#include "unit/checkpoint/pt_file.h"
#include "zip/zip.h"

#define SIZES_2_3 "K\2K\3\206"
#define STRIDES_3_1 "K\3K\1\206"

static tt_status parse_pickle(const char *pickle, size_t size, size_t record, tt_value **value) {
    pt_file f = pt_make(pickle, size, record);
    tt_status status = pt_parse(value, f.data, f.size);
    pt_free(&f);
    return status;
}

/* ---- reading ---- */

static void reads_a_state_dict(void **state) {
    (void)state;
    static const char pickle[] = W_IS(TENSOR("ByteStorage", "0", "\x10", "\4", SIZES_2_3, STRIDES_3_1));
    tt_value *v;
    assert_int_equal(parse_pickle(pickle, sizeof pickle - 1, 16, &v), TT_OK);
    const tt_named_tensors *all = tt_value_tensors(v);
    assert_int_equal(all->count, 1);
    assert_string_equal(all->names[0], "w");
    assert_int_equal(tt_tensor_dtype(all->tensors[0]), TT_U8);
    assert_int_equal(tt_tensor_size(all->tensors[0], 0), 2);
    assert_memory_equal(tt_tensor_data(all->tensors[0]), "\4\5\6\7\10\11", 6);
    tt_value_free(v);
}

/* Two tensors of one storage: the same memory, other strides. */
static void storages_are_shared(void **state) {
    (void)state;
    static const char pickle[] =
        PROTO "}(" TEXT("\1", "a") TENSOR("ByteStorage", "0", "\6", "\0", SIZES_2_3, STRIDES_3_1) TEXT("\1", "b")
            TENSOR("ByteStorage", "0", "\6", "\0", "K\3K\2\206", "K\1K\3\206") "u.";
    tt_value *v;
    assert_int_equal(parse_pickle(pickle, sizeof pickle - 1, 6, &v), TT_OK);
    tt_tensor *a = tt_value_tensor(tt_value_find(v, "a")), *b = tt_value_tensor(tt_value_find(v, "b"));
    int scope = tt_scope_begin();
    assert_ptr_equal(tt_tensor_data(a), tt_tensor_data(b));
    assert_true(tt_equal(tt_transpose(a, 0, 1), b));
    tt_scope_end(scope);
    tt_value_free(v);
}

/* The opcodes of newer protocols: frames, short strings, globals from the stack, a memo that counts by itself. */
static void newer_protocols(void **state) {
    (void)state;
    static const char pickle[] = "\200\4\225\0\0\0\0\0\0\0\0}\224(\214\1a\224K\1\214\1b\224h\1"
                                 "\214\1c\214\5torch\224\214\7float16\224\223u.";
    tt_value *v;
    tt_dtype dtype;
    assert_int_equal(parse_pickle(pickle, sizeof pickle - 1, 0, &v), TT_OK);
    assert_string_equal(tt_value_string(tt_value_find(v, "b")), "a");
    assert_int_equal(tt_value_get_dtype(&dtype, tt_value_find(v, "c")), TT_OK);
    assert_int_equal(dtype, TT_F16);
    tt_value_free(v);
}

static void reads_what_pytorch_wrote(void **state) {
    (void)state;
    static const struct {
        const char *file, *name;
        int64_t tensors;
        double first;
    } cases[] = {{"pt-state-dict-torch1.13.pt", "1.running_var", 7, 0},
                 {"pt-train-torch2.14.pt", "model.0.weight", 19, 0},
                 {"pt-dtypes-torch2.6.pt", "trans", 17, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[4096];
        const char *source = getenv("TT_SOURCE");
        if (!source)
            fail_msg("TT_SOURCE is not set: run this through ctest");
        snprintf(path, sizeof path, "%s/tests/vectors/%s", source, cases[i].file);
        tt_value *v;
        assert_int_equal(tt_torch_load(&v, path), TT_OK);
        assert_int_equal(tt_value_tensors(v)->count, cases[i].tensors);
        assert_non_null(tt_named_tensors_find(tt_value_tensors(v), cases[i].name));
        tt_value_free(v);
    }
}

/* ---- what is refused ---- */

#define U8(count, offset, sizes, strides) W_IS(TENSOR("ByteStorage", "0", count, offset, sizes, strides))
#define PICKLE(text) text, sizeof(text) - 1

static const struct {
    const char *pickle;
    size_t size, record; /* bytes of data/0 */
    tt_status status;
    const char *text;
} refused[] = {
    /* code, and whatever is no value */
    {PICKLE(PROTO "cos\nsystem\n" TEXT("\4", "true") "\205R."), 0, TT_ERR_UNSUPPORTED, "os.system"},
    {PICKLE(PROTO "c__builtin__\neval\n" TEXT("\1", "1") "\205R."), 0, TT_ERR_UNSUPPORTED, "__builtin__.eval"},
    {PICKLE("\200\4\214\2os\214\6system\223."), 0, TT_ERR_UNSUPPORTED, "os.system"},
    {PICKLE(PROTO "ctorch\nload\n."), 0, TT_ERR_UNSUPPORTED, "torch.load"},
    {PICKLE(PROTO "ccollections\nOrderedDict\n."), 0, TT_ERR_UNSUPPORTED, "got a function or a type"},
    {PICKLE(PROTO "](ccollections\nOrderedDict\ne."), 0, TT_ERR_UNSUPPORTED, "got a function or a type"},
    {PICKLE(PROTO "ctorch\nFloatStorage\n)R."), 0, TT_ERR_FORMAT, "expected a function"},
    {PICKLE(PROTO "K\1)R."), 0, TT_ERR_FORMAT, "expected a function and a tuple"},
    {PICKLE(PROTO "ccollections\nOrderedDict\nK\1R."), 0, TT_ERR_FORMAT, "expected a function and a tuple"},
    {PICKLE(PROTO "]}b."), 0, TT_ERR_UNSUPPORTED, "attributes of a list"},
    {PICKLE(PROTO "I1\n."), 0, TT_ERR_UNSUPPORTED, "opcode 0x49"},
    {PICKLE(PROTO "\202\1."), 0, TT_ERR_UNSUPPORTED, "opcode 0x82"},
    {PICKLE(PROTO "C\1x."), 0, TT_ERR_UNSUPPORTED, "opcode 0x43"},
    {PICKLE("\200\1K\1."), 0, TT_ERR_UNSUPPORTED, "protocol 2 to 5, got 1"},
    {PICKLE("\200\6K\1."), 0, TT_ERR_UNSUPPORTED, "protocol 2 to 5, got 6"},
    /* broken ones */
    {PICKLE(""), 0, TT_ERR_FORMAT, "cut short"},
    {PICKLE(PROTO), 0, TT_ERR_FORMAT, "cut short"},
    {PICKLE(PROTO "."), 0, TT_ERR_FORMAT, "expected 1 values on the stack, got 0"},
    {PICKLE(PROTO "NN."), 0, TT_ERR_FORMAT, "expected one value at the end, got 2"},
    {PICKLE(PROTO "X\377\377\377\377a."), 0, TT_ERR_FORMAT, "expected 4294967295 more bytes"},
    {PICKLE("\200\4\215\377\377\377\377\377\377\377\377a."), 0, TT_ERR_FORMAT, "more bytes"},
    {PICKLE(PROTO "X\3\0\0\0a\0b."), 0, TT_ERR_UNSUPPORTED, "a NUL"},
    {PICKLE(PROTO "X\1\0\0\0\377."), 0, TT_ERR_FORMAT, "UTF-8"},
    {PICKLE(PROTO "\212\11\0\0\0\0\0\0\0\0\1."), 0, TT_ERR_UNSUPPORTED, "an int of 9 bytes"},
    {PICKLE(PROTO "\213\377\377\377\177."), 0, TT_ERR_FORMAT, "more bytes"},
    {PICKLE(PROTO "t."), 0, TT_ERR_FORMAT, "expected a MARK"},
    {PICKLE(PROTO "e."), 0, TT_ERR_FORMAT, "expected a MARK"},
    {PICKLE(PROTO "(u."), 0, TT_ERR_FORMAT, "expected 1 values"},
    {PICKLE(PROTO "(K\1e."), 0, TT_ERR_FORMAT, "expected 2 values"},
    {PICKLE(PROTO "K\1(0."), 0, TT_ERR_FORMAT, "expected 1 values on the stack, got 0"},
    {PICKLE(PROTO "N(K\1e."), 0, TT_ERR_FORMAT, "expected a list, got None"},
    {PICKLE(PROTO "}K\1a."), 0, TT_ERR_FORMAT, "expected a list, got a dict"},
    {PICKLE(PROTO "](K\1K\2u."), 0, TT_ERR_FORMAT, "expected a dict and pairs"},
    {PICKLE(PROTO "}(K\1u."), 0, TT_ERR_FORMAT, "1 values"},
    {PICKLE(PROTO "}NK\1s."), 0, TT_ERR_UNSUPPORTED, "keys of a dict, got None"},
    {PICKLE(PROTO "}(K\1NK\1Nu."), 0, TT_ERR_FORMAT, "has the key the int 1 twice"},
    {PICKLE(PROTO "}(" TEXT("\1", "w") "N" TEXT("\1", "w") "Nu."), 0, TT_ERR_FORMAT, "has the key \"w\" twice"},
    {PICKLE(PROTO "h\0."), 0, TT_ERR_FORMAT, "the memo has no number 0"},
    {PICKLE(PROTO "Nq\1h\0."), 0, TT_ERR_FORMAT, "the memo has no number 0"},
    {PICKLE(PROTO "Nr\377\377\377\377."), 0, TT_ERR_FORMAT, "a memo number of 4294967295"},
    {PICKLE(PROTO "q\0."), 0, TT_ERR_FORMAT, "expected 1 values"},
    {PICKLE(PROTO "ctorch"), 0, TT_ERR_FORMAT, "a line"},
    {PICKLE("\200\4K\1K\2\223."), 0, TT_ERR_FORMAT, "expected two strings"},
    {PICKLE(PROTO "ctorch\nSize\n)R."), 0, TT_ERR_FORMAT, "expected a tuple, got nothing"},
    {PICKLE(PROTO "ctorch\ndevice\nK\1\205R."), 0, TT_ERR_FORMAT, "expected a string"},
    {PICKLE(PROTO "ccollections\nCounter\n](K\1e\205R."), 0, TT_ERR_UNSUPPORTED, "a dict made of nothing"},
    /* cycles and bombs */
    {PICKLE(PROTO "]q\0h\0a."), 0, TT_ERR_FORMAT, "a list of 1 holds itself"},
    {PICKLE(PROTO "}q\0K\1h\0s."), 0, TT_ERR_FORMAT, "a dict of 1 holds itself"},
    {PICKLE(PROTO "]q\0(h\0te."), 0, TT_ERR_FORMAT, "expected a MARK"},
    {PICKLE(PROTO "]q\0h\0\205a."), 0, TT_ERR_FORMAT, "holds itself"},
    /* tensors */
    {PICKLE(U8("\6", "\0", "K\2K\4\206", "K\4K\1\206")), 6, TT_ERR_FORMAT, "beyond its storage of 6"},
    {PICKLE(U8("\6", "\1", SIZES_2_3, STRIDES_3_1)), 6, TT_ERR_FORMAT, "beyond its storage of 6"},
    {PICKLE(U8("\6", "\6", "K\1\205", "K\1\205")), 6, TT_ERR_FORMAT, "beyond its storage of 6"},
    {PICKLE(U8("\0", "\0", ")", ")")), 0, TT_ERR_FORMAT, "beyond its storage of 0"},
    {PICKLE(U8("\6", "\0", "K\2\205", "J\377\377\377\177\205")), 6, TT_ERR_FORMAT, "beyond its storage"},
    {PICKLE(U8("\6", "\0", "K\2\205", "J\377\377\377\377\205")), 6, TT_ERR_FORMAT,
     "strides of 0 or more, got the int -1"},
    {PICKLE(U8("\6", "\0", "J\377\377\377\377\205", "K\1\205")), 6, TT_ERR_FORMAT,
     "sizes of 0 or more, got the int -1"},
    {PICKLE(U8("\6", "\0", "\212\10\377\377\377\377\377\377\377\177\205", "K\0\205")), 6, TT_ERR_UNSUPPORTED,
     "over 1 GiB"},
    {PICKLE(U8("\6", "\0", "\212\10\377\377\377\377\377\377\377\177K\2\206", "K\0K\0\206")), 6, TT_ERR_FORMAT,
     "beyond"},
    {PICKLE(U8("\6", "\0", "K\2\212\10\377\377\377\377\377\377\377\177\206", "K\0K\2\206")), 6, TT_ERR_FORMAT,
     "beyond"},
    {PICKLE(U8("\6", "\0", "K\2\205", "K\3K\1\206")), 6, TT_ERR_FORMAT, "1 sizes, but 2 strides"},
    {PICKLE(U8("\6", "\0", "](K\2e", "K\1\205")), 6, TT_ERR_FORMAT, "a tuple of sizes, got a list of 1"},
    {PICKLE(U8("\6", "\0", "N\205", "K\1\205")), 6, TT_ERR_FORMAT, "sizes of 0 or more, got None"},
    {PICKLE(U8("\6", "\0", "(K\1K\1K\1K\1K\1K\1K\1K\1K\1t", ")")), 6, TT_ERR_UNSUPPORTED, "9 dimensions"},
    {PICKLE(U8("\7", "\0", ")", ")")), 6, TT_ERR_FORMAT, "7 elements of uint8 does not fit the 6 bytes"},
    {PICKLE(W_IS(TENSOR("FloatStorage", "0", "\6", "\0", ")", ")"))), 6, TT_ERR_FORMAT, "6 elements of float32"},
    {PICKLE(W_IS(TENSOR("BoolStorage", "0", "\3", "\0", ")", ")"))), 3, TT_ERR_FORMAT, "byte 2 is 2"},
    {PICKLE(W_IS(TENSOR("ByteStorage", "9", "\6", "\0", ")", ")"))), 6, TT_ERR_FORMAT, "no record data/9"},
    {PICKLE(W_IS(TENSOR("ByteStorage", "/", "\6", "\0", ")", ")"))), 6, TT_ERR_FORMAT, "no record data//"},
    {PICKLE(W_IS(TENSOR("ComplexFloatStorage", "0", "\1", "\0", ")", ")"))), 8, TT_ERR_UNSUPPORTED,
     "\"w\": tensors of torch.complex64"},
    {PICKLE(W_IS(TENSOR("QInt8Storage", "0", "\1", "\0", ")", ")"))), 1, TT_ERR_UNSUPPORTED, "torch.qint8"},
    {PICKLE(PROTO "ctorch\nuint16\n."), 0, TT_ERR_UNSUPPORTED, "torch.uint16"},
    {PICKLE(PROTO "(ctorch._utils\n_rebuild_tensor_v2\n" STORAGE("ByteStorage", "0", "\6") "\205Rt."), 6, TT_ERR_FORMAT,
     "expected (storage, offset"},
    {PICKLE(PROTO "ctorch._utils\n_rebuild_parameter\nK\1\205R."), 0, TT_ERR_FORMAT, "a parameter: expected a tensor"},
    {PICKLE(PROTO STORAGE("ByteStorage", "0", "\6") "."), 6, TT_ERR_UNSUPPORTED, "got a storage"},
    {PICKLE(PROTO "K\1Q."), 0, TT_ERR_FORMAT, "a number of elements), got the int 1"},
    {PICKLE(PROTO ")Q."), 0, TT_ERR_FORMAT, "a number of elements), got a tuple of 0"},
    {PICKLE(PROTO "(" TENSOR("ByteStorage", "0", "\4", "\0", ")", ")")
                TENSOR("CharStorage", "0", "\4", "\0", ")", ")") "t."),
     4, TT_ERR_FORMAT, "of int8 here and of uint8 before"},
};

static void refuses_what_is_not(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        tt_value *v = (tt_value *)"untouched";
        tt_status status = parse_pickle(refused[i].pickle, refused[i].size, refused[i].record, &v);
        if (status != refused[i].status || v || !strstr(tt_last_error(), refused[i].text) ||
            !strstr(tt_last_error(), "x.pt"))
            fail_msg("case %zu (%s): %s: %s", i, refused[i].text, tt_status_name(status), tt_last_error());
    }
}

/* A list in a list in a list ... : small to write, and too deep to walk. */
static void deep_nesting(void **state) {
    (void)state;
    for (int depth = 99; depth <= 100000; depth = depth < 101 ? depth + 1 : depth * 10) {
        size_t size = 3 + 3 * (size_t)depth;
        char *pickle = malloc(size);
        memcpy(pickle, "\200\2]", 3);
        for (int i = 0; i < depth - 1; i++)
            memcpy(pickle + 3 + i, "]", 1);
        memset(pickle + 2 + depth, 'a', (size_t)depth - 1);
        pickle[1 + 2 * depth] = '.';
        tt_value *v;
        tt_status status = parse_pickle(pickle, 2 + 2 * (size_t)depth, 0, &v);
        assert_int_equal(status, depth <= 100 ? TT_OK : TT_ERR_FORMAT);
        if (status)
            expect_error(TT_ERR_FORMAT, "nested at most 100 deep");
        tt_value_free(v);
        free(pickle);
    }
}

/* Lists that hold the one before ten times: 24 of them are more values than a machine has atoms of memory. */
static void laughing_billions(void **state) {
    (void)state;
    char pickle[4096] = PROTO "]q";
    size_t n = 4;
    pickle[n++] = 0;
    for (int level = 0; level < 24; level++) {
        n += (size_t)sprintf(pickle + n, "](");
        for (int i = 0; i < 10; i++) {
            pickle[n++] = 'h';
            pickle[n++] = (char)level;
        }
        pickle[n++] = 'e';
        pickle[n++] = 'q';
        pickle[n++] = (char)(level + 1);
    }
    n += (size_t)sprintf(pickle + n, "e."); /* never reached: two marks are missing */
    tt_value *v;
    assert_int_equal(parse_pickle(pickle, n, 0, &v), TT_ERR_FORMAT);
    /* the same, well formed: each list into a tuple, which is dropped, the last one kept */
    n = 4;
    pickle[n++] = 0;
    for (int level = 0; level < 24; level++) {
        pickle[n++] = '0';
        n += (size_t)sprintf(pickle + n, "](");
        for (int i = 0; i < 10; i++) {
            pickle[n++] = 'h';
            pickle[n++] = (char)level;
        }
        pickle[n++] = 'e';
        pickle[n++] = 'q';
        pickle[n++] = (char)(level + 1);
    }
    pickle[n++] = '.';
    assert_int_equal(parse_pickle(pickle, n, 0, &v), TT_ERR_FORMAT);
    expect_error(TT_ERR_FORMAT, "hold each other so often");
}

/* ---- archives ---- */

static void expect_archive(pt_file *f, tt_status status, const char *text) {
    tt_value *v;
    pt_end(f);
    assert_int_equal(pt_parse(&v, f->data, f->size), status);
    expect_error(status, text);
    pt_free(f);
}

static void archives_are_checked(void **state) {
    (void)state;
    static const char *const names[] = {"x/../y",     "../x/y", "/x/data.pkl", "x//y",     "x\\y",
                                        "y/data.pkl", "x/./y",  "plain",       "x/y/../z", "x/.."};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        pt_file f = {0};
        pt_add(&f, "x/data.pkl", "\200\2N.", 4);
        pt_add(&f, names[i], "", 0);
        expect_archive(&f, TT_ERR_FORMAT, "expected records below one folder");
    }
    pt_file f = {0};
    pt_add(&f, "x/data.pkl", "\200\2N.", 4);
    expect_archive(&f, TT_ERR_FORMAT, "\"version\"");
    pt_add(&f, "x/version", "3\n", 2);
    expect_archive(&f, TT_ERR_FORMAT, "without a record data.pkl");
    pt_add(&f, "x/data.pkl", "\200\2N.", 4);
    pt_add(&f, "x/version", "11\n", 3);
    expect_archive(&f, TT_ERR_UNSUPPORTED, "1 to 10, got \"11");
    pt_add(&f, "x/data.pkl", "\200\2N.", 4);
    pt_add(&f, "x/version", "3\n", 2);
    pt_add(&f, "x/byteorder", "big", 3);
    expect_archive(&f, TT_ERR_UNSUPPORTED, "byte order \"big\"");
    pt_add(&f, "x/data.pkl", "\200\2N.", 4);
    pt_add(&f, "x/version", "3\n", 2);
    pt_add(&f, "x/version", "3\n", 2);
    expect_archive(&f, TT_ERR_FORMAT, "comes twice");
    expect_archive(&f, TT_ERR_FORMAT, "expected a zip archive");
}

/* Records that lie inside each other: the file is small, what they say they hold is not. */
static void records_that_overlap(void **state) {
    (void)state;
    enum { INNER = 8, ROOM = 4096 };
    static unsigned char zeros[ROOM];
    pt_file outer = {0}, inner = {0};
    pt_add(&outer, "x/data.pkl", "\200\2N.", 4);
    size_t begin = outer.size + 30 + 1 + sizeof "x/outer" - 2;
    for (int i = 0; i < INNER; i++) { /* each says that it goes on to the end, over the headers of the next */
        char name[] = "x/0";
        name[2] = (char)('0' + i);
        pt_file one = {0};
        pt_add(&one, name, zeros, ROOM);
        pt_put(&inner.data, &inner.size, one.data, 33);
        for (int k = 42; k < 46; k++) /* where its header is */
            one.central[k] = (unsigned char)((begin + 33 * (size_t)i) >> (8 * (k - 42)));
        pt_put(&inner.central, &inner.central_size, one.central, one.central_size);
        pt_free(&one);
    }
    pt_put(&inner.data, &inner.size, zeros, ROOM);
    pt_add(&outer, "x/outer", inner.data, inner.size);
    pt_put(&outer.central, &outer.central_size, inner.central, inner.central_size);
    outer.count += INNER;
    expect_archive(&outer, TT_ERR_FORMAT, "they overlap");
    pt_free(&inner);
}

static void other_files_are_named(void **state) {
    (void)state;
    static const struct {
        const char *bytes;
        size_t size;
        tt_status status;
        const char *text;
    } cases[] = {{PICKLE("\200\2\212\nl\374\234F\371 j\250P\031."), TT_ERR_UNSUPPORTED, "before PyTorch 1.6"},
                 {PICKLE("\100\0\0\0\0\0\0\0{\"w\":"), TT_ERR_FORMAT, "tt_safetensors_load()"},
                 {PICKLE("hello, world"), TT_ERR_FORMAT, "not a .pt file"},
                 {PICKLE("PK\3\4"), TT_ERR_FORMAT, "not a whole zip archive"}};
    tt_value *v;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(pt_parse(&v, (const unsigned char *)cases[i].bytes, cases[i].size), cases[i].status);
        expect_error(cases[i].status, cases[i].text);
    }
    assert_int_equal(tt_torch_load(&v, "missing.pt"), TT_ERR_IO);
    expect_error(TT_ERR_IO, "missing.pt");
    assert_int_equal(tt_torch_load(&v, "."), TT_ERR_IO);
    expect_error(TT_ERR_IO, "got a directory");
    assert_int_equal(tt_torch_load(NULL, "."), TT_ERR_INVALID);
    assert_int_equal(tt_torch_load(&v, NULL), TT_ERR_INVALID);
    assert_int_equal(tt_torch_parse(&v, NULL, 3, "x"), TT_ERR_INVALID);
    assert_int_equal(tt_torch_save(NULL, NULL), TT_ERR_INVALID);
    tt_clear_error();
    assert_int_equal(tt_torch_save("never.pt", NULL), TT_ERR_INVALID);
    tt_clear_error();
}

/* Files that end early, at every byte, and files with a byte changed, at every byte: read or refused. */
static void truncations_and_changes(void **state) {
    (void)state;
    static const char pickle[] = U8("\6", "\0", SIZES_2_3, STRIDES_3_1);
    pt_file f = pt_make(pickle, sizeof pickle - 1, 6);
    tt_value *v;
    for (size_t n = 0; n < f.size; n++)
        assert_int_equal(pt_parse(&v, f.data, n), TT_ERR_FORMAT);
    int refusals = 0;
    for (size_t i = 0; i < f.size; i++) {
        for (int bit = 0; bit < 8; bit += 7) {
            f.data[i] ^= (unsigned char)(1 << bit);
            refusals += pt_parse(&v, f.data, f.size) != TT_OK;
            assert_true(v || *tt_last_error());
            tt_value_free(v);
            f.data[i] ^= (unsigned char)(1 << bit);
        }
    }
    assert_true(refusals > 200);
    tt_clear_error();
    pt_free(&f);
}

/* ---- writing ---- */

static tt_value *make_state(void) {
    tt_value *root = tt_value_dict(), *list = tt_value_list();
    tt_tensor *x = tt_view(tt_arange(6), TT_SHAPE(2, 3));
    tt_status status = tt_value_append(list, tt_value_of_float(-0.5));
    if (!status)
        status = tt_value_append(list, tt_value_of_int(INT64_MIN));
    if (status)
        tt_value_free(list);
    if (!status)
        status = tt_value_set(root, "list", list);
    if (!status)
        status = tt_value_set(root, "turned", tt_value_of_tensor(tt_transpose(x, 0, 1)));
    if (!status)
        status = tt_value_set_at(root, 7, tt_value_of_tensor(x));
    if (!status)
        status = tt_value_set(root, "again", tt_value_of_tensor(x));
    if (!status)
        return root;
    tt_value_free(root);
    return NULL;
}

static void comes_back_as_it_went(void **state) {
    (void)state;
    int scope = tt_scope_begin();
    tt_value *value = make_state(), *back;
    assert_int_equal(tt_torch_save("a.pt", value), TT_OK);
    assert_int_equal(tt_torch_load(&back, "a.pt"), TT_OK);
    assert_true(
        tt_equal(tt_value_tensor(tt_value_find(back, "turned")), tt_value_tensor(tt_value_find(value, "turned"))));
    assert_true(tt_equal(tt_value_tensor(tt_value_find_at(back, 7)), tt_value_tensor(tt_value_find_at(value, 7))));
    assert_ptr_equal(tt_tensor_data(tt_value_tensor(tt_value_find_at(back, 7))),
                     tt_tensor_data(tt_value_tensor(tt_value_find(back, "again")))); /* one memory, as before */
    int64_t least;
    assert_int_equal(tt_value_get_int(&least, tt_value_at(tt_value_find(back, "list"), 1)), TT_OK);
    assert_true(least == INT64_MIN);
    tt_value_free(value);
    tt_value_free(back);
    tt_scope_end(scope);
}

/* The bytes of each record begin at a multiple of 64, so that readers may map them. */
static void the_bytes_are_aligned(void **state) {
    (void)state;
    int scope = tt_scope_begin();
    tt_value *value = make_state();
    assert_int_equal(tt_torch_save("b.pt", value), TT_OK);
    FILE *file = fopen("b.pt", "rb");
    unsigned char bytes[8192];
    size_t n = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    int records = 0;
    for (size_t i = 0; i + 30 < n; i++) {
        if (memcmp(bytes + i, "PK\3\4", 4))
            continue;
        size_t begin = i + 30 + bytes[i + 26] + bytes[i + 28];
        assert_int_equal(begin % 64, 0);
        records++;
    }
    assert_int_equal(records, 5); /* data.pkl, byteorder, two tensors, version */
    tt_value_free(value);
    tt_scope_end(scope);
}

static tt_status save_and_load(void *unused) {
    (void)unused;
    TT_AUTO_SCOPE;
    tt_value *value = make_state(), *back = NULL;
    tt_status status = value ? tt_torch_save("c.pt", value) : tt_last_status();
    if (!status)
        status = tt_torch_load(&back, "c.pt");
    tt_value_free(value);
    tt_value_free(back);
    return status;
}

static void memory_that_runs_out(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip();
    assert_true(alloc_fail_each(save_and_load, NULL, ALLOC_ENDS) > 40);
    assert_int_equal(access("c.pt", F_OK), 0);
}

static int set_up(void **state) {
    if (!tt__zip_get()) {
        printf("skipped: %s\n", tt_last_error());
        exit(77);
    }
    return make_folder(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_state_dict),      cmocka_unit_test(storages_are_shared),
        cmocka_unit_test(newer_protocols),         cmocka_unit_test(reads_what_pytorch_wrote),
        cmocka_unit_test(refuses_what_is_not),     cmocka_unit_test(deep_nesting),
        cmocka_unit_test(laughing_billions),       cmocka_unit_test(archives_are_checked),
        cmocka_unit_test(records_that_overlap),    cmocka_unit_test(other_files_are_named),
        cmocka_unit_test(truncations_and_changes), cmocka_unit_test(comes_back_as_it_went),
        cmocka_unit_test(the_bytes_are_aligned),   cmocka_unit_test(memory_that_runs_out),
    };
    return cmocka_run_group_tests(tests, set_up, remove_folder);
}
