/* A slot that changes hands at any step of a look is shown as it was at one moment: tag, target, pid and state belong together;
 * one that changes hands again and again is not shown. */
#include "t.h"

static rb_ring *ring, *other;
static struct rb_slot slot; /* of `other` */
static int phase;
static uint64_t tag = 1;
static struct {
	int at, every, now; /* interfere at this step, or at each n-th */
	bool inside;
} steps;

/* One step in the life of the only slot; targets say what the tags say. */
static void advance(void)
{
	switch (phase++ % 4) {
	case 0: t_equal(rb_claim(other, tag, (uint32_t)tag, RB_NOW, &slot), 0); break;
	case 1: t_equal(rb_commit(other, &slot, 0), 0); break;
	case 2: t_equal(rb_take(other, NULL, RB_NOW, &slot), 0); break;
	case 3: t_equal(rb_release(other, &slot), 0); tag++; break;
	}
}

void rb_between(void);

void rb_between(void)
{
	if (steps.inside || (steps.at == 0 && steps.every == 0))
		return;
	steps.now++;
	if (steps.now != steps.at && (steps.every == 0 || steps.now % steps.every))
		return;
	steps.inside = true;
	advance();
	steps.inside = false;
}

static void check(const struct rb_view *view)
{
	bool held = view->state == RB_WRITING || view->state == RB_READING;

	t_equal(view->pid, held ? getpid() : 0);
	if (view->state == RB_FREE) {
		t_check(view->tag == RB_TAG_UNKNOWN);
		t_check(view->target == RB_ANY);
	} else {
		t_check(view->tag == tag || view->tag + 1 == tag);
		t_equal(view->target, view->tag);
	}
	t_equal(view->ticket != 0, view->state == RB_READY || view->state == RB_READING);
}

int main(void)
{
	struct rb_view view;

	ring = t_queue(1);
	other = t_attach(ring);
	for (int first = 0; first < 4; first++) {
		for (int at = 1; at <= 12; at++) {
			snprintf(t_context, sizeof(t_context), "from phase %d, changed at step %d: ", phase % 4, at);
			steps.at = at;
			steps.now = 0;
			t_equal(rb_look(ring, 0, &view), 0);
			steps.at = 0;
			check(&view);
		}
		advance();
	}
	t_context[0] = '\0';
	steps.every = 1;
	t_equal(rb_look(ring, 0, &view), -EAGAIN);
	t_equal(rb_count_tags(ring, UINT64_MAX - 1, UINT64_MAX - 1), 1); /* who cannot be seen is not gone */
	steps.every = 0;
	rb_detach(other);
	rb_detach(ring);
	return 0;
}
