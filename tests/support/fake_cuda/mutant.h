/* Bugs that tests plant (tests/dist/devices/test_cuda_mutants.c): a call that has no effect, at one place of Tutti's
 * code.
 *
 *   FAKE_CUDA_MUTANT=KIND PLACE     the place, as FAKE_CUDA_PLACES lists it: "event_record libtutti-cuda.so+0x12345"
 *   FAKE_CUDA_MUTANT=order stream   a stream runs some work before what it was given earlier
 *   FAKE_CUDA_PLACES=file           append a line for each place that makes such a call; of events that are recorded,
 *                                   if anything ever waits for them: others are there for their times
 *
 * With a mutant streams are late more often. */
#ifndef FAKE_CUDA_MUTANT_H
#define FAKE_CUDA_MUTANT_H

enum fake_call { FAKE_STREAM_WAIT, FAKE_EVENT_RECORD, FAKE_EVENT_SYNC, FAKE_EVENT_QUERY, FAKE_STREAM_SYNC };

/* Of a call that returns to `place`: is it to have no effect? */
bool fake_is_planted(fake_call call, void *place);

/* Append a line for a place that recorded an event. */
void fake_note_recorded(void *place);

/* Is there a mutant? Is it "order stream"? */
bool fake_has_mutant();
bool fake_overtakes();

#define FAKE_PLANTED(call) fake_is_planted(call, __builtin_return_address(0))

#endif
