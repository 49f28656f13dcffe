// boost::lockfree::queue of a fixed size: a linked list whose nodes come from a free list, all of them allocated at the start
// from memory that forked processes share at the same address. It has no calls for several at once.
#include <boost/lockfree/queue.hpp>
#include <boost/version.hpp>

#include <new>

#include "queue.h"

template <typename T> struct SharedMemory {
	using value_type = T;
	SharedMemory() = default;
	template <typename U> SharedMemory(const SharedMemory<U> &) {}
	T *allocate(size_t n) { return static_cast<T *>(queue_memory(n * sizeof(T))); }
	void deallocate(T *, size_t) {}
	bool operator==(const SharedMemory &) const = default;
};

using Queue = boost::lockfree::queue<uint64_t, boost::lockfree::fixed_sized<true>,
				     boost::lockfree::allocator<SharedMemory<uint64_t>>>;

const struct queue_peer queue_peer = {
	.label = "boost::lockfree::queue",
	.version = BOOST_LIB_VERSION,
	.batch = "call by call",
	.threads_only = nullptr,
	.waits = QUEUE_TRIES,
	.carries = true,
};

queue *queue_make(uint32_t capacity, uint32_t batch)
{
	return reinterpret_cast<queue *>(new (queue_memory(sizeof(Queue))) Queue(capacity * batch));
}

void queue_destroy(queue *queue)
{
	reinterpret_cast<Queue *>(queue)->~Queue();
}

port *queue_open(queue *queue)
{
	return reinterpret_cast<port *>(queue);
}

void queue_close(port *)
{
}

uint32_t queue_put(port *port, const uint64_t *messages, uint32_t n)
{
	uint32_t put = 0;

	while (put < n && reinterpret_cast<Queue *>(port)->push(messages[put]))
		put++;
	return put;
}

uint32_t queue_get(port *port, uint64_t *messages, uint32_t most)
{
	uint32_t got = 0;

	while (got < most && reinterpret_cast<Queue *>(port)->pop(messages[got]))
		got++;
	return got;
}

void queue_finish(queue *)
{
}
