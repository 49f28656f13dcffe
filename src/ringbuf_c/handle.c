/* See handle.h. */
#define _GNU_SOURCE
#include "handle.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "crash_points.h"
#include "lock.h"
#include "recover.h"
#include "segment.h"
#include "wait.h"

#define SPIN_NS INT64_C(5000) /* a few times what a wake-up costs the two who take part in it */
#define CREATE_TRIES 64 /* against others that create and reclaim the same name */

static uint32_t bitmap_words(const struct rb_map *map)
{
	return (map->header.slots + 63) / 64;
}

/* ---- every handle of the process, for fork ---------------------------------------------------------- */

static pthread_mutex_t handles_lock = PTHREAD_MUTEX_INITIALIZER;
static struct rb_ring *handles;

static void before_fork(void)
{
	pthread_mutex_lock(&handles_lock);
}

static void after_fork_in_parent(void)
{
	pthread_mutex_unlock(&handles_lock);
}

static void forget_parent(struct rb_ring *ring)
{
	rb_member_close(&ring->member);
	ring->life++;
	pthread_mutex_init(&ring->joining, NULL); /* another thread of the parent may have held it */
	/* fork:A relaxed: a forked child has one thread */
	atomic_store_explicit(&ring->joined, 0, memory_order_relaxed);
	/* fork:B relaxed: as fork:A */
	atomic_store_explicit(&ring->reaping, 0, memory_order_relaxed);
	/* fork:C relaxed: as fork:A */
	atomic_store_explicit(&ring->taken, 0, memory_order_relaxed);
	/* fork:D relaxed: as fork:A */
	atomic_store_explicit(&ring->withdrawn, 0, memory_order_relaxed);
	for (uint32_t i = 0; i < bitmap_words(&ring->map); i++)
		/* fork:E relaxed: as fork:A. A child does not inherit the page tables of shared memory. */
		atomic_store_explicit(&ring->populated[i], 0, memory_order_relaxed);
}

static void after_fork_in_child(void)
{
	for (struct rb_ring *ring = handles; ring; ring = ring->next)
		forget_parent(ring);
	pthread_mutex_unlock(&handles_lock); /* ours: this thread took it in before_fork() */
}

static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static void enlist(struct rb_ring *ring)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, watch_forks);
	pthread_mutex_lock(&handles_lock);
	ring->next = handles;
	ring->back = &handles;
	if (handles)
		handles->back = &ring->next;
	handles = ring;
	pthread_mutex_unlock(&handles_lock);
}

static void delist(struct rb_ring *ring)
{
	pthread_mutex_lock(&handles_lock);
	*ring->back = ring->next;
	if (ring->next)
		ring->next->back = ring->back;
	pthread_mutex_unlock(&handles_lock);
}

void rb_handle_notify(struct rb_ring *ring)
{
	rb_event_notify(&ring->map.control->ready);
	rb_event_notify(&ring->map.control->freed);
}

/* ---- joining and recovery ---------------------------------------------------------------------------- */

int rb_handle_recover(struct rb_ring *ring)
{
	uint32_t idle = 0;

	/* recover:A acquire, pairs with recover:B: one thread at a time; the others need not wait for it */
	if (!atomic_compare_exchange_strong_explicit(&ring->reaping, &idle, 1, memory_order_acquire,
						     memory_order_relaxed))
		return 0;
	int returned = rb_recover_dead(&ring->map, &ring->member);
	/* recover:C relaxed: a rate limit */
	atomic_store_explicit(&ring->reaped_ns, rb_now_ns(), memory_order_relaxed);
	/* recover:B release, pairs with recover:A: our use of the member's locks is over */
	atomic_store_explicit(&ring->reaping, 0, memory_order_release);
	if (returned > 0)
		rb_handle_notify(ring);
	return returned;
}

int rb_handle_reap(struct rb_ring *ring)
{
	return ring->supervised ? 0 : rb_handle_recover(ring);
}

/* Where the partner cannot run beside us, looking for what it does keeps it from doing it. */
static bool has_one_processor(void)
{
	cpu_set_t ours;

	return sched_getaffinity(0, sizeof(ours), &ours) == 0 && CPU_COUNT(&ours) == 1;
}

/* Become a participant, if need be by reaping one that died. */
static int join(struct rb_ring *ring, bool by_name)
{
	/* A fork in another thread waits: its child must find the new description in the handle, to close it. */
	pthread_mutex_lock(&handles_lock);
	int rc = rb_member_open(&ring->map, ring->fd, by_name, &ring->member);
	pthread_mutex_unlock(&handles_lock);

	if (rc < 0)
		return rc;
	rb_handle_reap(ring);
	rc = rb_member_join(&ring->map, &ring->member);
	if (rc < 0) {
		rb_member_close(&ring->member);
		return rc;
	}
	ring->self.row = ring->member.row;
	ring->spin_ns = has_one_processor() ? 0 : SPIN_NS;
	/* join_handle:A relaxed: published by join_handle:B */
	atomic_store_explicit(&ring->self.reader, RB_NO_READER, memory_order_relaxed);
	if (ring->self.held)
		for (uint32_t i = 0; i < ring->map.header.slots; i++)
			/* join_handle:C relaxed: published by join_handle:B; another participant's tickets mean nothing */
			atomic_store_explicit(&ring->self.held[i], 0, memory_order_relaxed);
	/* join_handle:B release, pairs with enter:A: the handle is whole before another thread uses it */
	atomic_store_explicit(&ring->joined, 1, memory_order_release);
	return 0;
}

