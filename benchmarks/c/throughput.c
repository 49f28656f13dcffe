/* Messages per second: producers put as fast as they can, consumers get and check, and a coordinator counts over a while,
 * once all are under way.
 *
 * Message n of producer p is p << 48 | n, n from 1 on. A consumer must see each producer's numbers rise; at the end all consumers'
 * counts and sums for a producer together must be what it says that it has put. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "harness.h"

#define NUMBER(message) ((message) & ((UINT64_C(1) << 48) - 1))
#define SPOILT 100 /* the message that `spoil` picks, of producer 0 */

struct heard {
	uint64_t count, sum, last;
};

struct run {
	const struct options *options;
	struct queue *queue;
	_Alignas(LINE) _Atomic uint32_t ready; /* participants that stand at the start */
	_Alignas(LINE) _Atomic bool go;
	_Atomic bool stop;    /* producers: no more */
	_Atomic bool all_put; /* consumers: what is not there now will not come */
	struct {
		_Alignas(LINE) uint64_t put;
	} producers[PRODUCERS_MAX];
	struct {
		_Alignas(LINE) _Atomic uint64_t got;
		struct heard heard[PRODUCERS_MAX];
	} consumers[CONSUMERS_MAX];
};

static void wait_for_start(struct run *run)
{
	atomic_fetch_add(&run->ready, 1);
	while (!atomic_load(&run->go))
		sched_yield();
}

/* What a broken queue would do. Returns how many messages are left to be put. */
static uint32_t spoil(const char *how, uint64_t *messages, uint32_t n)
{
	if (!strcmp(how, "lose"))
		return n - 1;
	if (!strcmp(how, "double"))
		messages[0]--;
	else if (!strcmp(how, "change"))
		messages[0] ^= UINT64_C(1) << 40;
	else
		die("spoil: it may be lose, double or change, not %s", how);
	return n;
}

static void produce(struct run *run, uint32_t who)
{
	struct port *port = queue_open(run->queue);
	const char *how = who == 0 ? run->options->spoil : NULL;
	uint32_t batch = run->options->batch, failures = 0;
	uint64_t messages[BATCH_MAX];
	uint64_t first = (uint64_t)who << 48, put = 0;

	wait_for_start(run);
	while (!atomic_load_explicit(&run->stop, memory_order_relaxed)) {
		uint32_t sent = 0, n = batch;

		for (uint32_t i = 0; i < batch; i++)
			messages[i] = first | (put + i + 1);
		if (how && put >= SPOILT) {
			n = spoil(how, messages, n);
			how = NULL;
		}
		while (sent < n) {
			uint32_t took = queue_put(port, messages + sent, n - sent);

			sent += took;
			if (took > 0)
				failures = 0;
			else if (atomic_load_explicit(&run->stop, memory_order_relaxed))
				break;
			else
				wait_a_bit(&failures);
		}
		put += sent == n ? batch : sent;
	}
	if (how)
		die("producer 0 put %llu messages, too few to spoil number %d", (unsigned long long)put, SPOILT);
	run->producers[who].put = put;
	queue_close(port);
}

static void check(struct run *run, struct heard *heard, uint64_t message)
{
	uint64_t producer = message >> 48, number = NUMBER(message);

	if (producer >= run->options->producers)
		die("message 0x%llx is of producer %llu, there are %u", (unsigned long long)message,
		    (unsigned long long)producer, run->options->producers);
	if (number <= heard[producer].last)
		die("message %llu of producer %llu came after its %llu", (unsigned long long)number,
		    (unsigned long long)producer, (unsigned long long)heard[producer].last);
	heard[producer].last = number;
	heard[producer].count++;
	heard[producer].sum += number;
}

static void consume(struct run *run, uint32_t who)
{
	struct port *port = queue_open(run->queue);
	struct heard heard[PRODUCERS_MAX] = { 0 };
	uint32_t batch = run->options->batch, failures = 0;
	uint64_t messages[BATCH_MAX];
	uint64_t got = 0;

	wait_for_start(run);
	for (;;) {
		bool last = atomic_load_explicit(&run->all_put, memory_order_acquire);
		uint32_t n = queue_get(port, messages, batch);

		if (last && (n == 0 || !queue_peer.carries))
			break;
		if (n == 0) {
			wait_a_bit(&failures);
			continue;
		}
		failures = 0;
		for (uint32_t i = 0; i < n; i++)
			check(run, heard, messages[i]);
		got += n;
		atomic_store_explicit(&run->consumers[who].got, got, memory_order_relaxed);
	}
	memcpy(run->consumers[who].heard, heard, sizeof(heard));
	queue_close(port);
}

static void participate(void *arg, uint32_t who)
{
	struct run *run = arg;

	if (who < run->options->producers)
		produce(run, who);
	else
		consume(run, who - run->options->producers);
}

static uint64_t all_got(struct run *run)
{
	uint64_t got = 0;

	for (uint32_t i = 0; i < run->options->consumers; i++)
		got += atomic_load_explicit(&run->consumers[i].got, memory_order_relaxed);
	return got;
}

static void check_sums(struct run *run)
{
	for (uint32_t p = 0; p < run->options->producers; p++) {
		uint64_t put = run->producers[p].put, count = 0, sum = 0;

		for (uint32_t c = 0; c < run->options->consumers; c++) {
			count += run->consumers[c].heard[p].count;
			sum += run->consumers[c].heard[p].sum;
		}
		if (count != put || sum != put * (put + 1) / 2)
			die("of the %llu messages of producer %u %llu arrived; their numbers add up to %llu, not to %llu",
			    (unsigned long long)put, p, (unsigned long long)count, (unsigned long long)sum,
			    (unsigned long long)(put * (put + 1) / 2));
	}
}

void throughput(const struct options *options)
{
	uint32_t producers = options->producers, consumers = options->consumers;
	struct run *run = queue_memory(sizeof(*run));

	run->options = options;
	run->queue = queue_make(options->capacity, options->batch);
	struct crew *crew = crew_start(options, producers + consumers, participate, run);
	while (atomic_load(&run->ready) < producers + consumers)
		nap_ns(100000);

	int64_t ns = options->ms * INT64_C(1000000);
	atomic_store(&run->go, true);
	nap_ns(ns / 4);
	int64_t begin = now_ns();
	uint64_t got = all_got(run);
	nap_ns(ns);
	got = all_got(run) - got;
	ns = now_ns() - begin;

	atomic_store(&run->stop, true);
	crew_join(crew, 0, producers);
	atomic_store_explicit(&run->all_put, true, memory_order_release);
	queue_finish(run->queue);
	crew_join(crew, producers, producers + consumers);
	if (queue_peer.carries)
		check_sums(run);
	printf("{\"messages_per_s\": %.1f, \"cpu_ns_per_message\": %.2f}\n", (double)got * 1e9 / (double)ns,
	       (double)cpu_ns() / (double)(all_got(run) ? all_got(run) : 1));
	queue_destroy(run->queue);
}
