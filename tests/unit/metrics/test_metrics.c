/* Event files and CSV: the bytes are TensorBoard's, what is written is read again, and a torn, damaged or full file is
 * told in one text. */
#include "metrics/append_file.h"
#include "metrics/event_file.h"
#include "metrics/scalar_log.h"
#include "unit/alloc_fail.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <tutti/metrics.h>
#include <unistd.h>

#include "support/own_folder.h"

static void expect_error(tt_status status, tt_status expected, const char *text) {
    assert_int_equal(status, expected);
    if (!strstr(tt_last_error(), text))
        fail_msg("expected \"%s\" in: %s", text, tt_last_error());
}

static void write_bytes(const char *path, const void *bytes, size_t size) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static size_t read_bytes(const char *path, void *bytes, size_t room) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t n = fread(bytes, 1, room, file);
    assert_int_equal(fclose(file), 0);
    return n;
}

static size_t file_size(const char *path) {
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    return (size_t)info.st_size;
}

/* The event file of a folder, which must be the only one. */
static const char *event_file(const char *run) {
    static char path[512];
    DIR *dir = opendir(run);
    int found = 0;
    assert_non_null(dir);
    for (struct dirent *entry; (entry = readdir(dir));)
        if (tt__log_is_event_name(entry->d_name)) {
            snprintf(path, sizeof path, "%s/%s", run, entry->d_name);
            found++;
        }
    closedir(dir);
    assert_int_equal(found, 1);
    return path;
}

static void assert_point(const tt__scalar_log *log, const char *tag, size_t i, int64_t step, double value) {
    const tt__series *series = tt__scalar_log_find(log, tag);
    assert_non_null(series);
    assert_true(i < series->count);
    assert_int_equal(series->points[i].step, step);
    if (!(series->points[i].value == value || (isnan(value) && isnan(series->points[i].value))))
        fail_msg("%s[%zu]: expected %.17g, got %.17g", tag, i, value, series->points[i].value);
}

/* Setup: a folder for a test alone, below the program's. */
static int begin_in_folder(void **state) {
    static char name[32];
    static int tests;
    snprintf(name, sizeof name, "test%d", tests++);
    *state = name;
    return mkdir(name, 0777);
}

static void test_checksum(void **state) {
    (void)state;
    assert_int_equal(tt__crc32c("123456789", 9), 0xe3069283);
    assert_int_equal(tt__crc32c("", 0), 0);
}

static void test_bytes_are_tensorboards(void **state) {
    (void)state;
    static const char version[] = "\x18\0\0\0\0\0\0\0\xA3\x7F\x4B\x22\x09\0\0\x80\x38\x99\xD6\xD7\x41\x1A\x0D"
                                  "brain.Event:2\x12\x4B\x36\xAB";
    uint8_t file[512];
    char path[512];
    double wall_time;
    tt__bytes record = {0};
    memcpy(&wall_time, version + 13, sizeof wall_time);
    tt__event_encode_version(&record, wall_time);
    assert_int_equal(record.size, sizeof version - 1);
    assert_memory_equal(record.data, version, record.size);
    snprintf(path, sizeof path, "%s/tests/vectors/events.tfevents", getenv("TT_SOURCE"));
    assert_int_equal(read_bytes(path, file, sizeof file), 257);
    tt__event_encode_scalar(&record, 1600000001.0, 1, "loss", 0.5);
    assert_int_equal(record.size, 42);
    assert_memory_equal(record.data, file + 40, record.size);
    tt__bytes_free(&record);

    tt__scalar_log log = {0};
    assert_int_equal(tt__log_read_file(&log, path), TT_OK);
    assert_int_equal(log.count, 2); /* the histogram is passed over */
    assert_point(&log, "loss", 0, 1, 0.5);
    assert_point(&log, "acc", 0, 300, 0.25);
    assert_true(tt__scalar_log_find(&log, "loss")->points[0].wall_time == 1600000001.0);
    assert_string_equal(log.note, "");
    tt__scalar_log_free(&log);
}

