/* Options out of range are -EINVAL, sizes that do not fit are -EOVERFLOW; the ends of each range work. */
#include "t.h"

#define t_rejects(want, ...) reject(__LINE__, want, (struct rb_options){ __VA_ARGS__ })

static void reject(int line, int want, struct rb_options options)
{
	rb_ring *ring = NULL;
	uint64_t bytes = 0;
	int planned = rb_segment_bytes(&options, &bytes), made = rb_create(&options, &ring);

	if (planned != want || made != want || ring != NULL || bytes != 0)
		t_die(__FILE__, line, "segment_bytes says %d, create %d, wanted %d", planned, made, want);
}

static void use(const struct rb_options *options)
{
	rb_ring *ring;
	struct rb_info info;
	uint64_t bytes;

	t_equal(rb_segment_bytes(options, &bytes), 0);
	t_equal(rb_create(options, &ring), 0);
	rb_get_info(ring, &info);
	t_equal(info.total_bytes, bytes);
	t_equal(info.slots, options->slots);
	t_equal(info.participants, options->participants);
	t_equal(t_stats(ring).free, options->slots);
	struct rb_slot slot = t_claim(ring, 1);
	*(unsigned char *)slot.data = 1;
	t_equal(rb_commit(ring, &slot, 1), 0);
	rb_detach(ring);
}

int main(void)
{
	t_rejects(-EINVAL, .slots = 0, .slot_bytes = 1);
	t_rejects(-EINVAL, .slots = RB_SLOTS_MAX + 1, .slot_bytes = 1);
	t_rejects(-EINVAL, .slots = UINT32_MAX, .slot_bytes = 1);
	t_rejects(-EINVAL, .slots = 1, .slot_bytes = 0);
	t_rejects(-EINVAL, .slots = 1, .slot_bytes = 1, .participants = RB_PARTICIPANTS_MAX + 1);
	t_rejects(-EINVAL, .slots = 1, .slot_bytes = 1, .participants = UINT32_MAX);
	t_rejects(-EINVAL, .slots = 1, .slot_bytes = 1, .mode = (enum rb_mode)2);
	t_rejects(-EINVAL, .slots = 1, .slot_bytes = 1, .full = (enum rb_full)2);
	t_rejects(-EINVAL, .slots = 1, .slot_bytes = 1, .hugepages = (enum rb_hugepages)3);
	t_rejects(-EINVAL, .slots = 1, .slot_bytes = 1, .mode = RB_BROADCAST, .full = RB_OVERWRITE);

	t_rejects(-EOVERFLOW, .slots = 1, .slot_bytes = UINT64_MAX);
	t_rejects(-EOVERFLOW, .slots = 1, .slot_bytes = UINT64_MAX - 4096);
	t_rejects(-EOVERFLOW, .slots = 1, .slot_bytes = INT64_MAX);
	t_rejects(-EOVERFLOW, .slots = 4, .slot_bytes = UINT64_C(1) << 62);
	t_rejects(-EOVERFLOW, .slots = RB_SLOTS_MAX, .slot_bytes = UINT64_C(1) << 47);
	t_rejects(-EOVERFLOW, .slots = 5, .slot_bytes = UINT64_MAX / 5 / 4096 * 4096, .hugepages = RB_HUGE_NEVER); /* no room for rows */
	t_rejects(-EOVERFLOW, .slots = RB_SLOTS_MAX, .slot_bytes = UINT64_C(1) << 48, .hugepages = RB_HUGE_ALWAYS);

	/* The ends of each range work; what was planned is what is made. */
	struct rb_options smallest = { .slots = 1, .slot_bytes = 1, .participants = 1 };
	struct rb_options largest = { .slots = RB_SLOTS_MAX, .slot_bytes = 1, .participants = RB_PARTICIPANTS_MAX };
	use(&smallest);
	use(&largest);
	return 0;
}
