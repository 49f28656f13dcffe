/* The orders of ring.c: each test is the accesses of one of its pairs, under relacy. See orders.h. */
#include "orders.h"

/* A message is written before it is read, and read before the next one is written: commit:C -> take:C, release:A -> claim:C. */
struct publish : rl::test_suite<publish, 3> {
	word_t word;
	rl::var<int> data;

	void before()
	{
		data($) = 1;
		word.store(word_of(WRITING, 1, 1), relaxed, $);
	}

	void thread(unsigned me)
	{
		uint64_t seen;

		if (me == 0) {
			data($) = 2;
			seen = word_of(WRITING, 1, 1);
			swap(word, seen, word_of(READY, 0, 2), order("commit:C", release), $);
		} else if (me == 1) {
			seen = word.load(order("take:D", acquire), $);
			if (state_of(seen) != READY)
				return;
			if (!swap(word, seen, word_of(READING, 2, 2), order("take:C", acquire), $))
				return;
			RL_ASSERT((int)data($) == 2);
			seen = word_of(READING, 2, 2);
			swap(word, seen, word_of(FREE, 0, 2), order("release:A", release), $);
		} else {
			seen = word.load(relaxed, $); /* find:A */
			if (state_of(seen) != FREE || !swap(word, seen, word_of(WRITING, 3, 2), order("claim:C", seq_cst), $))
				return;
			data($) = 3;
		}
	}
};

/* Two readers' clears are one release sequence: clear:B -> claim:C. */
struct readers : rl::test_suite<readers, 3> {
	word_t word;
	rl::var<int> data;

	void before()
	{
		data($) = 1;
		word.store(word_of(READY, 3, 1), relaxed, $);
	}

	void thread(unsigned me)
	{
		uint64_t seen = word.load(relaxed, $); /* clear:A, find:A */

		if (me < 2) {
			RL_ASSERT((int)data($) == 1);
			for (int i = 0; i < 2; i++) {
				uint64_t others = who_of(seen) & ~(1u << me);
				if (swap(word, seen, word_of(others ? READY : FREE, others, 1), order("clear:B", seq_cst), $))
					break;
			}
		} else {
			if (state_of(seen) == FREE && swap(word, seen, word_of(WRITING, 3, 1), order("claim:C", seq_cst), $))
				data($) = 2;
		}
	}
};

/* Who accepts a message below its horizon has seen all that were committed before it: commit:A -> take:A. */
struct fifo : rl::test_suite<fifo, 2> {
	word_t words[2], tickets;

	void before()
	{
		tickets.store(1, relaxed, $);
		words[0].store(word_of(WRITING, 1, 0), relaxed, $);
		words[1].store(word_of(WRITING, 1, 0), relaxed, $);
	}

	void thread(unsigned me)
	{
		if (me == 0) {
			for (int i = 0; i < 2; i++) {
				uint64_t expected = word_of(WRITING, 1, 0);
				uint64_t ticket = tickets.fetch_add(1, order("commit:A", acq_rel), $);
				swap(words[i], expected, word_of(READY, 0, ticket), order("commit:C", release), $);
			}
			return;
		}
		uint64_t horizon = weakened("take:A") == NONE ? 99 : tickets.load(order("take:A", acquire), $);
		uint64_t first = words[0].load(order("find:A", relaxed), $);
		uint64_t second = words[1].load(order("find:A", relaxed), $);
		fence("take:H", acquire, $);
		if (state_of(second) == READY && seq_of(second) < horizon)
			RL_ASSERT(state_of(first) == READY);
		/* future:A: who has seen the word sees its ticket drawn */
		if (state_of(second) == READY)
			RL_ASSERT(seq_of(second) < tickets.load(order("future:A", acquire), $));
	}
};

/* Either the claim sees the end, or who looks whether all is drained sees the claim. */
struct end : rl::test_suite<end, 3> {
	word_t word, finished;
	rl::var<int> claims, drained;

	void before()
	{
		word.store(word_of(FREE, 0, 1), relaxed, $);
		finished.store(0, relaxed, $);
		claims($) = 0;
		drained($) = 0;
	}

	void thread(unsigned me)
	{
		uint64_t expected = word_of(FREE, 0, 1);

		if (me == 0) {
			swap(word, expected, word_of(WRITING, 1, 1), order("claim:C", seq_cst), $);
			claims($) = finished.load(order("finished:A", seq_cst), $) == 0;
		} else if (me == 1) {
			finished.store(1, order("finish:A", seq_cst), $);
		} else if (finished.load(order("finished:A", seq_cst), $)) {
			drained($) = state_of(word.load(order("drained:A", seq_cst), $)) == FREE;
		}
	}

