/* The public calls: a handle over segment, participant and ring, and the one place where anything waits.
 *
 * A handle belongs to the process that made it. fork() copies it: the child's copy keeps the mapping, for views that
 * were inherited, but closes the description that shows the parent alive and counts up `life`, so that slots
 * taken before the fork are refused. The child's first call joins as a participant of its own. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "crash_points.h"
#include "lock.h"
#include "recover.h"
#include "ring.h"
#include "segment.h"
#include "stats.h"
#include "wait.h"

#define SLICE_NS INT64_C(100000000)      /* no sleep is longer: see wait.h */
#define REAP_PAUSE_NS INT64_C(10000000)  /* callers that do not wait look for the dead no oftener than this */
#define CREATE_TRIES 64                  /* against others that create and reclaim the same name */

struct rb_ring {
	struct rb_self self;
	struct rb_map map;
	struct rb_member member;
	int fd;                           /* to hand out; carries no locks */
	_Atomic uint32_t joined;          /* 0 after a fork, until the child's first call */
	uint32_t life;                    /* forks survived */
	pthread_mutex_t joining;          /* one thread joins or subscribes; never held during a wait */
	_Atomic uint32_t reaping;         /* one thread reaps: see rb_member_seize */
	_Atomic int64_t reaped_ns;
	_Atomic int32_t taken;            /* slots out through this handle */
	_Atomic uint32_t withdrawn;       /* unsubscribed while slots are out: the entry stays until they are back */
	_Atomic uint32_t nudges;          /* rb_wake was called */
	int (*pause)(void *arg);
	void *pause_arg;
	_Atomic uint64_t *populated;      /* bit per slot: its pages are in this process's page tables */
	struct rb_ring *next, **back;     /* in `handles` */
};

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
	pthread_mutex_init(&handles_lock, NULL);
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

static void notify_all(struct rb_ring *ring)
{
	rb_event_notify(&ring->map.control->ready);
	rb_event_notify(&ring->map.control->freed);
}

/* ---- joining and recovery ---------------------------------------------------------------------------- */

static int recover(struct rb_ring *ring)
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
		notify_all(ring);
	return returned;
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
	recover(ring);
	rc = rb_member_join(&ring->map, &ring->member);
	if (rc < 0) {
		rb_member_close(&ring->member);
		return rc;
	}
	ring->self.row = ring->member.row;
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
static int enter(struct rb_ring *ring)
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

static int32_t slots_out(const struct rb_ring *ring)
{
	/* taken:C seq_cst, pairs with taken:B: see end_if_withdrawn() */
	return atomic_load_explicit(&ring->taken, memory_order_seq_cst);
}

/* The rest of this section is for broadcast, under ring->joining, which orders its relaxed accesses. */

static void end_subscription(struct rb_ring *ring)
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
static void end_if_withdrawn(struct rb_ring *ring)
{
	/* withdrawn:A seq_cst, pairs with withdrawn:B: see above */
	if (atomic_load_explicit(&ring->withdrawn, memory_order_seq_cst) && slots_out(ring) == 0)
		end_subscription(ring);
}

static int subscribe(struct rb_ring *ring)
{
	end_if_withdrawn(ring);
	/* subscribe_handle:A relaxed: under the mutex */
	if (atomic_load_explicit(&ring->withdrawn, memory_order_relaxed))
		return -EBUSY;
	/* subscribe_handle:B relaxed: under the mutex */
	if (atomic_load_explicit(&ring->self.reader, memory_order_relaxed) != RB_NO_READER)
		return 0;
	int rc = rb_ring_subscribe(&ring->self);
	if (rc == -EUSERS) {
		recover(ring); /* the dead may hold entries, even if no slots */
		rc = rb_ring_subscribe(&ring->self);
	}
	return rc;
}

