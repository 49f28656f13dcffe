/* What most would write first: an array, a mutex and two condition variables, all shared between processes. Who dies
 * with the mutex in hand stops everybody. Built twice: with MUTEX_SLEEPS its calls wait on the condition variables, otherwise
 * they only try, and the driver waits. */
#define _GNU_SOURCE
#include <pthread.h>

#include "queue.h"

#ifdef MUTEX_SLEEPS
static const bool sleeps = true;
#else
static const bool sleeps = false;
#endif

const struct queue_peer queue_peer = {
#ifdef MUTEX_SLEEPS
	.label = "mutex, sleeping",
	.waits = QUEUE_SLEEPS,
#else
	.label = "mutex",
	.waits = QUEUE_TRIES,
#endif
	.version = "C library's",
	.batch = "one call",
	.carries = true,
};

struct queue {
	pthread_mutex_t mutex;
	pthread_cond_t filled, emptied;
	uint32_t fillers, emptiers; /* asleep */
	uint32_t size, head, count;
	bool finished;
	uint64_t messages[];
};

struct queue *queue_make(uint32_t capacity, uint32_t batch)
{
	struct queue *queue = queue_memory(sizeof(*queue) + (size_t)capacity * batch * 8);
	pthread_mutexattr_t mutex;
	pthread_condattr_t cond;

	queue->size = capacity * batch;
	pthread_mutexattr_init(&mutex);
	pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&queue->mutex, &mutex);
	pthread_condattr_init(&cond);
	pthread_condattr_setpshared(&cond, PTHREAD_PROCESS_SHARED);
	pthread_cond_init(&queue->filled, &cond);
	pthread_cond_init(&queue->emptied, &cond);
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

	pthread_mutex_lock(&queue->mutex);
	while (sleeps && queue->count == queue->size) {
		queue->fillers++;
		pthread_cond_wait(&queue->emptied, &queue->mutex);
		queue->fillers--;
	}
	uint32_t tail = (queue->head + queue->count) % queue->size;
	for (; put < n && queue->count < queue->size; queue->count++) {
		queue->messages[tail] = messages[put++];
		tail = tail + 1 == queue->size ? 0 : tail + 1;
	}
	bool wake = queue->emptiers > 0;
	pthread_mutex_unlock(&queue->mutex);
	if (wake)
		pthread_cond_signal(&queue->filled);
	return put;
}

uint32_t queue_get(struct port *port, uint64_t *messages, uint32_t most)
{
	struct queue *queue = (struct queue *)port;
	uint32_t got = 0;

	pthread_mutex_lock(&queue->mutex);
	while (sleeps && queue->count == 0 && !queue->finished) {
		queue->emptiers++;
		pthread_cond_wait(&queue->filled, &queue->mutex);
		queue->emptiers--;
	}
	for (; got < most && queue->count > 0; queue->count--) {
		messages[got++] = queue->messages[queue->head];
		queue->head = queue->head + 1 == queue->size ? 0 : queue->head + 1;
	}
	bool wake = queue->fillers > 0;
	pthread_mutex_unlock(&queue->mutex);
	if (wake)
		pthread_cond_signal(&queue->emptied);
	return got;
}

void queue_finish(struct queue *queue)
{
	pthread_mutex_lock(&queue->mutex);
	queue->finished = true;
	pthread_mutex_unlock(&queue->mutex);
	pthread_cond_broadcast(&queue->filled);
}