	void after()
	{
		RL_ASSERT(!((int)claims($) && (int)drained($)));
	}
};

/* ---- broadcast: one entry, one slot ------------------------------------------------------------------- */

struct broadcast {
	word_t word, tickets, active, start, keeps;
	uint64_t first, ticket;
	bool in_hand;

	void set(uint64_t is_active, uint64_t first_ticket)
	{
		word.store(word_of(WRITING, 1, 1), relaxed, $);
		tickets.store(5, relaxed, $);
		active.store(is_active, relaxed, $);
		start.store(first_ticket, relaxed, $);
		keeps.store(0, relaxed, $);
		first = ticket = 0;
		in_hand = false;
	}

	void clear_bit(uint64_t of)
	{
		uint64_t expected = word_of(READY, 1, of);
		swap(word, expected, word_of(FREE, 0, of), order("clear:B", seq_cst), $);
	}

	bool entitled()
	{
		if (!active.load(order("entitled:A", seq_cst), $))
			return keeps.load(order("entitled:C", seq_cst), $) != 0;
		return start.load(order("entitled:B", seq_cst), $) <= ticket;
	}

	void commit()
	{
		uint64_t expected = word_of(WRITING, 1, 1);

		ticket = tickets.fetch_add(1, order("commit:E", seq_cst), $);
		uint64_t mask = active.load(order("commit:F", seq_cst), $);
		swap(word, expected, mask ? word_of(READY, 1, ticket) : word_of(FREE, 0, ticket),
		     order("commit:G", seq_cst), $);
		if (mask && !entitled())
			clear_bit(ticket);
	}

	void subscribe()
	{
		start.store(0, order("subscribe:B", seq_cst), $);
		active.fetch_or(1, order("subscribe:C", seq_cst), $);
		first = tickets.load(order("subscribe:F", seq_cst), $);
		start.store(first, order("subscribe:D", seq_cst), $);
	}

	void withdraw(bool holding)
	{
		keeps.store(holding, order("unsubscribe:F", seq_cst), $);
		active.fetch_and(0, order("unsubscribe:A", seq_cst), $);
		uint64_t seen = word.load(order("unsubscribe:B", seq_cst), $);
		if (!holding && state_of(seen) == READY)
			clear_bit(seq_of(seen));
	}
};

/* A message with a ticket from a reader's first one on has its bit, and keeps it: subscribe:B-F, commit:E-G. */
struct join : rl::test_suite<join, 2>, broadcast {
	void before() { set(0, 255); }

	void thread(unsigned me)
	{
		if (me == 0)
			commit();
		else
			subscribe();
	}

	void after()
	{
		if (ticket >= first)
			RL_ASSERT(word.load(relaxed, $) == word_of(READY, 1, ticket));
	}
};

/* A reader that has left has no bit anywhere: unsubscribe:A -> entitled:A, commit:G -> unsubscribe:B. */
struct leave : rl::test_suite<leave, 2>, broadcast {
	void before() { set(1, 1); }

	void thread(unsigned me)
	{
		if (me == 0)
			commit();
		else
			withdraw(false);
	}

	void after()
	{
		RL_ASSERT(state_of(word.load(relaxed, $)) == FREE);
	}
};

/* What a reader holds when it withdraws stays; when it has ended, no bit is left: unsubscribe:F -> entitled:C. */
struct keep : rl::test_suite<keep, 2>, broadcast {
	void before() { set(1, 1); }

	void thread(unsigned me)
	{
		if (me == 0) {
			commit();
			return;
		}
		uint64_t seen = word.load(order("take:D", acquire), $);
		in_hand = state_of(seen) == READY;
		withdraw(true);
		if (in_hand) {
			RL_ASSERT(word.load(relaxed, $) == seen); /* nobody freed it */
			clear_bit(seq_of(seen));
		}
		withdraw(false);
	}

	void after()
	{
		RL_ASSERT(state_of(word.load(relaxed, $)) == FREE);
	}
};

int main(int argc, char **argv)
{
	static const test tests[] = {
		{ "publish", holds<publish> }, { "readers", holds<readers> }, { "fifo", holds<fifo> }, { "end", holds<end> },
		{ "join", holds<join> }, { "leave", holds<leave> }, { "keep", holds<keep> },
	};

	return choose(tests, sizeof(tests) / sizeof(tests[0]), argc, argv);
}
