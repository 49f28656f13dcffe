/* For the programs that run a few accesses of the ring under relacy, which tries what C11 allows other threads to see.
 *
 *     PROGRAM NAME [LABEL=ORDER]     run the test NAME, with one access or fence weaker than it is; "none" drops a fence
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

static const char *weaker; /* label */
static int weaker_order;   /* -1: none */

static bool is_weaker(const char *label)
{
	return weaker && strcmp(weaker, label) == 0;
}

static rl::memory_order order(const char *label, rl::memory_order as_in_the_sources)
{
	return is_weaker(label) ? (rl::memory_order)weaker_order : as_in_the_sources;
}

static void fence(const char *label, rl::memory_order as_in_the_sources, rl::debug_info_param info)
{
	if (!is_weaker(label) || weaker_order >= 0)
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
	static const char *const names[] = { "relaxed", "consume", "acquire", "release", "acq_rel", "seq_cst" };
	char *equals = argc > 2 ? strchr(argv[2], '=') : NULL;

	if (equals) {
		*equals = '\0';
		weaker = argv[2];
		weaker_order = -1;
		for (int i = 0; i < 6; i++)
			if (strcmp(names[i], equals + 1) == 0)
				weaker_order = i;
	}
	for (int i = 0; i < n && argc > 1; i++)
		if (strcmp(tests[i].name, argv[1]) == 0)
			return tests[i].run() ? 0 : 1;
	fprintf(stderr, "usage: %s NAME [LABEL=ORDER]; names:", argv[0]);
	for (int i = 0; i < n; i++)
		fprintf(stderr, " %s", tests[i].name);
	fprintf(stderr, "\n");
	return 2;
}

#endif
