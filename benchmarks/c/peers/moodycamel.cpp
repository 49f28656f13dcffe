// moodycamel::ConcurrentQueue: a queue inside the queue for each producer. Participants hold its tokens, as its
// authors advise, and use its calls for several where a batch has several. It keeps each producer's order, not one over all.
#include <concurrentqueue.h>

#include "queue.h"

using Queue = moodycamel::ConcurrentQueue<uint64_t>;

const struct queue_peer queue_peer = {
	.label = "moodycamel ConcurrentQueue",
	.version = PEER_VERSION,
	.batch = "one call",
	.threads_only = "its memory is private to a process",
	.waits = QUEUE_TRIES,
	.carries = true,
};

struct port {
	explicit port(Queue &shared) : queue(shared), producer(shared), consumer(shared) {}
	Queue &queue;
	moodycamel::ProducerToken producer;
	moodycamel::ConsumerToken consumer;
};

queue *queue_make(uint32_t capacity, uint32_t batch)
{
	// A producer keeps the blocks of 32 that it once had: without some for each that may come, the late would find none. So
	// there is more room than was asked for.
	const size_t producers = 32; // as many as the driver allows
	return reinterpret_cast<queue *>(new Queue(capacity * batch, producers, 0));
}

void queue_destroy(queue *queue)
{
	delete reinterpret_cast<Queue *>(queue);
}

port *queue_open(queue *queue)
{
	return new port(*reinterpret_cast<Queue *>(queue));
}

void queue_close(port *port)
{
	delete port;
}

// try_: fails instead of allocating, which is what makes it bounded, roughly.
uint32_t queue_put(port *port, const uint64_t *messages, uint32_t n)
{
	if (n == 1)
		return port->queue.try_enqueue(port->producer, messages[0]);
	return port->queue.try_enqueue_bulk(port->producer, messages, n) ? n : 0;
}

uint32_t queue_get(port *port, uint64_t *messages, uint32_t most)
{
	if (most == 1)
		return port->queue.try_dequeue(port->consumer, messages[0]);
	return static_cast<uint32_t>(port->queue.try_dequeue_bulk(port->consumer, messages, most));
}

void queue_finish(queue *)
{
}
