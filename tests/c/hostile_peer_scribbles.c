/* A peer that writes anything anywhere behind the header gets nobody to crash, hang or look outside its slots: calls return, with an answer or an error. */
#include "t.h"

#define ROUNDS T_ROUNDS(40000)
#define SLOTS 4
#define SLOT_BYTES 100

static rb_ring *ring;
static struct rb_map map;
static uint64_t state = 88172645463325252u;

/* Numbers that are likely to hurt: small, near a limit, near what is there, or random. */
static uint64_t nasty(uint64_t old)
{
	uint64_t random = t_random(&state);

	switch (t_random(&state) % 8) {
	case 0: return 0;
	case 1: return UINT64_MAX;
	case 2: return random % 8;
	case 3: return old + random % 3 - 1;
	case 4: return old ^ UINT64_C(1) << random % 64;
	case 5: return rb_word(&map, (enum rb_state)(random % 8), random >> 8 & 3, random >> 20 & 63);
	case 6: return rb_word(&map, (enum rb_state)(random % 4), random >> 8, atomic_load(&map.control->tickets) + (random >> 40) % 8);
	default: return random;
	}
}

/* A POSIX semaphore in shared memory is a matter of trust: the C library aborts when it finds one damaged. */
static bool is_bell(const void *word)
{
	const char *at = word, *events[] = { (const char *)&map.control->ready, (const char *)&map.control->freed };

	for (int i = 0; i < 2; i++)
		if (RB_WAIT_KIND == 2 && at >= events[i] + 16 && at < events[i] + sizeof(struct rb_event))
			return true;
	return false;
}

static void scribble_over(void *from, size_t bytes)
{
	_Atomic uint64_t *word = (_Atomic uint64_t *)from + t_random(&state) % (bytes / 8);

	if (is_bell(word))
		return;
	atomic_store(word, nasty(atomic_load(word)));
}

static void scribble(void)
{
	for (uint64_t n = t_random(&state) % 6 + 1; n > 0; n--)
		switch (t_random(&state) % 4) {
		case 0: scribble_over(map.control, sizeof(*map.control)); break;
		case 1: scribble_over(map.rows, map.header.participants * sizeof(*map.rows)); break;
		default: scribble_over(map.descs, SLOTS * sizeof(*map.descs)); break;
		}
}

/* Whatever it says it is, it lies where a slot lies. */
static void check_slot(const struct rb_slot *slot)
{
	t_check(slot->index < SLOTS);
	t_check(slot->bytes <= SLOT_BYTES);
	memset(slot->data, 0x5a, SLOT_BYTES); /* faults if it does not lie in the mapping */
}

static int64_t deadline(void)
{
	return t_random(&state) % 16 ? RB_NOW : rb_now_ns() + T_MS_NS / 10;
}

static void use(void)
{
	struct rb_slot claimed, taken;
	struct rb_lost lost[RB_LOST_LOG];
	struct rb_filter filter = { .by_tag = t_random(&state) & 1, .by_target = t_random(&state) & 1, .tag = 1, .target = 1 };

	if (rb_claim(ring, 1, RB_ANY, deadline(), &claimed) == 0) {
		check_slot(&claimed);
		if (t_random(&state) & 1)
			scribble();
		if (t_random(&state) & 3)
			rb_commit(ring, &claimed, SLOT_BYTES);
		else
			rb_abort(ring, &claimed);
	}
	if (rb_take(ring, t_random(&state) & 1 ? &filter : NULL, deadline(), &taken) == 0) {
		check_slot(&taken);
		if (t_random(&state) & 1)
			scribble();
		rb_release(ring, &taken);
	}
	t_stats(ring);
	t_check(rb_ready(ring) >= 0 && rb_ready(ring) <= SLOTS);
	int n = rb_get_lost(ring, lost, RB_LOST_LOG);
	t_check(n >= 0 && n <= (int)RB_LOST_LOG);
	t_check(rb_recover(ring) >= 0);
	rb_wake(ring);
	if (t_random(&state) % 8 == 0)
		rb_unsubscribe(ring);
	if (t_random(&state) % 64 == 0)
		rb_finish(ring);
}

/* Whoever comes afterwards may be refused, but no worse. */
static void come_and_go(void)
{
	rb_ring *late;

	if (rb_attach_fd(rb_fd(ring), &late) == 0)
		rb_detach(late);
}

static void suffer(struct rb_options options)
{
	for (int round = 0; round < ROUNDS / 20; round++) {
		ring = t_create_at(__FILE__, __LINE__, options);
		map = t_map(ring);
		for (int i = 0; i < 20; i++) {
			uint64_t before = state;
			snprintf(t_context, sizeof(t_context), "round %d.%d, state %llu: ", round, i, (unsigned long long)before);
			scribble();
			use();
		}
		come_and_go();
		t_unmap(&map);
		rb_detach(ring);
	}
}

int main(void)
{
	alarm(2 * T_PATIENCE_NS / T_SECOND_NS);
	suffer((struct rb_options){ .slots = SLOTS, .slot_bytes = SLOT_BYTES, .participants = 3, .redeliver = true });
	suffer((struct rb_options){ .slots = SLOTS, .slot_bytes = SLOT_BYTES, .participants = 3, .full = RB_OVERWRITE });
	suffer((struct rb_options){ .slots = SLOTS, .slot_bytes = SLOT_BYTES, .participants = 3, .mode = RB_BROADCAST });
	return 0;
}
