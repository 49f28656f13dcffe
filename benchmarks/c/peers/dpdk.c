/* DPDK's rte_ring, many producers and many consumers, placed in memory of ours: no EAL, no huge pages. A participant that is
 * suspended in the middle of a call holds up all others of its side, who spin. */
#include <rte_ring.h>
#include <rte_ring_elem.h>
#include <rte_version.h>

#include "queue.h"

const struct queue_peer queue_peer = {
	.label = "DPDK rte_ring, MP/MC",
	.version = RTE_STR(RTE_VER_YEAR) "." RTE_STR(RTE_VER_MONTH) "." RTE_STR(RTE_VER_MINOR),
	.batch = "one call",
	.waits = QUEUE_TRIES,
	.carries = true,
};

struct queue *queue_make(uint32_t capacity, uint32_t batch)
{
	unsigned size = rte_align32pow2(capacity * batch + 1);
	ssize_t bytes = rte_ring_get_memsize_elem(8, size);

	if (bytes < 0)
		die("rte_ring_get_memsize_elem: %zd for %u messages", bytes, size);
	struct rte_ring *ring = queue_memory((size_t)bytes);
	int rc = rte_ring_init(ring, "benchmark", capacity * batch, RING_F_EXACT_SZ);
	if (rc < 0)
		die("rte_ring_init: %d for %u messages", rc, capacity * batch);
	return (struct queue *)ring;
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
	return rte_ring_mp_enqueue_burst_elem((struct rte_ring *)port, messages, 8, n, NULL);
}

uint32_t queue_get(struct port *port, uint64_t *messages, uint32_t most)
{
	return rte_ring_mc_dequeue_burst_elem((struct rte_ring *)port, messages, 8, most, NULL);
}

void queue_finish(struct queue *queue)
{
	(void)queue;
}