static int enter_as_reader(struct rb_ring *ring)
{
	int rc = enter(ring);

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
static int make_handle(int fd, const struct rb_map *map, bool by_name, struct rb_ring **out)
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
		rc = rb_segment_create(&plan, &fd, &map);
	if (rc == 0)
		rc = make_handle(fd, &map, false, &ring);
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
static int attach_owned(int fd, const char *name, struct rb_ring **out)
{
	struct rb_map map;
	int rc = rb_segment_map(fd, &map);

	if (rc == 0 && name && strcmp(name, map.header.name) != 0) {
		rb_segment_unmap(&map); /* a copy, or moved: who would remove its name? */
		rc = -EBADMSG;
	}
	if (rc < 0) {
		close(fd);
		return rc;
	}
	return make_handle(fd, &map, name != NULL, out);
}

int rb_attach(const char *name, struct rb_ring **out)
{
	int fd;
	int rc = rb_segment_open(name, &fd);

	return rc < 0 ? rc : attach_owned(fd, name, out);
}

int rb_attach_fd(int fd, struct rb_ring **out)
{
	int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);

	return own < 0 ? -errno : attach_owned(own, NULL, out);
}

static void leave(struct rb_ring *ring)
{
	if (rb_recover_own(&ring->map, ring->member.row) > 0)
		notify_all(ring);
	if (rb_member_leave(&ring->map, &ring->member) && ring->map.header.name[0] != '\0')
		rb_segment_unname(ring->fd, ring->map.header.name);
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
	const struct rb_header *header = &ring->map.header;

	*out = (struct rb_info){
		.slot_bytes = header->slot_bytes,
		.slot_stride = header->slot_stride,
		.total_bytes = header->total_bytes,
		.slots = header->slots,
		.participants = header->participants,
		.mode = (enum rb_mode)header->mode,
		.full = (enum rb_full)header->full,
		.redeliver = header->redeliver,
		.name = header->name[0] != '\0' ? header->name : NULL,
	};
}

/* ---- the one wait loop -------------------------------------------------------------------------------- */

int64_t rb_now_ns(void)
{
	return rb_clock_ns(CLOCK_MONOTONIC);
}

void rb_on_pause(struct rb_ring *ring, int (*pause)(void *arg), void *arg)
{
	ring->pause = pause;
	ring->pause_arg = arg;
}

void rb_wake(struct rb_ring *ring)
{
	/* wake:A release, pairs with nudged:A: what its caller did before shows to the pause hook */
	atomic_fetch_add_explicit(&ring->nudges, 1, memory_order_release);
	notify_all(ring);
}

static uint32_t nudges(struct rb_ring *ring)
{
	/* nudged:A acquire, pairs with wake:A: see there */
	return atomic_load_explicit(&ring->nudges, memory_order_acquire);
}

/* One try at something, for the wait loop. -EAGAIN: not now. */
struct attempt {
	int (*run)(struct rb_ring *ring, struct attempt *attempt);
	uint64_t tag;
	uint32_t target;
	const struct rb_filter *filter;
	struct rb_slot *out;
};

/* Perhaps it does not work because the dead hold what we need; but looking for them costs system calls. */
static int try_hard(struct rb_ring *ring, struct attempt *attempt)
{
	int rc = attempt->run(ring, attempt);

	/* try:A relaxed: a rate limit */
	if (rc == -EAGAIN &&
	    rb_now_ns() - atomic_load_explicit(&ring->reaped_ns, memory_order_relaxed) >= REAP_PAUSE_NS &&
	    recover(ring) > 0)
		rc = attempt->run(ring, attempt);
	return rc;
}

/* Try, sleep a slice, look for the dead, let the pause hook speak, try again. The last try looks for the dead too:
 * a caller that polls with short deadlines must find them like one that sleeps long. */
