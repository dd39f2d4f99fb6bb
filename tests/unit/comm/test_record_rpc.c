/* The flight recorder's calls to workers, and what a worker has under way: read as they were written, or not at all. */
#include "support/recorder.h"

static void calls_are_read_back(void **state) {
    (void)state;
    tt__rpc_record copy;
    tt__rpc_record_name(recorder, 2, "step");
    uint32_t first = tt__rpc_record_begin(recorder, 2, 5, 4096), second = tt__rpc_record_begin(recorder, 0, 6, 0);
    tt__rpc_record_done(recorder, first, TT__CALL_FAILED, 0);
    read_by_another();
    assert_true(tt__rpc_record_read(recorder, first, &copy));
    assert_true(copy.number == first && copy.to == 5 && copy.bytes == 4096 && copy.state == TT__CALL_FAILED);
    assert_string_equal(recorder->rpc_functions[copy.function], "step");
    assert_true(copy.begin && copy.end >= copy.begin);
    assert_true(tt__rpc_record_read(recorder, second, &copy));
    assert_true(copy.to == 6 && copy.state == TT__CALL_BEGUN && !copy.end);
    assert_false(tt__rpc_record_read(recorder, second + 1, &copy));
    assert_false(tt__rpc_record_read(recorder, 0, &copy));
}

/* A call that lasts longer than the ring remembers ends without a trace in the record of another. */
static void the_oldest_make_room(void **state) {
    (void)state;
    tt__rpc_record copy;
    recorder->rpc_calls = UINT32_MAX - 100;
    uint32_t first = tt__rpc_record_begin(recorder, 2, 5, 1), last = first;
    for (int i = 0; i < TT__RPC_RECORDS; i++)
        last = tt__rpc_record_begin(recorder, 2, 7, 2);
    assert_false(tt__rpc_record_read(recorder, first, &copy));
    tt__rpc_record_done(recorder, first, TT__CALL_DONE, 0);
    assert_true(tt__rpc_record_read(recorder, last, &copy));
    assert_true(copy.state == TT__CALL_BEGUN && copy.to == 7);
}

/* Many short calls don't hide a long one. */
static void a_call_that_is_not_done_keeps_its_record(void **state) {
    (void)state;
    tt__rpc_record copy;
    recorder->rpc_calls = UINT32_MAX - 700;
    uint32_t first = tt__rpc_record_begin(recorder, 2, 5, 1), other = 0;
    for (int i = 0; i < 10 * TT__RPC_RECORDS; i++) {
        other = tt__rpc_record_begin(recorder, 3, 7, 2);
        assert_true(other && other != first);
        tt__rpc_record_done(recorder, other, i % 2 ? TT__CALL_DONE : TT__CALL_FAILED, 0);
    }
    assert_true(tt__rpc_record_read(recorder, first, &copy));
    assert_true(copy.state == TT__CALL_BEGUN && copy.to == 5);
    tt__rpc_record_done(recorder, first, TT__CALL_DONE, 0);
    assert_int_equal(recorder->rpc_open, 0);
    for (int i = 0; i < TT__RPC_RECORDS; i++)
        tt__rpc_record_done(recorder, tt__rpc_record_begin(recorder, 3, 7, 2), TT__CALL_DONE, 0);
    assert_false(tt__rpc_record_read(recorder, first, &copy));
}

static void what_is_under_way_is_read_back(void **state) {
    (void)state;
    tt__rpc_shown copy;
    double made, served;
    assert_false(tt__rpc_shown_read(recorder, &copy));
    const tt__rpc_shown before = {.id = 4, .name = "p\033s"}, now = {.id = 4,
                                                                     .name = "p\033s",
                                                                     .calls = 3,
                                                                     .calls_made = 100,
                                                                     .served = 1000,
                                                                     .owned = 7,
                                                                     .makers = {{.count = 7, .function = 1 << 20}}};
    tt__rpc_publish(recorder, &before);
    tt__rpc_publish(recorder, &now);
    read_by_another();
    assert_true(tt__rpc_shown_read(recorder, &copy));
    assert_true(copy.id == 4 && copy.calls == 3 && copy.owned == 7 && copy.makers[0].count == 7);
    assert_null(strchr(copy.name, '\033'));
    assert_int_equal(copy.makers[0].function, 0);
    tt__rpc_shown_rates(&copy, &made, &served);
    assert_true(made > 0 && served > 9 * made && served < 11 * made);
    tt__rpc_publish(recorder, &(tt__rpc_shown){.id = -1}); /* it is a worker no more */
    assert_false(tt__rpc_shown_read(recorder, &copy));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(calls_are_read_back, recorder_setup, recorder_teardown),
        cmocka_unit_test_setup_teardown(the_oldest_make_room, recorder_setup, recorder_teardown),
        cmocka_unit_test_setup_teardown(a_call_that_is_not_done_keeps_its_record, recorder_setup, recorder_teardown),
        cmocka_unit_test_setup_teardown(what_is_under_way_is_read_back, recorder_setup, recorder_teardown),
    };
    return cmocka_run_group_tests_name("record_rpc", tests, NULL, NULL);
}