/* Events of other programs: what the writer never writes is refused by the number of its field. */
static void test_foreign_events(void **state) {
    (void)state;
    static const struct {
        const char *event, *says;
        size_t size;
    } rows[] = {
#define EVENT(text) .event = text, .size = sizeof text - 1
        {EVENT("\x52\x03\x0A\x01x"), .says = "the record at byte 0 has field 10 of TensorBoard's Event"}, /* source */
        {EVENT("\x3A\x02\x08\x02"), .says = "field 7 of TensorBoard's Event"}, /* a session's end */
        {EVENT("\x2A\x06\x0A\x04\x22\x02\x08\x01"), .says = "field 4 of TensorBoard's Summary.Value"}, /* an image */
        /* a scalar of TensorFlow 2: a tensor of one f32 */
        {EVENT("\x2A\x0D\x0A\x0B\x0A\x01t\x42\x06\x08\x01\x22\x02\0\0"),
         .says = "field 8 of TensorBoard's Summary.Value"},
        {EVENT("\x2A\x14\x0A\x08\x0A\x01t\x15\0\0\0\0\x0A\x08\x0A\x01u\x15\0\0\0\0"), /* two values */
         .says = "field 1 of TensorBoard's Summary, "},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tt__scalar_log log = {0};
        uint8_t bytes[64] = {(uint8_t)rows[i].size};
        uint32_t head = tt__crc32c_masked(bytes, 8), tail = tt__crc32c_masked(rows[i].event, rows[i].size);
        memcpy(bytes + 8, &head, 4);
        memcpy(bytes + 12, rows[i].event, rows[i].size);
        memcpy(bytes + 12 + rows[i].size, &tail, 4);
        expect_error(tt__events_decode(&log, bytes, 16 + rows[i].size, "theirs"), TT_ERR_UNSUPPORTED, rows[i].says);
        tt__scalar_log_free(&log);
    }
    tt_clear_error();
}

static const double values[] = {0.5, -3, 1e30, 0.1, INFINITY, -INFINITY, NAN, 0, 123456.789};

static void write_run(const char *path) {
    tt_summary_writer *writer = tt_summary_writer_new(path);
    assert_non_null(writer);
    assert_string_equal(tt_summary_writer_log_dir(writer), path);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        assert_int_equal(tt_summary_writer_add_scalar(writer, "loss/train", values[i], (int64_t)i * 1000), TT_OK);
        assert_int_equal(tt_summary_writer_add_scalar(writer, "say \"é\", twice", -values[i], (int64_t)i), TT_OK);
    }
    assert_int_equal(tt_summary_writer_add_text(writer, "notes", "*first* run\n", 3), TT_OK);
    assert_int_equal(tt_summary_writer_flush(writer), TT_OK);
    tt_summary_writer_free(writer);
}

static void test_what_is_written_is_read(void **state) {
    char csv[512], run[512];
    snprintf(csv, sizeof csv, "%s/a/b/scalars.csv", (char *)*state);
    snprintf(run, sizeof run, "%s/a/b", (char *)*state);
    write_run(run);
    for (int pass = 0; pass < 3; pass++) { /* the folder, its event file, its CSV */
        tt__scalar_log log = {0};
        const char *path = pass == 0 ? run : pass == 1 ? event_file(run) : csv;
        assert_int_equal(pass ? tt__log_read_file(&log, path) : tt__log_read_folder(&log, path), TT_OK);
        assert_string_equal(log.note, "");
        assert_int_equal(log.count, 2);
        for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
            double value = pass == 2 ? values[i] : (float)values[i];
            assert_point(&log, "loss/train", i, (int64_t)i * 1000, value);
            assert_point(&log, "say \"é\", twice", i, (int64_t)i, -value);
        }
        tt__scalar_log_free(&log);
    }
}

static void test_a_run_that_goes_on(void **state) {
    char *run = *state, csv[512], line[] = "7,1.5,lo";
    snprintf(csv, sizeof csv, "%s/scalars.csv", run);
    for (int part = 0; part < 2; part++) { /* steps 0 to 5, then from a checkpoint of step 4 on */
        tt_summary_writer *writer = tt_summary_writer_new(run);
        assert_non_null(writer);
        for (int step = part ? 4 : 0; step < (part ? 8 : 6); step++)
            assert_int_equal(tt_summary_writer_add_scalar(writer, "loss", part * 100 + step, step), TT_OK);
        tt_summary_writer_free(writer);
        FILE *torn = fopen(csv, "a"); /* a line that a kill left unfinished: the next writer removes the first one */
        assert_true(fwrite(line, 1, strlen(line), torn) == strlen(line) && fclose(torn) == 0);
    }
    for (int pass = 0; pass < 2; pass++) {
        tt__scalar_log log = {0};
        assert_int_equal(pass ? tt__log_read_folder(&log, run) : tt__log_read_file(&log, csv), TT_OK);
        assert_int_equal(tt__scalar_log_find(&log, "loss")->count, 8);
        for (size_t i = 0; i < 8; i++)
            assert_point(&log, "loss", i, (int64_t)i, i < 4 ? (double)i : 100 + (double)i);
        assert_true(pass ? !*log.note : strstr(log.note, "line 12 has no end and is left out") != NULL);
        tt__scalar_log_free(&log);
    }
}

