/* What a peer is: one file in peers/ that defines these. It is linked with the driver into a program of its own,
 * optimised as one at link time: its calls are inlined as if they were written where they are made.
 *
 * Messages are 8 bytes. A batch is what the driver hands over in one call; it never hands over more than the queue was made for.
 * The driver makes one queue, forks or starts its participants, and each of them opens a port. */
#ifndef QUEUE_H
#define QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct queue; /* the peer's own: what all participants share */
struct port;  /* the peer's own: one participant's access to it, where it has such a thing */

enum queue_waits {
	QUEUE_TRIES,  /* calls return 0 when there is no room or nothing there; the driver spins, then yields, the same for all */
	QUEUE_SLEEPS, /* calls wait, asleep, by the peer's own means */
};

struct queue_peer {
	const char *label;
	const char *version;
	const char *batch;        /* how a batch travels */
	const char *threads_only; /* why it cannot work between processes; NULL: it can */
	enum queue_waits waits;
	bool carries;             /* false: a yardstick that delivers nothing */
};

extern const struct queue_peer queue_peer;

/* A queue with room for `capacity` batches of `batch` messages each, or as near to it as the peer can. What is to be shared
 * between processes has to lie in memory from queue_memory(). */
struct queue *queue_make(uint32_t capacity, uint32_t batch);
void queue_destroy(struct queue *queue);

/* Called by the participant itself, in its own thread or process. */
struct port *queue_open(struct queue *queue);
void queue_close(struct port *port);

/* Returns how many of `n` messages were put, from the first one on; how many of at most `most` were got. 0: none, try
 * again, or, from a get that sleeps, the end. */
uint32_t queue_put(struct port *port, const uint64_t *messages, uint32_t n);
uint32_t queue_get(struct port *port, uint64_t *messages, uint32_t most);

/* No put will follow. Whoever sleeps in a get, now or later, is to drain what is there and then get 0. Peers that only try
 * do nothing. Called once, by who made the queue. */
void queue_finish(struct queue *queue);

/* From the driver: zeroed memory, shared with all that this process forks, aligned to a page. Never freed: the program is short. */
void *queue_memory(size_t bytes);

/* From the driver: end the program, and say why. */
void die(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

#ifdef __cplusplus
}
#endif
#endif