/* First thing in every call that acts as a participant. */
int rb_handle_enter(struct rb_ring *ring)
{
	int rc = 0;

	/* enter:A acquire, pairs with join_handle:B: see there */
	if (atomic_load_explicit(&ring->joined, memory_order_acquire))
		return 0;
	pthread_mutex_lock(&ring->joining);
	/* enter:B relaxed: ordered by the mutex */
	if (!atomic_load_explicit(&ring->joined, memory_order_relaxed))
		rc = join(ring, false);
	pthread_mutex_unlock(&ring->joining);
	return rc;
}

int32_t rb_handle_slots_out(const struct rb_ring *ring)
{
	/* taken:C seq_cst, pairs with taken:B: see rb_handle_end_if_withdrawn() */
	return atomic_load_explicit(&ring->taken, memory_order_seq_cst);
}

/* The rest of this section is for broadcast, under ring->joining, which orders its relaxed accesses. */

void rb_handle_end_subscription(struct rb_ring *ring)
{
	/* end_subscription:A relaxed: under the mutex */
	int reader = atomic_load_explicit(&ring->self.reader, memory_order_relaxed);

	if (reader == RB_NO_READER)
		return;
	/* end_subscription:B relaxed: under the mutex */
	atomic_store_explicit(&ring->self.reader, RB_NO_READER, memory_order_relaxed);
	/* end_subscription:C relaxed: under the mutex */
	atomic_store_explicit(&ring->withdrawn, 0, memory_order_relaxed);
	if (rb_ring_unsubscribe(&ring->map, reader) > 0)
		rb_event_notify(&ring->map.control->freed);
}

/* Whoever comes last ends it: an unsubscribe sets `withdrawn` and then counts what is out, a release counts down and then
 * looks at `withdrawn`. */
void rb_handle_end_if_withdrawn(struct rb_ring *ring)
{
	/* withdrawn:A seq_cst, pairs with withdrawn:B: see above */
	if (atomic_load_explicit(&ring->withdrawn, memory_order_seq_cst) && rb_handle_slots_out(ring) == 0)
		rb_handle_end_subscription(ring);
}

static int subscribe(struct rb_ring *ring)
{
	rb_handle_end_if_withdrawn(ring);
	/* subscribe_handle:A relaxed: under the mutex */
	if (atomic_load_explicit(&ring->withdrawn, memory_order_relaxed))
		return -EBUSY;
	/* subscribe_handle:B relaxed: under the mutex */
	if (atomic_load_explicit(&ring->self.reader, memory_order_relaxed) != RB_NO_READER)
		return 0;
	int rc = rb_ring_subscribe(&ring->self);
	if (rc == -EUSERS) {
		rb_handle_reap(ring); /* the dead may hold entries, even if no slots */
		rc = rb_ring_subscribe(&ring->self);
	}
	/* While we joined, commits could not tell whether we are owed them, and left our bit. */
	if (rc == 0 && rb_ring_clear_unentitled(&ring->map) > 0)
		rb_event_notify(&ring->map.control->freed);
	return rc;
}

int rb_handle_enter_as_reader(struct rb_ring *ring)
{
	int rc = rb_handle_enter(ring);

	if (rc < 0 || ring->map.header.mode == RB_QUEUE)
		return rc;
	/* enter_reader:A acquire, pairs with subscribe:E: another thread subscribed us.
	 * enter_reader:B relaxed: set and cleared by calls that the caller keeps apart from its takes */
	if (atomic_load_explicit(&ring->self.reader, memory_order_acquire) != RB_NO_READER &&
	    !atomic_load_explicit(&ring->withdrawn, memory_order_relaxed))
		return 0;
	pthread_mutex_lock(&ring->joining);
	rc = subscribe(ring);
	pthread_mutex_unlock(&ring->joining);
	return rc;
}

/* ---- life --------------------------------------------------------------------------------------------- */

static void dismantle(struct rb_ring *ring)
{
	delist(ring);
	rb_member_close(&ring->member);
	rb_segment_unmap(&ring->map);
	close(ring->fd);
	free(ring->populated);
	free(ring->self.held);
	pthread_mutex_destroy(&ring->joining);
	free(ring);
}