/* Every shorter file gives the points of its whole records, and says what is left out. */
/* A run resumed from step 5, whose earlier part had logged up to step 7: nothing after 5 counts, also of tags that are
 * not written again. */
static void test_a_restart_purges(void **state) {
    char *run = *state, csv[512];
    snprintf(csv, sizeof csv, "%s/scalars.csv", run);
    tt_summary_writer *writer = tt_summary_writer_new(run);
    for (int step = 0; step < 8; step++) {
        assert_int_equal(tt_summary_writer_add_scalar(writer, "loss", step, step), TT_OK);
        assert_int_equal(tt_summary_writer_add_scalar(writer, "rare, \"x\"", -step, step), TT_OK);
    }
    assert_int_equal(tt_summary_writer_purge(writer, 6), TT_OK);
    assert_int_equal(tt_summary_writer_add_scalar(writer, "loss", 106, 6), TT_OK);
    tt_summary_writer_free(writer);
    for (int pass = 0; pass < 2; pass++) {
        tt__scalar_log log = {0};
        assert_int_equal(pass ? tt__log_read_folder(&log, run) : tt__log_read_file(&log, csv), TT_OK);
        assert_int_equal(tt__scalar_log_find(&log, "loss")->count, 7);
        assert_point(&log, "loss", 6, 6, 106);
        assert_int_equal(tt__scalar_log_find(&log, "rare, \"x\"")->count, 6);
        tt__scalar_log_free(&log);
    }
    FILE *table = fopen(csv, "r"); /* for readers of tables, which know nothing of restarts */
    int lines = 0;
    assert_non_null(table);
    for (int c; (c = fgetc(table)) != EOF;)
        lines += c == '\n';
    fclose(table);
    assert_int_equal(lines, 1 + 12 + 1);
    expect_error(tt_summary_writer_purge(NULL, 1), TT_ERR_INVALID, "expected a writer, got NULL");
}

/* As PyTorch's SummaryWriter(purge_step=300) writes it: a SessionLog (field 7) of status START. */
static void test_a_restart_is_tensorboards(void **state) {
    (void)state;
    static const char event[] = "\x09\0\0\0\0\0\0\xF0\x3F\x10\xAC\x02\x3A\x02\x08\x01";
    tt__bytes record = {0};
    tt__event_encode_restart(&record, 1.0, 300);
    assert_int_equal(record.data[0], 16);
    assert_int_equal(record.size, 12 + 16 + 4);
    assert_memory_equal(record.data + 12, event, 16);
    tt__bytes_free(&record);
}

static void test_torn_at_every_byte(void **state) {
    uint8_t bytes[4096];
    size_t before = 0;
    write_run(*state);
    size_t size = read_bytes(event_file(*state), bytes, sizeof bytes);
    for (size_t n = 13; n <= size; n++) {
        tt__scalar_log log = {0};
        assert_int_equal(tt__events_decode(&log, bytes, n, "torn"), TT_OK);
        size_t points = 0;
        for (size_t i = 0; i < log.count; i++)
            points += log.series[i].count;
        assert_true(points == before || (points == before + 1 && !*log.note));
        before = points;
        tt__scalar_log_free(&log);
    }
    assert_int_equal(before, 2 * sizeof values / sizeof *values);
    for (size_t at = 40; at < size; at += 7) { /* damage is found wherever it is, and what is before it is kept */
        tt__scalar_log log = {0};
        bytes[at] ^= 16;
        assert_int_equal(tt__events_decode(&log, bytes, size, "damaged"), TT_OK);
        assert_true(strstr(log.note, "damaged at byte") || strstr(log.note, "ends inside"));
        bytes[at] ^= 16;
        tt__scalar_log_free(&log);
    }
}

static tt_status decode_csv(tt__scalar_log *log, const char *text) {
    return tt__csv_decode(log, text, strlen(text), "table.csv");
}