static int try_until(struct rb_ring *ring, struct rb_event *event, int64_t deadline_ns, struct attempt *attempt)
{
	struct rb_row *row = &ring->map.rows[ring->self.row];
	int rc = attempt->run(ring, attempt);
	uint32_t nudged = nudges(ring);
	int64_t paused_ns = 0;

	if (rc != -EAGAIN)
		return rc;
	for (;;) {
		uint32_t seen = rb_event_prepare(event);
		rc = attempt->run(ring, attempt);
		if (rc != -EAGAIN)
			return rc;

		int64_t now = rb_now_ns();
		if (now >= deadline_ns) {
			rc = try_hard(ring, attempt);
			return rc == -EAGAIN ? -ETIMEDOUT : rc;
		}
		if (paused_ns == 0)
			paused_ns = now;
		int64_t until = deadline_ns - now < SLICE_NS ? deadline_ns : now + SLICE_NS;
		int woken = rb_event_sleep(event, seen, until);
		int64_t awake = rb_now_ns();
		rb_count(&row->waits, 1);
		rb_count(&row->wait_ns, (uint64_t)(awake - now));

		/* Wake-ups for others must not keep us from looking up. */
		bool due = awake - paused_ns >= SLICE_NS;
		if (woken == 0 && !due && nudges(ring) == nudged)
			continue;
		if (due) {
			recover(ring);
			paused_ns = awake;
		}
		nudged = nudges(ring);
		if (ring->pause && (rc = ring->pause(ring->pause_arg)) < 0)
			return rc;
	}
}

static int try_or_wait(struct rb_ring *ring, struct rb_event *event, int64_t deadline_ns, struct attempt *attempt)
{
	return deadline_ns <= RB_NOW ? try_hard(ring, attempt) : try_until(ring, event, deadline_ns, attempt);
}

/* Fault a slot's pages in with one call, the first time that this process is about to write to it: a write fault per page
 * costs several times as much. Done here, when first needed, so that a ring is ready at once. Takers are not
 * served: they mostly read, which faults in sixteen pages at a time, and some only look at a part. */
static void populate(struct rb_ring *ring, uint32_t index)
{
	_Atomic uint64_t *bits = &ring->populated[index / 64];
	uint64_t bit = UINT64_C(1) << index % 64;

	/* populate:A relaxed: done twice is only slower */
	if (atomic_load_explicit(bits, memory_order_relaxed) & bit)
		return;
	rb_segment_populate(&ring->map, index);
	/* populate:B relaxed: as populate:A */
	atomic_fetch_or_explicit(bits, bit, memory_order_relaxed);
}

/* ---- producers ---------------------------------------------------------------------------------------- */

static int run_claim(struct rb_ring *ring, struct attempt *attempt)
{
	return rb_ring_claim(&ring->self, attempt->tag, attempt->target, attempt->out);
}

int rb_claim(struct rb_ring *ring, uint64_t tag, uint32_t target, int64_t deadline_ns, struct rb_slot *out)
{
	struct attempt attempt = { .run = run_claim, .tag = tag, .target = target, .out = out };
	int rc = enter(ring);

	if (rc == 0)
		rc = try_or_wait(ring, &ring->map.control->freed, deadline_ns, &attempt);
	if (rc == 0) {
		out->life = ring->life;
		populate(ring, out->index);
	}
	return rc;
}

/* Could this slot have come from this handle, in this life, in this state? The word in it is what decides then. */
static bool is_ours(const struct rb_ring *ring, const struct rb_slot *slot, enum rb_state state)
{
	return slot->life == ring->life && slot->who == ring->self.row + 1 && slot->index < ring->map.header.slots &&
	       rb_word_state(slot->word) == state;
}

static bool is_taken(const struct rb_ring *ring, const struct rb_slot *slot)
{
	return is_ours(ring, slot, ring->map.header.mode == RB_BROADCAST ? RB_READY : RB_READING);
}

int rb_commit(struct rb_ring *ring, const struct rb_slot *slot, uint64_t bytes)
{
	if (bytes > ring->map.header.slot_bytes)
		return -EMSGSIZE;
	if (!is_ours(ring, slot, RB_WRITING))
		return -ESTALE;
	int rc = rb_ring_commit(&ring->self, slot, bytes);
	if (rc == 0 && ring->map.header.mode == RB_BROADCAST)
		notify_all(ring); /* claimers too: nobody may have been there to read it */
	else if (rc == 0)
		rb_event_notify(&ring->map.control->ready);
	return rc;
}

int rb_abort(struct rb_ring *ring, const struct rb_slot *slot)
{
	int rc = is_ours(ring, slot, RB_WRITING) ? rb_ring_abort(&ring->self, slot) : -ESTALE;

	if (rc == 0)
		notify_all(ring); /* takers too: it may have been the last that a drain waited for */
	return rc;
}

