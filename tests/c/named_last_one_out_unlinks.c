/* The name goes with the last who leaves, however many were there; a name that leads to another ring by then is left alone. */
#include "t.h"

#define CROWD 4

static const char *name;
static _Atomic int *step;

static void come_and_leave(void *arg)
{
	rb_ring *ring;

	(void)arg;
	t_equal(rb_attach(name, &ring), 0);
	atomic_fetch_add(step, 1);
	t_await(step, CROWD + 1);
	rb_detach(ring);
}

/* However they leave, at once: the name is gone when all are. */
static void leave_at_once(void)
{
	pid_t children[CROWD];
	rb_ring *ring = t_create(.name = name, .slots = 1, .slot_bytes = 64, .participants = 8);

	atomic_store(step, 0);
	for (int i = 0; i < CROWD; i++)
		children[i] = t_child(come_and_leave, NULL);
	t_await(step, CROWD);
	t_check(t_name_exists(name));
	atomic_fetch_add(step, 1);
	rb_detach(ring);
	for (int i = 0; i < CROWD; i++)
		t_ends_well(children[i]);
	t_check(!t_name_exists(name));
}

int main(void)
{
	rb_ring *first, *second;

	name = t_name();
	step = t_shared(sizeof(*step));
	first = t_create(.name = name, .slots = 1, .slot_bytes = 64);
	t_equal(rb_attach(name, &second), 0);
	rb_detach(first);
	t_check(t_name_exists(name));
	rb_detach(second);
	t_check(!t_name_exists(name));

	/* By descriptor one needs no name, but keeps it as well. */
	first = t_create(.name = name, .slots = 1, .slot_bytes = 64);
	second = t_attach(first);
	rb_detach(first);
	t_check(t_name_exists(name));
	rb_detach(second);
	t_check(!t_name_exists(name));

	/* Somebody removed the name by hand, and it is a new ring's now. */
	first = t_create(.name = name, .slots = 1, .slot_bytes = 64);
	t_equal(unlink(t_path(name)), 0);
	second = t_create(.name = name, .slots = 1, .slot_bytes = 64);
	rb_detach(first);
	t_check(t_name_exists(name));
	rb_detach(second);
	t_check(!t_name_exists(name));

	for (int i = 0; i < T_ROUNDS(100); i++)
		leave_at_once();
	return 0;
}