/* A handle on a mapped segment. Takes over fd and map, also on failure. */
static int make_handle(int fd, const struct rb_map *map, bool by_name, bool supervised, struct rb_ring **out)
{
	struct rb_ring *ring = calloc(1, sizeof(*ring));
	struct rb_map orphan = *map;

	if (!ring) {
		rb_segment_unmap(&orphan);
		close(fd);
		return -ENOMEM;
	}
	ring->map = *map;
	ring->fd = fd;
	ring->member.live = -1;
	ring->self.map = &ring->map;
	ring->supervised = supervised;
	pthread_mutex_init(&ring->joining, NULL);
	ring->populated = calloc(bitmap_words(map), sizeof(*ring->populated));
	if (map->header.mode == RB_BROADCAST)
		ring->self.held = calloc(map->header.slots, sizeof(*ring->self.held));
	enlist(ring); /* before it joins: a fork from now on must close the child's copy of its locks */
	int rc = !ring->populated || (map->header.mode == RB_BROADCAST && !ring->self.held) ? -ENOMEM
											  : join(ring, by_name);
	if (rc < 0) {
		dismantle(ring);
		return rc;
	}
	*out = ring;
	return 0;
}

int rb_segment_bytes(const struct rb_options *options, uint64_t *bytes)
{
	struct rb_header plan;
	int rc = rb_segment_plan(options, &plan);

	if (rc == 0)
		*bytes = plan.total_bytes;
	return rc;
}

/* Publish under a name, over the leftover of the dead if there is one. We are a participant already: at no
 * instant does the name lead to a segment that looks dead. */
static int publish(struct rb_ring *ring)
{
	for (int i = 0; i < CREATE_TRIES; i++) {
		int rc = rb_segment_publish(ring->fd, ring->map.header.name);
		if (rc != -EEXIST)
			return rc;
		rc = rb_segment_reclaim(ring->map.header.name);
		if (rc == -EBUSY)
			return -EEXIST;
		if (rc < 0 && rc != -ENOENT)
			return rc;
	}
	return -EEXIST;
}

int rb_create(const struct rb_options *options, struct rb_ring **out)
{
	struct rb_header plan;
	struct rb_map map;
	struct rb_ring *ring;
	int fd;
	int rc = rb_segment_plan(options, &plan);

	if (rc == 0)
		rc = rb_segment_create(&plan, options->unsecured, &fd, &map);
	if (rc == 0)
		rc = make_handle(fd, &map, false, options->supervised, &ring);
	if (rc == 0)
		ring->unsecured = options->unsecured;
	if (rc == 0 && plan.name[0] != '\0') {
		rc = publish(ring);
		if (rc < 0)
			dismantle(ring);
	}
	if (rc == 0)
		*out = ring;
	return rc;
}

/* Attach to the segment behind a descriptor that is ours to keep or close. */
static int attach_owned(int fd, const char *name, bool supervised, struct rb_ring **out)
{
	struct rb_map map;

	RB_CRASH_POINT(attach_opened);
	int rc = rb_segment_map(fd, &map);

	if (rc == 0 && name && strcmp(name, map.header.name) != 0) {
		rb_segment_unmap(&map); /* a copy, or moved: who would remove its name? */
		rc = -EBADMSG;
	}
	if (rc < 0) {
		close(fd);
		return rc;
	}
	RB_CRASH_POINT(attach_mapped);
	return make_handle(fd, &map, name != NULL, supervised, out);
}

int rb_attach(const char *name, struct rb_ring **out)
{
	int fd;
	int rc = rb_segment_open(name, &fd);

	return rc < 0 ? rc : attach_owned(fd, name, false, out);
}

static int attach_fd(int fd, bool supervised, struct rb_ring **out)
{
	int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	return own < 0 ? -errno : attach_owned(own, NULL, supervised, out);
}

int rb_attach_fd(int fd, struct rb_ring **out)
{
	return attach_fd(fd, false, out);
}

int rb_attach_fd_supervised(int fd, struct rb_ring **out)
{
	return attach_fd(fd, true, out);
}

void rb_is_unsecured(struct rb_ring *ring)
{
	ring->unsecured = true;
}

static void leave(struct rb_ring *ring)
{
	if (rb_recover_own(&ring->map, ring->member.row) > 0)
		rb_handle_notify(ring);
	if (rb_member_leave(&ring->map, &ring->member) && ring->map.header.name[0] != '\0') {
		(void)rb_segment_unname(ring->fd, ring->map.header.name); /* else the next rb_create() of this name does it */
		RB_CRASH_POINT(leave_unnamed);
	}
}

void rb_detach(struct rb_ring *ring)
{
	/* detach:A relaxed: the caller's last call on this handle */
	if (atomic_load_explicit(&ring->joined, memory_order_relaxed))
		leave(ring);
	dismantle(ring);
}

int rb_unlink(const char *name)
{
	return rb_segment_reclaim(name);
}

int rb_fd(const struct rb_ring *ring)
{
	return ring->fd;
}

void rb_get_info(const struct rb_ring *ring, struct rb_info *out)
{
	rb_segment_info(&ring->map.header, out);
}
