/* A name that only the dead hold is replaced by the next creator, removed by rb_unlink, or found by who attaches. */
#include "t.h"

static const char *name;

static void create_and_die(void *arg)
{
	rb_ring *ring = t_create(.name = name, .slots = 2, .slot_bytes = 64, .redeliver = true);

	(void)arg;
	t_put(ring, 1);
	t_claim(ring, 2);
	raise(SIGKILL);
}

static void leave_a_name(void)
{
	t_equal(t_wait(t_child(create_and_die, NULL)), SIGKILL);
	t_check(t_name_exists(name));
}

int main(void)
{
	rb_ring *ring;

	name = t_name();
	leave_a_name();
	ring = t_create(.name = name, .slots = 3, .slot_bytes = 128);
	t_equal(t_stats(ring).free, 3); /* nothing of the old one */
	t_equal(t_stats(ring).participants, 1);
	rb_detach(ring);
	t_check(!t_name_exists(name));

	leave_a_name();
	t_equal(rb_unlink(name), 0);
	t_check(!t_name_exists(name));
	t_equal(rb_unlink(name), -ENOENT);

	leave_a_name();
	t_equal(rb_attach(name, &ring), 0);
	t_equal(t_stats(ring).participants, 1);
	t_equal(t_stats(ring).lost, 1);
	t_equal(t_get(ring), 1);
	rb_detach(ring);
	t_check(!t_name_exists(name));
	t_equal(rb_attach(name, &ring), -ENOENT);
	return 0;
}
