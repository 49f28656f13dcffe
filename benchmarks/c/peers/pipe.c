/* A pipe: the kernel copies, sleeps and wakes; nothing a process does in user space can hurt the others. The kernel counts its room
 * in pages, and a page that is read in part has none: so it has more than what was asked for, two pages at least. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "queue.h"

const struct queue_peer queue_peer = {
	.label = "pipe, sleeping",
	.version = "the kernel's",
	.batch = "one call",
	.waits = QUEUE_SLEEPS,
	.carries = true,
};

struct queue {
	int read_end, write_end;
};

struct queue *queue_make(uint32_t capacity, uint32_t batch)
{
	struct queue *queue = queue_memory(sizeof(*queue));
	int ends[2];

	if (pipe2(ends, O_CLOEXEC) < 0)
		die("pipe2: %s", strerror(errno));
	*queue = (struct queue){ .read_end = ends[0], .write_end = ends[1] };
	int bytes = (int)(capacity * batch * 8) + getpagesize();
	if (fcntl(queue->write_end, F_SETPIPE_SZ, bytes) < 0)
		die("F_SETPIPE_SZ, %d bytes: %s", bytes, strerror(errno));
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

/* Up to PIPE_BUF bytes, which is more than any batch of ours, are written as one. */
uint32_t queue_put(struct port *port, const uint64_t *messages, uint32_t n)
{
	ssize_t bytes = write(((struct queue *)port)->write_end, messages, n * 8);

	if (bytes != (ssize_t)n * 8)
		die("write to a pipe: %zd of %u bytes: %s", bytes, n * 8, strerror(errno));
	return n;
}

uint32_t queue_get(struct port *port, uint64_t *messages, uint32_t most)
{
	struct queue *queue = (struct queue *)port;
	ssize_t bytes = read(queue->read_end, messages, most * 8);

	if (bytes < 0 || bytes % 8)
		die("read from a pipe: %zd bytes: %s", bytes, strerror(errno));
	/* A 0 says that there is no more; it is passed on to whoever else reads. */
	uint32_t n = 0;
	while (n < bytes / 8 && messages[n] != 0)
		n++;
	if (n < bytes / 8)
		queue_finish(queue);
	return n;
}

void queue_finish(struct queue *queue)
{
	const uint64_t end = 0;

	if (write(queue->write_end, &end, 8) != 8)
		die("write to a pipe: %s", strerror(errno));
}
