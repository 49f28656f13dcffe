/* Sixteen readers that died owe nothing and hold no slot; the next reader still finds an entry, at its first call. */
#include "t.h"

static rb_ring *ring;
static _Atomic int *subscribed;

static void subscribe_and_hang(void *arg)
{
	(void)arg;
	t_equal(rb_subscribe(ring), 0);
	atomic_fetch_add(subscribed, 1);
	t_hang();
}

int main(void)
{
	pid_t children[RB_READERS_MAX];

	subscribed = t_shared(sizeof(*subscribed));
	ring = t_broadcast(2);
	for (int r = 0; r < (int)RB_READERS_MAX; r++)
		children[r] = t_child(subscribe_and_hang, NULL);
	t_await(subscribed, RB_READERS_MAX);
	t_equal(rb_subscribe(ring), -EUSERS);
	for (int r = 0; r < (int)RB_READERS_MAX; r++)
		t_kill(children[r]);

	t_equal(rb_subscribe(ring), 0);
	t_equal(t_stats(ring).readers, 1);
	rb_detach(ring);
	return 0;
}
