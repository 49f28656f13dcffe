/* Wherever in an unsubscribe another thread releases the last message in hand, the reader is one no more: whoever comes last ends it. */
#include "t.h"

#include "legal.h"

static rb_ring *ring;
static struct rb_slot held;
static _Atomic int released;
static pthread_t releaser;

static struct {
	int at, now;
	_Atomic bool on;
} steps;

static void *release(void *arg)
{
	(void)arg;
	t_equal(rb_release(ring, &held), 0);
	released = 1;
	return NULL;
}

void rb_between(void);

void rb_between(void)
{
	if (!steps.on || ++steps.now != steps.at)
		return;
	steps.on = false;
	releaser = t_thread(release, NULL);
	for (int i = 0; i < 100 && !released; i++) /* it may have to wait for the one that unsubscribes */
		usleep(100);
}

static bool at_step(int n)
{
	ring = t_broadcast(2);
	struct rb_map map = t_map(ring);
	t_equal(rb_subscribe(ring), 0);
	t_put(ring, 1);
	t_put(ring, 2);
	held = t_take(ring);
	released = 0;
	steps.at = n;
	steps.now = 0;
	steps.on = true;
	t_equal(rb_unsubscribe(ring), 0);
	steps.on = false;
	bool reached = steps.now >= n;
	if (reached)
		t_join(releaser);
	else
		release(NULL);
	legal_owners(&map, rb_fd(ring));
	t_equal(atomic_load(&map.control->readers[0].owner), 0);
	t_equal(t_stats(ring).readers, 0);
	t_equal(t_stats(ring).free, 2);
	t_unmap(&map);
	rb_detach(ring);
	return reached;
}

int main(void)
{
	int n = 0;

	do
		snprintf(t_context, sizeof(t_context), "released at step %d: ", ++n);
	while (at_step(n));
	t_check(n > 10);
	return 0;
}
