/* Round trips: one puts a number into one queue, the other sends it back through a second. Their waiting is the queue's own
 * where it sleeps, else the driver's. */
#include <stdatomic.h>
#include <stdio.h>

#include "harness.h"

#define ROUNDS_MAX 1000000
#define WARM_UP 1000
#define END UINT64_MAX

struct run {
	const struct options *options;
	struct queue *there, *back;
	uint64_t count;
	int64_t took_ns[ROUNDS_MAX];
};

static void put_one(struct port *port, uint64_t message)
{
	uint32_t failures = 0;

	while (queue_put(port, &message, 1) == 0)
		wait_a_bit(&failures);
}

static uint64_t get_one(struct port *port)
{
	uint32_t failures = 0;
	uint64_t message;

	while (queue_get(port, &message, 1) == 0)
		wait_a_bit(&failures);
	return message;
}

static void ping(struct run *run)
{
	struct port *there = queue_open(run->there), *back = queue_open(run->back);
	int64_t end = INT64_MAX, before = 0;
	uint64_t rounds = 0;

	for (; rounds < WARM_UP + ROUNDS_MAX && before < end; rounds++) {
		if (rounds == WARM_UP)
			end = now_ns() + run->options->ms * INT64_C(1000000);
		before = now_ns();
		put_one(there, rounds + 1);
		uint64_t echo = get_one(back);
		int64_t after = now_ns();
		if (echo != rounds + 1)
			die("round %llu came back as %llu", (unsigned long long)rounds + 1, (unsigned long long)echo);
		if (rounds >= WARM_UP)
			run->took_ns[run->count++] = after - before;
	}
	put_one(there, END);
	queue_close(there);
	queue_close(back);
}

static void pong(struct run *run)
{
	struct port *there = queue_open(run->there), *back = queue_open(run->back);
	const char *spoil = run->options->spoil;
	uint64_t message;

	while ((message = get_one(there)) != END)
		put_one(back, spoil && message == WARM_UP ? message - 1 : message);
	queue_close(there);
	queue_close(back);
}

static void participate(void *arg, uint32_t who)
{
	(who == 0 ? ping : pong)(arg);
}

void pingpong(const struct options *options)
{
	struct run *run = queue_memory(sizeof(*run));

	run->options = options;
	run->there = queue_make(options->capacity, 1);
	run->back = queue_make(options->capacity, 1);
	crew_join(crew_start(options, 2, participate, run), 0, 2);
	printf("{\"rounds\": %llu, ", (unsigned long long)run->count);
	printf("\"round_trip_ns\": %lld, ", (long long)percentile(run->took_ns, run->count, 50));
	printf("\"round_trip_p99_ns\": %lld}\n", (long long)percentile(run->took_ns, run->count, 99));
	queue_destroy(run->there);
	queue_destroy(run->back);
}
