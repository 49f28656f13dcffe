/* Concurrency Kit's bounded ring, in its form for many producers and many consumers. It carries pointers: here, the messages
 * themselves. It has no calls for several at once. */
#include <ck_ring.h>

#include "queue.h"

const struct queue_peer queue_peer = {
	.label = "Concurrency Kit ck_ring",
	.version = PEER_VERSION,
	.batch = "call by call",
	.waits = QUEUE_TRIES,
	.carries = true,
};

struct queue {
	ck_ring_t ring;
	ck_ring_buffer_t *buffer;
};

struct queue *queue_make(uint32_t capacity, uint32_t batch)
{
	struct queue *queue = queue_memory(sizeof(*queue));
	unsigned size = 4;

	while (size <= capacity * batch) /* a power of two, one place of which stays empty */
		size *= 2;
	queue->buffer = queue_memory(size * sizeof(*queue->buffer));
	ck_ring_init(&queue->ring, size);
	return queue;
}

void queue_destroy(struct queue *queue)
{
	(void)queue;
}

struct port *queue_open(struct queue *queue)
{
	return (struct port *)queue;
}

void queue_close(struct port *port)
{
	(void)port;
}

uint32_t queue_put(struct port *port, const uint64_t *messages, uint32_t n)
{
	struct queue *queue = (struct queue *)port;
	uint32_t put = 0;

	while (put < n && ck_ring_enqueue_mpmc(&queue->ring, queue->buffer, (const void *)(uintptr_t)messages[put]))
		put++;
	return put;
}

uint32_t queue_get(struct port *port, uint64_t *messages, uint32_t most)
{
	struct queue *queue = (struct queue *)port;
	uint32_t got = 0;
	void *message;

	for (; got < most && ck_ring_dequeue_mpmc(&queue->ring, queue->buffer, &message); got++)
		messages[got] = (uintptr_t)message;
	return got;
}

void queue_finish(struct queue *queue)
{
	(void)queue;
}
