/* Waking a sleeper, one way: a consumer sleeps in a get, the producer lets it and then puts the time; the consumer
 * compares that with its own clock when it has it in hand. */
#include <stdio.h>

#include "harness.h"

#define SAMPLES_MAX 10000
#define SLEEP_NS INT64_C(2000000) /* long enough for the other to be asleep, also if it spins for a while before */

struct run {
	const struct options *options;
	struct queue *queue;
	uint32_t samples;
	uint64_t put_sum, got_sum;
	int64_t took_ns[SAMPLES_MAX];
};

static void put_times(struct run *run)
{
	struct port *port = queue_open(run->queue);

	for (uint32_t i = 0; i < run->samples; i++) {
		nap_ns(SLEEP_NS);
		uint64_t now = (uint64_t)now_ns();
		run->put_sum += now;
		if (run->options->spoil && i == 0)
			now--;
		if (queue_put(port, &now, 1) != 1)
			die("a queue that sleeps took no message");
	}
	queue_close(port);
}

static void get_times(struct run *run)
{
	struct port *port = queue_open(run->queue);

	for (uint32_t i = 0; i < run->samples; i++) {
		uint64_t put;
		if (queue_get(port, &put, 1) != 1)
			die("a queue that sleeps ended after %u of %u messages", i, run->samples);
		run->took_ns[i] = now_ns() - (int64_t)put;
		run->got_sum += put;
	}
	queue_close(port);
}

static void participate(void *arg, uint32_t who)
{
	(who == 0 ? put_times : get_times)(arg);
}

void wake(const struct options *options)
{
	struct run *run = queue_memory(sizeof(*run));
	uint32_t samples = (uint32_t)(options->ms * INT64_C(1000000) / SLEEP_NS);

	if (queue_peer.waits != QUEUE_SLEEPS)
		die("it does not sleep, so there is nobody to wake");
	run->options = options;
	run->samples = samples < 1 ? 1 : samples > SAMPLES_MAX ? SAMPLES_MAX : samples;
	run->queue = queue_make(options->capacity, 1);
	crew_join(crew_start(options, 2, participate, run), 0, 2);
	if (run->put_sum != run->got_sum)
		die("what arrived adds up to %llu, not to %llu", (unsigned long long)run->got_sum,
		    (unsigned long long)run->put_sum);
	printf("{\"samples\": %u, \"wake_ns\": %lld, ", run->samples,
	       (long long)percentile(run->took_ns, run->samples, 50));
	printf("\"wake_p99_ns\": %lld}\n", (long long)percentile(run->took_ns, run->samples, 99));
	queue_destroy(run->queue);
}
