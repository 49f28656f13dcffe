/* A peer that writes anything anywhere behind the header gets nobody to crash, hang or look outside its slots: calls return, with an answer or an error. */
#include "t.h"

#include "hostile.h"

#define ROUNDS T_ROUNDS(40000)

static rb_ring *ring;
static unsigned char *payload;
static struct hostile peer;

static uint64_t dice(void)
{
	return hostile_random(&peer);
}

static void scribble(void)
{
	for (uint64_t n = dice() % 6 + 1; n > 0; n--)
		hostile_anything(&peer);
}

static int64_t deadline(void)
{
	return dice() % 16 ? RB_NOW : rb_now_ns() + T_MS_NS / 10;
}

static void look_from_outside(void)
{
	struct rb_survey *found;

	t_equal(rb_survey_fd(rb_fd(ring), &found), 0);
	t_check(found->readable && found->stats.participants <= found->info.participants);
	t_check(found->message_bytes <= HOSTILE_SLOT_BYTES);
	rb_survey_free(found);
}

static void use(void)
{
	struct rb_slot claimed, taken;
	struct rb_lost lost[RB_LOST_LOG];
	struct rb_filter filter = { .by_tag = dice() & 1, .by_target = dice() & 1, .tag = 1, .target = 1 };

	if (rb_claim(ring, 1, RB_ANY, deadline(), &claimed) == 0) {
		hostile_check(ring, &claimed, payload);
		if (dice() & 1)
			scribble();
		if (dice() & 3)
			rb_commit(ring, &claimed, HOSTILE_SLOT_BYTES);
		else
			rb_abort(ring, &claimed);
	}
	if (rb_take(ring, dice() & 1 ? &filter : NULL, deadline(), &taken) == 0) {
		hostile_check(ring, &taken, payload);
		if (dice() & 1)
			scribble();
		rb_release(ring, &taken);
	}
	t_stats(ring);
	look_from_outside();
	t_check(rb_ready(ring) >= 0 && rb_ready(ring) <= HOSTILE_SLOTS);
	int n = rb_get_lost(ring, lost, RB_LOST_LOG);
	t_check(n >= 0 && n <= (int)RB_LOST_LOG);
	t_check(rb_recover(ring) >= 0);
	rb_wake(ring);
	if (dice() % 8 == 0)
		rb_unsubscribe(ring);
	if (dice() % 64 == 0)
		rb_finish(ring);
}

/* Whoever comes afterwards may be refused, but no worse. */
static void come_and_go(void)
{
	rb_ring *late;

	if (rb_attach_fd(rb_fd(ring), &late) == 0)
		rb_detach(late);
}

static void suffer(struct rb_options options, uint64_t seed)
{
	for (int round = 0; round < ROUNDS / 20; round++) {
		ring = t_create_at(__FILE__, __LINE__, options);
		payload = hostile_payload(ring);
		peer = hostile_at(ring, seed);
		for (int i = 0; i < 20; i++) {
			snprintf(t_context, sizeof(t_context), "round %d.%d, seed %llu: ", round, i, (unsigned long long)seed);
			scribble();
			use();
		}
		seed = peer.state;
		come_and_go();
		t_unmap(&peer.map);
		rb_detach(ring);
	}
}

int main(void)
{
	alarm(2 * T_PATIENCE_NS / T_SECOND_NS);
	for (size_t kind = 0; kind < HOSTILE_RINGS; kind++)
		suffer(hostile_rings[kind], 88172645463325252u + kind);
	return 0;
}
