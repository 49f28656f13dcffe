/* Who notifies enters the kernel only when somebody may be asleep: the word moves then, and only then. */
#include "t.h"

#include "wait.h"

int main(void)
{
	struct rb_event event = { 0 };

	t_equal(rb_event_init(&event), 0);
	uint32_t at_rest = atomic_load(&event.word);
	rb_event_notify(&event);
	t_equal(atomic_load(&event.word), at_rest);

	uint32_t seen = rb_event_prepare(&event);
	t_equal(rb_event_prepare(&event), seen); /* announced already */
	rb_event_notify(&event);
	uint32_t moved = atomic_load(&event.word);
	t_check(moved != seen && moved != at_rest);
	rb_event_notify(&event); /* all were told */
	t_equal(atomic_load(&event.word), moved);

	/* A notification between the look and the sleep is not slept over; one that never comes is not waited for. */
	int64_t before = rb_now_ns();
	t_equal(rb_event_sleep(&event, seen, t_soon()), 0);
	t_check(rb_now_ns() < before + T_PATIENCE_NS);
	t_equal(rb_event_sleep(&event, rb_event_prepare(&event), before), -ETIMEDOUT);
	int64_t until = rb_now_ns() + 20 * T_MS_NS;
	t_equal(rb_event_sleep(&event, rb_event_prepare(&event), until), -ETIMEDOUT);
	t_check(rb_now_ns() >= until);
	return 0;
}
