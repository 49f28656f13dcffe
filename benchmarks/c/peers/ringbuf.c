/* The ring: a batch is what one slot carries. Built twice: with RB_NOW the driver waits, as for the others; with RB_FOREVER the
 * ring's own calls do (RINGBUF_SLEEPS).
 * Every participant attaches by itself, as a process of its own would, also where it is a thread. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "queue.h"
#include "ringbuf.h"

#ifdef RINGBUF_SLEEPS
#define DEADLINE RB_FOREVER
#else
#define DEADLINE RB_NOW
#endif

const struct queue_peer queue_peer = {
#ifdef RINGBUF_SLEEPS
	.label = "ringbuf, sleeping",
	.waits = QUEUE_SLEEPS,
#else
	.label = "ringbuf",
	.waits = QUEUE_TRIES,
#endif
	.version = "this checkout",
	.batch = "one slot",
	.carries = true,
};

struct queue *queue_make(uint32_t capacity, uint32_t batch)
{
	struct rb_options options = { .slots = capacity, .slot_bytes = batch * 8 };
	rb_ring *ring;
	int rc = rb_create(&options, &ring);

	if (rc < 0)
		die("rb_create, %u slots of %u bytes: %s", capacity, batch * 8, strerror(-rc));
	return (struct queue *)ring;
}

void queue_destroy(struct queue *queue)
{
	rb_detach((rb_ring *)queue);
}

struct port *queue_open(struct queue *queue)
{
	rb_ring *ring;
	int rc = rb_attach_fd(rb_fd((rb_ring *)queue), &ring);

	if (rc < 0)
		die("rb_attach_fd: %s", strerror(-rc));
	return (struct port *)ring;
}

void queue_close(struct port *port)
{
	rb_detach((rb_ring *)port);
}

uint32_t queue_put(struct port *port, const uint64_t *messages, uint32_t n)
{
	rb_ring *ring = (rb_ring *)port;
	struct rb_slot slot;
	int rc = rb_claim(ring, messages[0], RB_ANY, DEADLINE, &slot);

	if (rc == -EAGAIN || rc == -ETIMEDOUT)
		return 0;
	if (rc < 0)
		die("rb_claim: %s", strerror(-rc));
	memcpy(slot.data, messages, n * 8);
	rc = rb_commit(ring, &slot, n * 8);
	if (rc < 0)
		die("rb_commit: %s", strerror(-rc));
	return n;
}

uint32_t queue_get(struct port *port, uint64_t *messages, uint32_t most)
{
	rb_ring *ring = (rb_ring *)port;
	struct rb_slot slot;
	int rc = rb_take(ring, NULL, DEADLINE, &slot);

	if (rc == -EAGAIN || rc == -ETIMEDOUT || rc == -EPIPE)
		return 0;
	if (rc < 0)
		die("rb_take: %s", strerror(-rc));
	uint32_t n = (uint32_t)(slot.bytes / 8);
	if (n > most)
		die("a slot carries %u messages, the driver asked for %u at most", n, most);
	memcpy(messages, slot.data, n * 8);
	rc = rb_release(ring, &slot);
	if (rc < 0)
		die("rb_release: %s", strerror(-rc));
	return n;
}

void queue_finish(struct queue *queue)
{
	rb_finish((rb_ring *)queue);
}