static void test_tables(void **state) {
    (void)state;
    tt__scalar_log log = {0};
    assert_int_equal(decode_csv(&log, "epoch,loss,\"top 1, test\",note\n1,0.5,,x\n\n2.0,0.25,90,y\n3,1,2"), TT_OK);
    assert_int_equal(log.count, 2);
    assert_point(&log, "loss", 1, 2, 0.25);
    assert_point(&log, "top 1, test", 0, 2, 90);
    assert_string_equal(log.note, "table.csv: line 5 has no end and is left out");
    tt__scalar_log_free(&log);
    assert_int_equal(decode_csv(&log, "loss\n4\n5\n"), TT_OK);
    assert_point(&log, "loss", 1, 1, 5);
    tt__scalar_log_free(&log);
    expect_error(decode_csv(&log, "no line end"), TT_ERR_FORMAT, "expected a first line with the names of columns");
    expect_error(decode_csv(&log, "a,b\n1,2,3\n"), TT_ERR_FORMAT,
                 "line 2: expected 2 cells as in the first line, got 3");
    expect_error(decode_csv(&log, "step,b\n1.5,2\n"), TT_ERR_FORMAT, "a whole number as \"step\", got \"1.5\"");
    expect_error(decode_csv(&log, "step,tag,value\n1,a,b\n"), TT_ERR_FORMAT, "a number as \"value\", got \"b\"");
    expect_error(decode_csv(&log, "step,tag,value\n1,a,\x1b\xff\n"), TT_ERR_FORMAT, "as \"value\", got \"??\"");
    expect_error(decode_csv(&log, "step,tag,value\n1,,2\n"), TT_ERR_FORMAT, "a name as \"tag\"");
    expect_error(tt__csv_decode(&log, "a\0\n", 3, "zero"), TT_ERR_FORMAT, "got a zero byte");
    tt__scalar_log_free(&log);
}

static void test_bad_arguments(void **state) {
    char path[512];
    snprintf(path, sizeof path, "%s/file", (char *)*state);
    write_bytes(path, "x", 1);
    assert_null(tt_summary_writer_new(NULL));
    expect_error(tt_last_status(), TT_ERR_INVALID, "expected the name of a folder, got none");
    assert_null(tt_summary_writer_new(*state, .no_csv = true, .no_events = true));
    expect_error(tt_last_status(), TT_ERR_INVALID, "got .no_events and .no_csv");
    assert_null(tt_summary_writer_new(path));
    expect_error(tt_last_status(), TT_ERR_IO, "file/events.out.tfevents");
    strcat(path, "/below");
    assert_null(tt_summary_writer_new(path));
    expect_error(tt_last_status(), TT_ERR_IO, "can't make the folder");
    tt_clear_error();
    tt_summary_writer *writer = tt_summary_writer_new(*state);
    expect_error(tt_summary_writer_add_scalar(NULL, "a", 1, 1), TT_ERR_INVALID, "got NULL");
    expect_error(tt_summary_writer_add_scalar(writer, NULL, 1, 1), TT_ERR_INVALID, "got NULL");
    expect_error(tt_summary_writer_add_scalar(writer, "", 1, 1), TT_ERR_INVALID, "got \"\"");
    const double bad[] = {1, NAN};
    expect_error(tt_summary_writer_add_histogram(writer, "h", bad, 2, TT_F64, 1), TT_ERR_NAN, "got nan as number 1");
    expect_error(tt_summary_writer_add_histogram(writer, "h", bad, 0, TT_F64, 1), TT_ERR_INVALID, "at least 1 value");
    expect_error(tt_summary_writer_add_histogram(writer, "h", NULL, 1, TT_F64, 1), TT_ERR_INVALID, "got NULL and 1");
    expect_error(tt_summary_writer_add_histogram(writer, "h", bad, 2, TT_I32, 1), TT_ERR_DTYPE, "got i32");
    expect_error(tt_summary_writer_add_scalar(writer, "a\nb", 1, 1), TT_ERR_INVALID, "control characters");
    expect_error(tt_summary_writer_add_scalar(writer, "\xff", 1, 1), TT_ERR_INVALID, "UTF-8");
    expect_error(tt_summary_writer_add_scalar(writer, "a", 1, -1), TT_ERR_INVALID, "got -1");
    expect_error(tt_summary_writer_add_text(writer, "a", "\xff", 1), TT_ERR_INVALID, "got other bytes");
    tt_summary_writer_free(writer);
    tt__scalar_log log = {0};
    snprintf(path, sizeof path, "%s/none", (char *)*state);
    expect_error(tt__log_read_file(&log, path), TT_ERR_IO, "none");
    mkdir(path, 0777);
    expect_error(tt__log_read_folder(&log, path), TT_ERR_NOT_FOUND, "found none");
    expect_error(tt__log_read_file(&log, path), TT_ERR_IO, "expected a file");
    expect_error(tt__events_decode(&log, "abcdefghijklmnop", 16, "x"), TT_ERR_FORMAT, "first 12 bytes");
    tt__scalar_log_free(&log);
}

