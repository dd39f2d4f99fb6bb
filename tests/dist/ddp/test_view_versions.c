/* Flight recorders of another version of Tutti: `tutti top` says so, and shows nothing of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cli/look/job_view.h"

#include <stdlib.h>
#include <string.h>

static tt__recorder *some_recorder(void) {
    tt__recorder *recorder = aligned_alloc(_Alignof(tt__recorder), sizeof *recorder);
    assert_non_null(recorder);
    memset((void *)recorder, 0, sizeof *recorder);
    tt__recorder_init(recorder, 0, 1);
    tt__record_ready(tt__record_begin(recorder, "train.c", 7, (tt__call_record){.op = TT_OP_BARRIER}), TT__CALL_BEGUN);
    return recorder;
}

/* What a page says of a rank with this recorder, of `size` bytes; to be freed. */
static char *page_of(const tt__recorder *recorder, size_t size) {
    char *text = NULL;
    size_t length;
    tt__view view;
    tt__seen_rank *seen = calloc(1, sizeof *seen);
    FILE *out = open_memstream(&text, &length);
    assert_true(seen && out);
    *seen = (tt__seen_rank){
        .rank = {.pid = 1, .state = TT__JOB_RUNNING, .now = tt__moment_now()}, .memory = -1, .recorder = recorder};
    seen->rank.at.size = size;
    tt__snapshot snapshot = {.ranks = seen, .n = 1};
    assert_int_equal(tt__view_make(&view, &snapshot), TT_OK);
    assert_int_equal(tt__top_text(&view, &(tt__top_page){.columns = 0}, out), TT_OK);
    fclose(out);
    tt__view_free(&view);
    return text;
}

static void other_versions_are_named(void **state) {
    tt__recorder *recorder = some_recorder();
    const uint64_t magics[] = {recorder->magic, recorder->magic - (UINT64_C(1) << 56), recorder->magic};
    const size_t sizes[] = {sizeof *recorder, sizeof *recorder, offsetof(tt__recorder, devices)};
    (void)state;
    for (int i = 0; i < 3; i++) {
        recorder->magic = magics[i];
        char *text = page_of(recorder, sizes[i]);
        assert_true((strstr(text, "uses another version of Tutti") != NULL) == (i > 0));
        assert_true((strstr(text, "barrier() at train.c:7") != NULL) == (i == 0));
        free(text);
    }
    char *text = page_of(NULL, 0);
    assert_non_null(strstr(text, " joined a group"));
    free(text);
    free(recorder);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(other_versions_are_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
