/* What a put and a get cost together when nobody else is there: one participant does both in turn, while `fill` batches lie in
 * the queue all the time. */
#include <stdio.h>

#include "harness.h"

#define ROUNDS 64 /* between two looks at the clock */

static void put_next(struct port *port, uint64_t *next, uint32_t batch)
{
	uint64_t messages[BATCH_MAX];

	for (uint32_t i = 0; i < batch; i++)
		messages[i] = (*next)++;
	if (queue_put(port, messages, batch) != batch)
		die("full at message %llu, with nobody else there", (unsigned long long)*next);
}

static void get_next(struct port *port, uint64_t *expected, uint32_t batch)
{
	uint64_t messages[BATCH_MAX];

	if (queue_get(port, messages, batch) != batch)
		die("empty before message %llu, with nobody else there", (unsigned long long)*expected);
	if (!queue_peer.carries)
		return;
	for (uint32_t i = 0; i < batch; i++, (*expected)++)
		if (messages[i] != *expected)
			die("message %llu came instead of %llu", (unsigned long long)messages[i], (unsigned long long)*expected);
}

static void rounds(struct port *port, uint64_t *next, uint64_t *expected, uint32_t batch)
{
	for (int i = 0; i < ROUNDS; i++) {
		put_next(port, next, batch);
		get_next(port, expected, batch);
	}
}

static void participate(void *arg, uint32_t who)
{
	const struct options *options = arg;
	struct queue *queue = queue_make(options->capacity, options->batch);
	struct port *port = queue_open(queue);
	uint64_t next = 1, expected = 1, done = 0;

	(void)who;
	for (uint32_t i = 0; i < options->fill; i++)
		put_next(port, &next, options->batch);
	for (uint32_t i = 0; i * ROUNDS < 2 * options->capacity; i++) /* every slot once, at least */
		rounds(port, &next, &expected, options->batch);
	if (options->spoil)
		next++;
	int64_t begin = now_ns(), end = begin + options->ms * INT64_C(1000000), now;
	do {
		rounds(port, &next, &expected, options->batch);
		done += ROUNDS;
		now = now_ns();
	} while (now < end);
	printf("{\"put_and_get_ns\": %.2f}\n", (double)(now - begin) / (double)done);
	queue_close(port);
	queue_destroy(queue);
}

void uncontended(const struct options *options)
{
	struct options alone = *options;

	alone.processes = 0;
	crew_join(crew_start(&alone, 1, participate, &alone), 0, 1);
}
