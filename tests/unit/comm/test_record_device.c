/* The flight recorder's device times: read with their call's number alone, as they were written, or not at all. */
#include "support/recorder.h"

static tt__record_slot *begin_call(void) {
    tt__record_slot *record = tt__record_begin(recorder, "train.c", 88, (tt__call_record){.op = TT_OP_ALL_REDUCE});
    tt__record_ready(record, TT__CALL_BEGUN);
    return record;
}

static tt__record_device ran_as(uint32_t number) { return (tt__record_device){number, TT_DEVICE_CUDA, 3, 5000, 700}; }

static void times_are_read_back(void **state) {
    (void)state;
    const tt__record_slot *record = begin_call();
    tt__record_device ran = ran_as(atomic_load(&record->number)), copy;
    assert_false(tt__record_read_device(recorder, ran.number, &copy));
    tt__record_note_device(recorder, record, &ran);
    read_by_another();
    assert_true(tt__record_read_device(recorder, ran.number, &copy));
    assert_true(copy.number == ran.number && copy.type == TT_DEVICE_CUDA && copy.index == 3);
    assert_true(copy.begin_ns == 5000 && copy.duration_ns == 700);
    assert_false(tt__record_read_device(recorder, ran.number + 1, &copy));
    assert_false(tt__record_read_device(recorder, ran.number + TT__RECORDS, &copy));
}

static void halves_are_none(void **state) {
    (void)state;
    const tt__record_device ran = ran_as(atomic_load(&begin_call()->number));
    tt__record_device copy;
    tt__device_slot *slot = &recorder->devices[(ran.number - 1) % TT__RECORDS];
    _Atomic uint64_t *const fields[] = {&slot->begin_ns, &slot->duration_ns};
    for (int i = 0; i < 2; i++) {
        tt__record_put_device(recorder, &ran);
        assert_true(tt__record_read_device(recorder, ran.number, &copy));
        atomic_fetch_add(fields[i], 1);
        assert_false(tt__record_read_device(recorder, ran.number, &copy));
    }
    tt__record_put_device(recorder, &ran);
    atomic_store(&slot->device, 5);
    assert_false(tt__record_read_device(recorder, ran.number, &copy));
}

/* Whoever may write to the memory may write anything. */
static void impossible_times_are_none(void **state) {
    (void)state;
    const int64_t bad[][2] = {{5000, -1}, {5000, TT__NS_MAX + 1}, {INT64_MAX, 1}, {INT64_MIN, 1}};
    tt__record_device ran = ran_as(atomic_load(&begin_call()->number)), copy;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ran.begin_ns = bad[i][0];
        ran.duration_ns = bad[i][1];
        tt__record_put_device(recorder, &ran);
        assert_false(tt__record_read_device(recorder, ran.number, &copy));
    }
}

static void a_forgotten_call_leaves_the_newcomer_alone(void **state) {
    (void)state;
    const tt__record_slot *record = begin_call();
    const tt__record_device ran = ran_as(atomic_load(&record->number));
    tt__record_device copy;
    for (int i = 0; i < TT__RECORDS; i++)
        begin_call();
    const tt__record_device newer = ran_as(ran.number + TT__RECORDS);
    tt__record_note_device(recorder, record, &newer);
    tt__record_note_device(recorder, record, &ran);
    assert_true(tt__record_read_device(recorder, newer.number, &copy));
    assert_false(tt__record_read_device(recorder, ran.number, &copy));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(times_are_read_back, recorder_setup, recorder_teardown),
        cmocka_unit_test_setup_teardown(halves_are_none, recorder_setup, recorder_teardown),
        cmocka_unit_test_setup_teardown(impossible_times_are_none, recorder_setup, recorder_teardown),
        cmocka_unit_test_setup_teardown(a_forgotten_call_leaves_the_newcomer_alone, recorder_setup, recorder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
