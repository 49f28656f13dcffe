/* Whichever allocation fails, once or from then on: creating and attaching say -ENOMEM or succeed, leave nothing behind, and work
 * when tried again. */
#include "t.h"
#include "allocations.h"
#include <dirent.h>

static const char *name;
static rb_ring *ring, *made;

static int descriptors(void)
{
	int n = 0;

	for (int fd = 0; fd < 64; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* Of rings; read without allocating. */
static int mappings(void)
{
	static char text[65536];
	int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC), n = 0;
	size_t length = 0;

	for (ssize_t got; (got = read(fd, text + length, sizeof(text) - 1 - length)) > 0;)
		length += (size_t)got;
	text[length] = '\0';
	close(fd);
	for (const char *at = text; (at = strstr(at, "ringbuf")) != NULL; at++)
		n += strncmp(at - 7, "/memfd:", 7) == 0 || strncmp(at - 9, "/dev/shm/", 9) == 0;
	return n;
}

static int create_queue(void)
{
	return rb_create(&(struct rb_options){ .slots = 2, .slot_bytes = 64 }, &made);
}

static int create_broadcast(void)
{
	return rb_create(&(struct rb_options){ .slots = 2, .slot_bytes = 64, .mode = RB_BROADCAST }, &made);
}

static int create_named(void)
{
	return rb_create(&(struct rb_options){ .slots = 2, .slot_bytes = 64, .name = name }, &made);
}

static int attach(void)
{
	return rb_attach_fd(rb_fd(ring), &made);
}

/* What it gives is no ring, and given back at once. */
static int survey(void)
{
	struct rb_survey *found;
	int rc = rb_survey_fd(rb_fd(ring), &found);

	if (rc == 0)
		rb_survey_free(found);
	return rc;
}

static int failures;

static void drop_made(void)
{
	if (made)
		rb_detach(made);
	made = NULL;
}

/* Returns the number of allocations that a call made, the failed one included. */
static int with_failing(int (*call)(void), int nth, bool for_good)
{
	int held = descriptors(), mapped = mappings();
	long living = atomic_load(&allocations.living);

	snprintf(t_context, sizeof(t_context), "allocation %d%s: ", nth, for_good ? " and all that follow" : "");
	atomic_store(&allocations.calls, 0);
	allocations.for_good = for_good;
	allocations.fail_at = nth;
	int rc = call();
	allocations.fail_at = 0;
	int made_calls = atomic_load(&allocations.calls);

	failures += rc < 0;
	if (rc < 0)
		t_equal(rc, -ENOMEM);
	t_check(rc == 0 || made == NULL);
	drop_made();
	t_equal(descriptors(), held);
	t_equal(mappings(), mapped);
	t_equal(atomic_load(&allocations.living), living);
	t_check(!t_name_exists(name));
	t_equal(call(), 0);
	drop_made();
	return made_calls;
}

int main(void)
{
	int (*const calls[])(void) = { create_queue, create_broadcast, create_named, attach, survey };
	int cases = 0;

	if (!ALLOCATIONS_COUNTED)
		t_skip("a sanitizer, or this libc, keeps malloc to itself");
	name = t_name();
	ring = t_broadcast(2);
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		t_equal(calls[i](), 0); /* what is allocated once */
		drop_made();
		for (int for_good = 0; for_good < 2; for_good++)
			for (int nth = 1; with_failing(calls[i], nth, for_good) >= nth; nth++)
				cases++;
	}
	rb_detach(ring);
	t_check(failures >= 16); /* a handle, its bitmap, in broadcast what it holds, each time both ways */
	t_figures("allocations_failed=%d errors=%d", cases, failures);
	return 0;
}
