/* In a supervised ring what a dead process had in hand stays to be seen, with its pid, tag and target, whatever others do
 * meanwhile, until rb_recover() is called. */
#include "t.h"

static rb_ring *ring;
static _Atomic int *step;

static void take_one_claim_one(void *arg)
{
	rb_ring *own = NULL;
	struct rb_slot slot;

	(void)arg;
	t_equal(rb_attach_fd_supervised(rb_fd(ring), &own), 0);
	t_equal(t_take(own).tag, 1);
	t_equal(rb_claim(own, 7, 70, RB_NOW, &slot), 0);
	atomic_store(step, 1);
	t_hang();
}

static struct rb_view look(uint64_t tag)
{
	struct rb_view view;

	for (uint32_t i = 0; i < 3; i++)
		if (rb_look(ring, i, &view) == 0 && view.tag == tag)
			return view;
	t_check(!"no slot has this tag");
	return view;
}

/* All that makes others look for the dead elsewhere: joining, a claim and a take that find nothing, waits, a drained ring. */
static void bustle(void)
{
	rb_ring *other = NULL;
	struct rb_slot slot;
	struct rb_filter wanted = { .by_tag = true, .tag = 1 };

	t_equal(rb_attach_fd_supervised(rb_fd(ring), &other), 0);
	t_put(other, 3);
	t_sleep_ms(20); /* else a claim looks for nobody: it was looked a moment ago */
	t_equal(rb_claim(other, 4, RB_ANY, RB_NOW, &slot), -EAGAIN);
	t_equal(rb_take(other, &wanted, rb_now_ns() + 150 * T_MS_NS, &slot), -ETIMEDOUT);
	t_equal(t_get(other), 3);
	rb_detach(other);
}

static void words_that_name_nobody(void)
{
	const uint64_t nobody[] = { 0, 2, 4095 }; /* no row, a row that nobody has joined, a row that does not exist */
	struct rb_map map = t_map(ring);
	struct rb_view view;

	for (int i = 0; i < 3; i++) {
		atomic_store(&map.descs[0].word, rb_word(&map, RB_READING, nobody[i], 1));
		t_equal(rb_look(ring, 0, &view), 0);
		t_equal(view.state, RB_READING);
		t_equal(view.pid, 0);
	}
	t_unmap(&map);
}

/* Its claimer has died, or is about to write it. */
static void a_claim_whose_tag_is_not_written(void)
{
	struct rb_map map = t_map(ring);
	struct rb_view view;

	atomic_store(&map.descs[0].word, rb_word(&map, RB_WRITING, 2, 12345));
	t_equal(rb_look(ring, 0, &view), 0);
	t_equal(view.state, RB_WRITING);
	t_check(view.tag == RB_TAG_UNKNOWN);
	t_equal(view.target, RB_ANY);
	t_equal(view.ticket, 0);
	t_unmap(&map);
}

int main(void)
{
	struct rb_view view;
	uint64_t word = 0;

	step = t_shared(sizeof(*step));
	ring = t_create(.slots = 3, .slot_bytes = 64, .supervised = true);
	t_put(ring, 1);
	view = look(1);
	t_equal(view.state, RB_READY);
	t_equal(view.pid, 0);
	t_equal(view.ticket, 1);
	pid_t child = t_child(take_one_claim_one, NULL);
	t_await(step, 1);
	for (int dead = 0; dead <= 1; dead++) {
		view = look(1);
		t_equal(view.state, RB_READING);
		t_equal(view.pid, child);
		t_equal(view.target, RB_ANY);
		t_equal(view.ticket, 1);
		t_check(!dead || view.word == word); /* nobody has touched it */
		word = view.word;
		view = look(7);
		t_equal(view.state, RB_WRITING);
		t_equal(view.pid, child);
		t_equal(view.target, 70);
		t_equal(view.ticket, 0);
		if (!dead)
			t_kill(child);
		bustle();
	}
	t_equal(rb_recover(ring), 2);
	for (uint32_t i = 0; i < 3; i++) {
		t_equal(rb_look(ring, i, &view), 0);
		t_equal(view.state, RB_FREE);
		t_equal(view.pid, 0);
		t_check(view.tag == RB_TAG_UNKNOWN);
	}
	t_equal(rb_look(ring, 3, &view), -EINVAL);
	words_that_name_nobody();
	a_claim_whose_tag_is_not_written();
	rb_detach(ring);
	return 0;
}
