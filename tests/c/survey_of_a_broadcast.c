/* A survey of a broadcast ring says how many messages each reader still owes a release. */
#include "t.h"

int main(void)
{
	rb_ring *ring = t_broadcast(4), *quick = t_attach(ring), *slow = t_attach(ring);
	struct rb_survey *found;

	t_equal(rb_subscribe(quick), 0);
	t_equal(rb_subscribe(slow), 0);
	t_put(ring, 1);
	t_put(ring, 2);
	t_equal(t_get(quick), 1);
	struct rb_slot held = t_take(slow);
	struct rb_slot claimed = t_claim(ring, 3);
	t_equal(rb_survey_fd(rb_fd(ring), &found), 0);
	t_equal(found->stats.participants, 3);
	t_equal(found->stats.readers, 2);
	t_equal(found->peers[0].writing, 1);
	t_equal(found->peers[0].owed, 0);
	t_equal(found->peers[1].owed, 1);
	t_equal(found->peers[2].owed, 2);
	t_equal(found->peers[1].consumed, 1);
	rb_survey_free(found);
	t_equal(rb_release(slow, &held), 0);
	t_equal(rb_abort(ring, &claimed), 0);

	/* What a hostile peer writes names nobody. */
	struct rb_map map = t_map(ring);
	for (int b = 0; b < (int)RB_READERS_MAX; b++)
		atomic_store(&map.control->readers[b].owner, b % 2 ? UINT32_MAX : 200);
	for (uint32_t i = 0; i < 4; i++) {
		atomic_store(&map.descs[i].word, rb_word(&map, RB_READY, 0xffff, i + 1));
		atomic_store(&map.descs[i].bytes, UINT64_MAX);
	}
	t_equal(rb_survey_fd(rb_fd(ring), &found), 0);
	for (uint32_t i = 0; i < found->stats.participants; i++)
		t_equal(found->peers[i].owed, 0);
	t_equal(found->message_bytes, 0);
	rb_survey_free(found);
	for (uint32_t i = 0; i < 4; i++)
		atomic_store(&map.descs[i].word, rb_word(&map, i % 2 ? RB_READING : RB_WRITING, i < 2 ? 0 : 4095, i + 1));
	t_equal(rb_survey_fd(rb_fd(ring), &found), 0);
	for (uint32_t i = 0; i < found->stats.participants; i++)
		t_equal(found->peers[i].writing + found->peers[i].reading, 0);
	rb_survey_free(found);
	return 0; /* without detaching: nobody could make sense of this ring */
}
