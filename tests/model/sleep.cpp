/* The orders of wait.c, recover.c and handle.c: each test is the accesses of one of their pairs, under relacy. See orders.h. */
#include "orders.h"

enum { FLAG = 1, EPOCH = 2 };

/* Either the waiter's second look sees the change, or the notifier sees the flag: prepare:B, notify:A. */
struct flag : rl::test_suite<flag, 2> {
	word_t word, thing;
	bool waiter_sees, notifier_moves;

	void before()
	{
		word.store(0, relaxed, $);
		thing.store(0, relaxed, $);
		waiter_sees = notifier_moves = false;
	}

	void thread(unsigned me)
	{
		if (me == 0) {
			uint64_t seen = word.load(order("prepare:A", relaxed), $);
			while (!(seen & FLAG) && !swap(word, seen, seen | FLAG, order("prepare:C", relaxed), $))
				;
			fence("prepare:B", seq_cst, $);
			waiter_sees = thing.load(relaxed, $); /* whatever order it has */
		} else {
			thing.store(1, relaxed, $);
			fence("notify:A", seq_cst, $);
			uint64_t seen = word.load(order("notify:B", relaxed), $);
			if (seen & FLAG)
				notifier_moves = swap(word, seen, (seen + EPOCH) & ~FLAG, order("notify:C", seq_cst), $);
		}
	}

	void after()
	{
		RL_ASSERT(waiter_sees || notifier_moves);
	}
};

/* Either the notifier counts the sleeper, or the sleeper sees the epoch moved: sleep:A, sleep:B, notify:C, ring_bell:A. */
struct bell : rl::test_suite<bell, 2> {
	word_t word, sleepers;
	uint64_t counted;
	bool slept;

	void before()
	{
		word.store(FLAG, relaxed, $);
		sleepers.store(0, relaxed, $);
		counted = 0;
		slept = false;
	}

	void thread(unsigned me)
	{
		if (me == 0) {
			sleepers.fetch_add(1, order("sleep:A", seq_cst), $);
			slept = word.load(order("sleep:B", seq_cst), $) == FLAG;
		} else {
			uint64_t seen = FLAG;
			swap(word, seen, EPOCH, order("notify:C", seq_cst), $);
			counted = sleepers.load(order("ring_bell:A", seq_cst), $);
		}
	}

	void after()
	{
		RL_ASSERT(!slept || counted == 1);
	}
};

/* A burial finds the tag of the claim that it buries, or none: claim:H -> bury:A. */
struct tag : rl::test_suite<tag, 2> {
	word_t word, claimed, tag_;

	void before()
	{
		word.store(word_of(FREE, 0, 1), relaxed, $);
		claimed.store(0, relaxed, $);
		tag_.store(1, relaxed, $);
	}

	void thread(unsigned me)
	{
		uint64_t mine = word_of(WRITING, 1, 1), seen = word_of(FREE, 0, 1);

		if (me == 0) {
			swap(word, seen, mine, order("claim:C", seq_cst), $);
			tag_.store(2, order("claim:F", relaxed), $);
			claimed.store(mine, order("claim:H", release), $);
		} else if (word.load(order("return_slots:A", acquire), $) == mine) {
			if (claimed.load(order("bury:A", acquire), $) == mine)
				RL_ASSERT(tag_.load(order("bury:C", relaxed), $) == 2);
		}
	}
};

/* Who finds a burial's note finds all of it: bury:B -> finish_burial:A; and after its end the count: finish_burial:H. */
struct note : rl::test_suite<note, 2> {
	word_t word, slot, count, lost;

	void before()
	{
		word.store(0, relaxed, $);
		slot.store(0, relaxed, $);
		count.store(0, relaxed, $);
		lost.store(0, relaxed, $);
	}

	void thread(unsigned me)
	{
		if (me == 0) {
			slot.store(3, order("bury:E", relaxed), $);
			count.store(4, order("bury:G", relaxed), $);
			word.store(5, order("bury:B", release), $);
			lost.store(4, order("finish_burial:G", relaxed), $);
			word.store(0, order("finish_burial:H", release), $);
		} else if (word.load(order("finish_burial:A", acquire), $) == 5) {
			RL_ASSERT(slot.load(order("finish_burial:B", relaxed), $) == 3);
			RL_ASSERT(count.load(order("finish_burial:D", relaxed), $) == 4);
			if (word.load(order("finish_burial:A", acquire), $) == 0)
				RL_ASSERT(lost.load(order("bury:D", relaxed), $) == 4);
		}
	}
};

/* An unsubscribe with one slot out, and the release of that slot by another thread: one of the two ends it. */
struct withdrawn : rl::test_suite<withdrawn, 2> {
	word_t is_withdrawn, taken;
	bool ends[2];

	void before()
	{
		is_withdrawn.store(0, relaxed, $);
		taken.store(1, relaxed, $);
		ends[0] = ends[1] = false;
	}

	void thread(unsigned me)
	{
		if (me == 0) {
			is_withdrawn.store(1, order("withdrawn:B", seq_cst), $);
			ends[0] = taken.load(order("taken:C", seq_cst), $) == 0;
		} else {
			taken.fetch_sub(1, order("taken:B", seq_cst), $);
			ends[1] = is_withdrawn.load(order("withdrawn:C", seq_cst), $) != 0;
		}
	}

	void after()
	{
		RL_ASSERT(ends[0] || ends[1]);
	}
};

int main(int argc, char **argv)
{
	static const test tests[] = {
		{ "flag", holds<flag> }, { "bell", holds<bell> }, { "tag", holds<tag> }, { "note", holds<note> },
		{ "withdrawn", holds<withdrawn> },
	};

	return choose(tests, sizeof(tests) / sizeof(tests[0]), argc, argv);
}
