/* For the programs that run a few accesses of the ring under relacy, which tries what C11 allows other threads to see.
 *
 *     PROGRAM NAME [LABEL=ORDER ...]     run the test NAME, with these accesses weaker than they are; "none" drops a fence
 *
 * order("commit:C", release) is the order that the sources give to that label (tests/test_model.py compares them). Exits 0
 * when every schedule passed, 1 when relacy found one that does not.
 *
 * Limits of relacy: the modification order of an atomic is the order of execution; a full search lets a load see the newest
 * store or the one before, no older one; what it cannot show, a machine may still do. Its sequentially consistent accesses
 * and fences are those of C++11. A loop is unrolled once: who does not find what it looks for gives up. */
#ifndef ORDERS_H
#define ORDERS_H

#include <relacy/relacy.hpp>

#include <cstdint>
#include <cstdio>
#include <cstring>

typedef rl::atomic<uint64_t> word_t;

static const rl::memory_order relaxed = rl::mo_relaxed, acquire = rl::mo_acquire, release = rl::mo_release,
			      acq_rel = rl::mo_acq_rel, seq_cst = rl::mo_seq_cst;

static char **weaker; /* "LABEL=ORDER", up to NULL */

enum { AS_IT_IS = -2, NONE = -1 };

/* The order that the command line gives to this label. */
static int weakened(const char *label)
{
	static const char *const names[] = { "relaxed", "consume", "acquire", "release", "acq_rel", "seq_cst" };
	size_t length = strlen(label);

	for (char **at = weaker; at && *at; at++) {
		if (strncmp(*at, label, length) != 0 || (*at)[length] != '=')
			continue;
		for (int i = 0; i < 6; i++)
			if (strcmp(names[i], *at + length + 1) == 0)
				return i;
		return NONE;
	}
	return AS_IT_IS;
}

static rl::memory_order order(const char *label, rl::memory_order as_in_the_sources)
{
	int other = weakened(label);

	return other >= 0 ? (rl::memory_order)other : as_in_the_sources;
}

static void fence(const char *label, rl::memory_order as_in_the_sources, rl::debug_info_param info)
{
	if (weakened(label) != NONE)
		rl::atomic_thread_fence(order(label, as_in_the_sources), info);
}

/* Compare and swap; relaxed on failure, as everywhere in the ring. */
static bool swap(word_t &word, uint64_t &expected, uint64_t wanted, rl::memory_order mo, rl::debug_info_param info)
{
	return word.compare_exchange_strong(expected, wanted, mo, info, relaxed, info);
}

/* A slot word: state, owner or mask, ticket. */
enum { FREE = 0, WRITING = 1, READY = 2, READING = 3 };
static uint64_t word_of(uint64_t state, uint64_t who, uint64_t seq) { return state << 16 | who << 8 | seq; }
static uint64_t state_of(uint64_t word) { return word >> 16; }
static uint64_t who_of(uint64_t word) { return word >> 8 & 255; }
static uint64_t seq_of(uint64_t word) { return word & 255; }

template <class Test> static bool holds(void)
{
	rl::test_params params;

	params.search_type = rl::sched_full;
	params.iteration_count = 1000000;
	bool ok = rl::simulate<Test>(params);
	if (ok)
		printf("schedules: %u\n", (unsigned)params.stop_iteration);
	return ok;
}

struct test {
	const char *name;
	bool (*run)(void);
};

static int choose(const test *tests, int n, int argc, char **argv)
{
	weaker = argc > 2 ? argv + 2 : NULL;
	for (int i = 0; i < n && argc > 1; i++)
		if (strcmp(tests[i].name, argv[1]) == 0)
			return tests[i].run() ? 0 : 1;
	fprintf(stderr, "usage: %s NAME [LABEL=ORDER ...]; names:", argv[0]);
	for (int i = 0; i < n; i++)
		fprintf(stderr, " %s", tests[i].name);
	fprintf(stderr, "\n");
	return 2;
}

#endif
