/* Readers that join and leave while producers commit, all on one mapping: a reader gets, once, each message committed between its joining and its leaving. */
#include "t.h"

#include "ring.h"
#include "segment.h"

#define PRODUCERS 2
#define RESIDENTS 1
#define GUESTS 1
#define EACH T_ROUNDS(40000)
#define SLOTS 4

static struct rb_map map;
static int fd;
static _Atomic int producing = PRODUCERS;
static _Atomic uint64_t committed[PRODUCERS]; /* the last number whose commit has returned */

/* A participant's view: what the public handle makes, without its process and its locks. */
static struct rb_self participant(uint32_t row)
{
	struct rb_self self = { .map = &map, .row = row, .reader = RB_NO_READER };

	self.held = calloc(SLOTS, sizeof(*self.held));
	t_check(self.held);
	return self;
}

static void *produce(void *arg)
{
	uint32_t me = (uint32_t)(uintptr_t)arg;
	struct rb_self self = participant(me);
	struct rb_slot slot;

	for (uint64_t n = 1; n <= EACH; n++) {
		for (int64_t end = t_soon(); rb_ring_claim(&self, (uint64_t)me << 32 | n, RB_ANY, &slot) == -EAGAIN; sched_yield())
			t_check(rb_now_ns() < end);
		t_fill(&slot);
		t_equal(rb_ring_commit(&self, &slot, 16), 0);
		atomic_store(&committed[me], n);
	}
	producing--;
	free(self.held);
	return NULL;
}

/* Take what there is; each producer's numbers follow on each other. */
static bool read_one(struct rb_self *self, uint64_t last[PRODUCERS])
{
	struct rb_slot slot;
	bool freed;

	if (rb_ring_take(self, NULL, &slot, &freed) == -EAGAIN) {
		sched_yield(); /* the others may be waiting for this core */
		return false;
	}
	t_verify(&slot);
	uint64_t producer = slot.tag >> 32, number = slot.tag & UINT32_MAX;
	if (last[producer] != 0)
		t_equal(number, last[producer] + 1);
	last[producer] = number;
	t_equal(rb_ring_release(self, &slot), 0);
	return true;
}

static void *reside(void *arg)
{
	struct rb_self *self = arg;
	uint64_t last[PRODUCERS] = { 0 };

	for (;;) {
		bool over = producing == 0;
		if (!read_one(self, last) && over)
			break;
	}
	for (int p = 0; p < PRODUCERS; p++)
		t_equal(last[p], EACH);
	return NULL;
}

static void *visit(void *arg)
{
	struct rb_self self = participant((uint32_t)(uintptr_t)arg);
	uint64_t random = 88172645463325252u;

	while (producing > 0) {
		uint64_t before[PRODUCERS], last[PRODUCERS] = { 0 };
		t_equal(rb_ring_subscribe(&self), 0);
		for (int p = 0; p < PRODUCERS; p++)
			before[p] = atomic_load(&committed[p]);
		for (uint64_t n = t_random(&random) % 20; n > 0;)
			n -= read_one(&self, last) || producing == 0;
		/* The first one seen is at the latest the one after what was committed when we had joined: none was
		 * missed. (It may be older: committed while we joined.) */
		for (int p = 0; p < PRODUCERS; p++)
			while (last[p] != 0 && last[p] < before[p])
				if (!read_one(&self, last))
					t_die(__FILE__, __LINE__, "a message committed after joining does not come");
		rb_ring_unsubscribe(&map, self.reader);
		self.reader = RB_NO_READER;
		memset(self.held, 0, SLOTS * sizeof(*self.held));
	}
	free(self.held);
	return NULL;
}

int main(void)
{
	struct rb_options options = { .slots = SLOTS, .slot_bytes = 64, .participants = 8, .mode = RB_BROADCAST };
	struct rb_header plan;
	pthread_t threads[PRODUCERS + GUESTS];

	t_equal(rb_segment_plan(&options, &plan), 0);
	t_equal(rb_segment_create(&plan, false, &fd, &map), 0);
	struct rb_self resident = participant(PRODUCERS);
	t_equal(rb_ring_subscribe(&resident), 0);
	pthread_t reader = t_thread(reside, &resident);
	for (uint32_t p = 0; p < PRODUCERS; p++)
		threads[p] = t_thread(produce, (void *)(uintptr_t)p);
	for (uint32_t g = 0; g < GUESTS; g++)
		threads[PRODUCERS + g] = t_thread(visit, (void *)(uintptr_t)(PRODUCERS + 1 + g));
	for (int i = 0; i < PRODUCERS + GUESTS; i++)
		t_join(threads[i]);
	t_join(reader);

	for (uint32_t i = 0; i < SLOTS; i++) /* no bit of one who left is left */
		t_equal(rb_word_state(map.descs[i].word), RB_FREE);
	free(resident.held);
	rb_segment_unmap(&map);
	close(fd);
	return 0;
}
