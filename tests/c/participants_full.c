/* A full table of participants is -EUSERS for one more; a place is there again when one has left, or died. */
#include "t.h"

static rb_ring *ring;
static _Atomic int *step;

static void attach_and_hang(void *arg)
{
	(void)arg;
	t_put(ring, 1);
	atomic_store(step, 1);
	t_hang();
}

static void find_no_place(void *arg)
{
	struct rb_slot slot;

	(void)arg;
	t_equal(rb_claim(ring, 1, RB_ANY, t_soon(), &slot), -EUSERS); /* does not wait for one */
	t_equal(rb_take(ring, NULL, RB_NOW, &slot), -EUSERS);
	t_equal(rb_recover(ring), -EUSERS);
	t_equal(rb_ready(ring), -EUSERS);
	t_equal(rb_can_take(ring, NULL), -EUSERS);
	t_equal(rb_can_claim(ring), -EUSERS);
	t_equal(rb_await(ring, RB_TO_TAKE, rb_watch(ring, RB_TO_TAKE), RB_FOREVER), 0); /* look, and be told why not */
	t_equal(t_stats(ring).participants, 2); /* needs no place */
}

int main(void)
{
	rb_ring *second, *third = NULL;

	step = t_shared(sizeof(*step));
	ring = t_create(.slots = 4, .slot_bytes = 64, .participants = 2);
	second = t_attach(ring);
	int next_fd = dup(0);
	close(next_fd);
	t_equal(rb_attach_fd(rb_fd(ring), &third), -EUSERS);
	t_check(third == NULL);
	int fd = dup(0);
	t_equal(fd, next_fd);
	close(fd);
	t_ends_well(t_child(find_no_place, NULL));

	rb_detach(second);
	third = t_attach(ring);
	t_put(third, 2);
	t_equal(t_get(ring), 2);
	rb_detach(third);

	pid_t child = t_child(attach_and_hang, NULL);
	t_await(step, 1);
	t_equal(rb_attach_fd(rb_fd(ring), &third), -EUSERS);
	t_kill(child);
	third = t_attach(ring);
	t_equal(t_get(third), 1);
	rb_detach(third);
	rb_detach(ring);
	return 0;
}