/* A file that must not grow beyond a limit, as on a full disk: one error, whole files, and on it goes. */
static void test_a_full_disk_is_one_error(void **state) {
    struct rlimit old, small;
    tt_summary_writer *writer = tt_summary_writer_new(*state, .no_csv = true);
    assert_non_null(writer);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = (struct rlimit){file_size(event_file(*state)) + 50, old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_int_equal(tt_summary_writer_add_scalar(writer, "loss", 1, 1), TT_OK);
    tt_status failed = tt_summary_writer_add_scalar(writer, "loss", 2, 2);
    tt_status again = tt_summary_writer_add_scalar(writer, "loss", 3, 3);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    expect_error(failed, TT_ERR_IO, "can't write to");
    assert_int_equal(again, TT_OK);
    assert_int_equal(tt_summary_writer_add_scalar(writer, "loss", 4, 4), TT_OK);
    tt_summary_writer_free(writer);
    tt__scalar_log log = {0};
    assert_int_equal(tt__log_read_folder(&log, *state), TT_OK);
    assert_string_equal(log.note, "");
    assert_int_equal(tt__scalar_log_find(&log, "loss")->count, 2);
    assert_point(&log, "loss", 1, 4, 4);
    tt__scalar_log_free(&log);
}

/* ---- memory ---- */

static tt_status log_program(void *run) {
    tt__scalar_log log = {0};
    tt_status status = TT_OK;
    tt_summary_writer *writer = tt_summary_writer_new(run);
    if (!writer)
        return tt_last_status();
    for (int step = 0; step < 40 && !status; step++)
        status = tt_summary_writer_add_scalar(writer, step % 2 ? "loss" : "a longer tag, for its cells", step, step);
    tt_summary_writer_free(writer);
    char csv[512];
    snprintf(csv, sizeof csv, "%s/scalars.csv", (char *)run);
    if (!status)
        status = tt__log_read_folder(&log, run);
    if (!status)
        status = tt__log_read_file(&log, csv);
    tt__scalar_log_free(&log);
    char command[600];
    snprintf(command, sizeof command, "rm -f '%s'/*", (char *)run);
    return system(command) ? TT_ERR_SYSTEM : status;
}

static void test_memory_runs_out(void **state) {
    if (!alloc_count_works)
        skip();
    assert_true(alloc_fail_each(log_program, *state, ALLOC_ENDS) > 10);
}

static void test_steady_steps_allocate_nothing(void **state) {
    if (!alloc_count_works)
        skip();
    tt_summary_writer *writer = tt_summary_writer_new(*state);
    assert_int_equal(tt_summary_writer_add_scalar(writer, "loss", 0.1, 1 << 20), TT_OK);
    long before = alloc_count;
    for (int step = 0; step < 100; step++)
        assert_int_equal(tt_summary_writer_add_scalar(writer, "loss", 0.1, step), TT_OK);
    assert_int_equal(alloc_count, before);
    tt_summary_writer_free(writer);
}

int main(void) {
#define IN_FOLDER(test) cmocka_unit_test_setup(test, begin_in_folder)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checksum),
        cmocka_unit_test(test_bytes_are_tensorboards),
        cmocka_unit_test(test_foreign_events),
        IN_FOLDER(test_what_is_written_is_read),
        IN_FOLDER(test_a_run_that_goes_on),
        IN_FOLDER(test_a_restart_purges),
        cmocka_unit_test(test_a_restart_is_tensorboards),
        IN_FOLDER(test_torn_at_every_byte),
        cmocka_unit_test(test_tables),
        IN_FOLDER(test_bad_arguments),
        IN_FOLDER(test_a_full_disk_is_one_error),
        IN_FOLDER(test_memory_runs_out),
        IN_FOLDER(test_steady_steps_allocate_nothing),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