int rb_finish(struct rb_ring *ring)
{
	rb_ring_finish(&ring->map);
	notify_all(ring);
	return 0;
}

/* ---- consumers ---------------------------------------------------------------------------------------- */

static int run_take(struct rb_ring *ring, struct attempt *attempt)
{
	bool freed;
	int rc = rb_ring_take(&ring->self, attempt->filter, attempt->out, &freed);

	if (freed)
		rb_event_notify(&ring->map.control->freed);
	if (rc == -EAGAIN && rb_ring_drained(&ring->self, attempt->filter))
		rc = -EPIPE;
	return rc;
}

int rb_take(struct rb_ring *ring, const struct rb_filter *filter, int64_t deadline_ns, struct rb_slot *out)
{
	struct attempt attempt = { .run = run_take, .filter = filter, .out = out };
	int rc = enter_as_reader(ring);

	if (rc == 0)
		rc = try_or_wait(ring, &ring->map.control->ready, deadline_ns, &attempt);
	/* Before it ends: a consumer that died with the last message in hand leaves it to us. */
	while (rc == -EPIPE && recover(ring) > 0)
		rc = try_or_wait(ring, &ring->map.control->ready, deadline_ns, &attempt);
	if (rc == 0) {
		out->life = ring->life;
		/* taken:A relaxed: a count for rb_unsubscribe */
		atomic_fetch_add_explicit(&ring->taken, 1, memory_order_relaxed);
	}
	return rc;
}

int rb_release(struct rb_ring *ring, const struct rb_slot *slot)
{
	int rc = is_taken(ring, slot) ? rb_ring_release(&ring->self, slot) : -ESTALE;

	if (rc < 0)
		return rc;
	/* taken:B seq_cst, pairs with taken:C: see end_if_withdrawn() */
	atomic_fetch_sub_explicit(&ring->taken, 1, memory_order_seq_cst);
	rb_event_notify(&ring->map.control->freed);
	/* withdrawn:C seq_cst, pairs with withdrawn:B: see end_if_withdrawn() */
	if (atomic_load_explicit(&ring->withdrawn, memory_order_seq_cst)) {
		pthread_mutex_lock(&ring->joining);
		end_if_withdrawn(ring);
		pthread_mutex_unlock(&ring->joining);
	}
	return 0;
}

int rb_subscribe(struct rb_ring *ring)
{
	return ring->map.header.mode == RB_BROADCAST ? enter_as_reader(ring) : -EINVAL;
}

int rb_unsubscribe(struct rb_ring *ring)
{
	/* unsubscribe_handle:C relaxed: a forked child that did not join is no reader */
	if (ring->map.header.mode == RB_QUEUE || !atomic_load_explicit(&ring->joined, memory_order_relaxed))
		return 0;
	pthread_mutex_lock(&ring->joining);
	/* unsubscribe_handle:A relaxed: under the mutex */
	int reader = atomic_load_explicit(&ring->self.reader, memory_order_relaxed);
	if (slots_out(ring) == 0) {
		end_subscription(ring);
	} else if (reader != RB_NO_READER) {
		if (rb_ring_withdraw(&ring->map, reader, ring->self.held) > 0)
			rb_event_notify(&ring->map.control->freed);
		/* withdrawn:B seq_cst, pairs with withdrawn:A, withdrawn:C: see end_if_withdrawn() */
		atomic_store_explicit(&ring->withdrawn, 1, memory_order_seq_cst);
		end_if_withdrawn(ring);
	}
	pthread_mutex_unlock(&ring->joining);
	return 0;
}

/* ---- looking after it --------------------------------------------------------------------------------- */

int rb_recover(struct rb_ring *ring)
{
	int rc = enter(ring);

	return rc < 0 ? rc : recover(ring);
}

int rb_ready(struct rb_ring *ring)
{
	int rc = enter(ring);

	return rc < 0 ? rc : rb_ring_ready(&ring->self);
}

void rb_get_stats(struct rb_ring *ring, struct rb_stats *out)
{
	rb_stats_collect(&ring->map, out);
}

int rb_get_lost(struct rb_ring *ring, struct rb_lost *out, uint32_t most)
{
	return rb_stats_losses(&ring->map, out, most);
}
