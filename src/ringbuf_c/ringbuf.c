/* The public calls for messages, and the one place where anything waits. */
#define _GNU_SOURCE
#include <errno.h>

#include "handle.h"
#include "segment.h"
#include "stats.h"
#include "wait.h"

#define SLICE_NS INT64_C(100000000)      /* no sleep is longer: see wait.h */
#define REAP_PAUSE_NS INT64_C(10000000)  /* callers that do not wait look for the dead no oftener than this */
#define REST_MAX 63u                     /* waits without a spin, after spins in vain: see learn() */
#define PROBE 8                          /* times as long as usual is the spin after so many waits without */
#define RESCUES 16                       /* deaths in a row that a take at the end of a ring waits out */

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
	rb_handle_notify(ring);
}

static uint32_t nudges(struct rb_ring *ring)
{
	/* nudged:A acquire, pairs with wake:A: see there */
	return atomic_load_explicit(&ring->nudges, memory_order_acquire);
}

/* One try at something, for the wait loop. -EAGAIN: not now. */
struct attempt {
	int (*run)(struct rb_ring *ring, struct attempt *attempt);
	struct rb_event *event;        /* moved by what could make it work */
	struct rb_patience *patience;
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
	    rb_handle_reap(ring) > 0)
		rc = attempt->run(ring, attempt);
	return rc;
}

/* Is this wait to begin with a spin? Where spins were in vain lately, most waits go without. */
static bool may_spin(const struct rb_ring *ring, struct rb_patience *patience)
{
	if (ring->spin_ns == 0)
		return false;
	/* patience:A relaxed: a habit of this handle's; threads that lose each other's counts spin a little more or less */
	uint32_t rest = atomic_load_explicit(&patience->rest, memory_order_relaxed);
	if (rest == 0)
		return true;
	/* patience:B relaxed: as patience:A */
	atomic_store_explicit(&patience->rest, rest - 1, memory_order_relaxed);
	return false;
}

/* Each spin in vain doubles the number of waits that go without, one that was not ends that: a partner that answers within
 * microseconds, on another processor, is found quickly, and one that needs ours is not kept from it. */
static void learn(struct rb_patience *patience, bool in_vain)
{
	/* patience:C relaxed: as patience:A */
	uint32_t pace = in_vain ? atomic_load_explicit(&patience->pace, memory_order_relaxed) * 2 + 1 : 0;

	if (pace > REST_MAX)
		pace = REST_MAX;
	/* patience:D relaxed: as patience:A */
	atomic_store_explicit(&patience->pace, pace, memory_order_relaxed);
	/* patience:E relaxed: as patience:A */
	atomic_store_explicit(&patience->rest, pace, memory_order_relaxed);
}

/* Look again and again for a moment, before anybody is told that we wait: as long as nobody is, the partner makes no system call
 * to wake us, and we make none to sleep. What is missed here is found by the look that comes before a sleep. */
static int spin(struct rb_ring *ring, int64_t deadline_ns, uint32_t nudged, struct attempt *attempt)
{
	/* spin:A relaxed: as patience:A */
	uint32_t pace = atomic_load_explicit(&attempt->patience->pace, memory_order_relaxed);
	/* Of two that both sleep, each waits for the other to be woken up, longer than a spin. To find out that they need not, one
	 * has to look for so long, once. */
	int64_t until = rb_now_ns() + (pace < REST_MAX ? ring->spin_ns : PROBE * ring->spin_ns);
	int rc = -EAGAIN;

	if (until > deadline_ns)
		until = deadline_ns;
	while (rc == -EAGAIN && nudges(ring) == nudged && rb_now_ns() < until) {
		rb_relax();
		rc = attempt->run(ring, attempt);
	}
	learn(attempt->patience, rc == -EAGAIN);
	return rc;
}

/* Try, spin, sleep a slice, look for the dead, let the pause hook speak, try again. The last try looks for the dead too:
 * a caller that polls with short deadlines must find them like one that sleeps long. */
static int try_until(struct rb_ring *ring, int64_t deadline_ns, struct attempt *attempt)
{
	struct rb_row *row = &ring->map.rows[ring->self.row];
	struct rb_event *event = attempt->event;
	int rc = attempt->run(ring, attempt);
	uint32_t nudged = nudges(ring);
	int64_t paused_ns = 0;

	if (rc == -EAGAIN && may_spin(ring, attempt->patience))
		rc = spin(ring, deadline_ns, nudged, attempt);
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
		int64_t awake = now;
		int woken = 0;
		if (nudges(ring) == nudged) { /* else rb_wake() came while the hook spoke, and found nobody asleep */
			woken = rb_event_sleep(event, seen, until);
			awake = rb_now_ns();
			rb_count(&row->waits, 1);
			rb_count(&row->wait_ns, (uint64_t)(awake - now));
		}

		/* Wake-ups for others must not keep us from looking up. */
		bool due = awake - paused_ns >= SLICE_NS;
		if (woken == 0 && !due && nudges(ring) == nudged)
			continue;
		if (due) {
			rb_handle_reap(ring);
			paused_ns = awake;
		}
		nudged = nudges(ring);
		if (ring->pause && (rc = ring->pause(ring->pause_arg)) < 0)
			return rc;
	}
}

static int try_or_wait(struct rb_ring *ring, int64_t deadline_ns, struct attempt *attempt)
{
	return deadline_ns <= RB_NOW ? try_hard(ring, attempt) : try_until(ring, deadline_ns, attempt);
}

/* Fault a slot's pages in with one call, the first time that this process is about to write to it: a write fault per page
 * costs several times as much. Done here, when first needed, so that a ring is ready at once. Takers are not
 * served: they mostly read, which faults in sixteen pages at a time, and some only look at a part.
 * Fails only in an unsecured ring, where there may be no pages yet. */
static int populate(struct rb_ring *ring, uint32_t index)
{
	_Atomic uint64_t *bits = &ring->populated[index / 64];
	uint64_t bit = UINT64_C(1) << index % 64;
	int rc = 0;

	/* populate:A relaxed: done twice is only slower */
	if (atomic_load_explicit(bits, memory_order_relaxed) & bit)
		return 0;
	if (ring->unsecured)
		rc = rb_segment_secure(&ring->map, ring->fd, index);
	else
		rb_segment_populate(&ring->map, index);
	if (rc == 0)
		/* populate:B relaxed: as populate:A */
		atomic_fetch_or_explicit(bits, bit, memory_order_relaxed);
	return rc;
}

/* ---- producers ---------------------------------------------------------------------------------------- */

static int run_claim(struct rb_ring *ring, struct attempt *attempt)
{
	return rb_ring_claim(&ring->self, attempt->tag, attempt->target, attempt->out);
}

int rb_claim(struct rb_ring *ring, uint64_t tag, uint32_t target, int64_t deadline_ns, struct rb_slot *out)
{
	struct attempt attempt = {
		.run = run_claim,
		.event = &ring->map.control->freed,
		.patience = &ring->claiming,
		.tag = tag,
		.target = target,
		.out = out,
	};
	int rc = rb_handle_enter(ring);

	if (rc == 0)
		rc = try_or_wait(ring, deadline_ns, &attempt);
	if (rc == -EPIPE)
		rb_handle_notify(ring); /* it may have had a slot for a moment: a taker who saw that waits for what becomes of it */
	if (rc == 0) {
		out->life = ring->life;
		if (!ring->unsecured)
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

int rb_secure(struct rb_ring *ring, const struct rb_slot *slot)
{
	return is_ours(ring, slot, RB_WRITING) ? populate(ring, slot->index) : -ESTALE;
}

static int commit_unheard(struct rb_ring *ring, const struct rb_slot *slot, uint64_t bytes)
{
	if (bytes > ring->map.header.slot_bytes)
		return -EMSGSIZE;
	return is_ours(ring, slot, RB_WRITING) ? rb_ring_commit(&ring->self, slot, bytes) : -ESTALE;
}

static void tell_of_commits(struct rb_ring *ring)
{
	if (ring->map.header.mode == RB_BROADCAST)
		rb_handle_notify(ring); /* claimers too: nobody may have been there to read it */
	else
		rb_event_notify(&ring->map.control->ready);
}

int rb_commit(struct rb_ring *ring, const struct rb_slot *slot, uint64_t bytes)
{
	int rc = commit_unheard(ring, slot, bytes);

	if (rc == 0)
		tell_of_commits(ring);
	return rc;
}

int rb_commit_all(struct rb_ring *ring, const struct rb_slot *slots, const uint64_t *bytes, uint32_t n)
{
	int rc = 0;

	for (uint32_t i = 0; i < n && rc == 0; i++)
		rc = commit_unheard(ring, &slots[i], bytes[i]);
	tell_of_commits(ring);
	return rc;
}

int rb_abort(struct rb_ring *ring, const struct rb_slot *slot)
{
	int rc = is_ours(ring, slot, RB_WRITING) ? rb_ring_abort(&ring->self, slot) : -ESTALE;

	if (rc == 0)
		rb_handle_notify(ring); /* takers too: it may have been the last that a drain waited for */
	return rc;
}

int rb_finish(struct rb_ring *ring)
{
	rb_ring_finish(&ring->map);
	rb_handle_notify(ring);
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
	bool picks = filter && (filter->by_tag || filter->by_target);
	struct attempt attempt = {
		.run = run_take,
		.event = &ring->map.control->ready,
		.patience = &ring->taking,
		.filter = picks ? filter : NULL,
		.out = out,
	};
	int rc = rb_handle_enter_as_reader(ring);

	if (rc == 0)
		rc = try_or_wait(ring, deadline_ns, &attempt);
	/* Before it ends: a consumer that died with the last message in hand leaves it to us. */
	for (int tries = RESCUES; tries > 0 && rc == -EPIPE && rb_handle_reap(ring) > 0; tries--)
		rc = try_or_wait(ring, deadline_ns, &attempt);
	if (rc == 0)
		out->life = ring->life;
	if (rc == 0 && ring->map.header.mode == RB_BROADCAST)
		/* taken:A relaxed: a count for rb_unsubscribe */
		atomic_fetch_add_explicit(&ring->taken, 1, memory_order_relaxed);
	return rc;
}

/* Broadcast: one slot fewer is out. */
static void count_back(struct rb_ring *ring)
{
	/* taken:B seq_cst, pairs with taken:C: see rb_handle_end_if_withdrawn() */
	atomic_fetch_sub_explicit(&ring->taken, 1, memory_order_seq_cst);
	/* withdrawn:C seq_cst, pairs with withdrawn:B: see rb_handle_end_if_withdrawn() */
	if (atomic_load_explicit(&ring->withdrawn, memory_order_seq_cst)) {
		pthread_mutex_lock(&ring->joining);
		rb_handle_end_if_withdrawn(ring);
		pthread_mutex_unlock(&ring->joining);
	}
}

int rb_release(struct rb_ring *ring, const struct rb_slot *slot)
{
	int rc = is_taken(ring, slot) ? rb_ring_release(&ring->self, slot) : -ESTALE;

	if (rc < 0)
		return rc;
	rb_event_notify(&ring->map.control->freed);
	if (ring->map.header.mode == RB_BROADCAST)
		count_back(ring);
	return 0;
}

int rb_subscribe(struct rb_ring *ring)
{
	return ring->map.header.mode == RB_BROADCAST ? rb_handle_enter_as_reader(ring) : -EINVAL;
}

int rb_unsubscribe(struct rb_ring *ring)
{
	/* unsubscribe_handle:C relaxed: a forked child that did not join is no reader */
	if (ring->map.header.mode == RB_QUEUE || !atomic_load_explicit(&ring->joined, memory_order_relaxed))
		return 0;
	pthread_mutex_lock(&ring->joining);
	/* unsubscribe_handle:A relaxed: under the mutex */
	int reader = atomic_load_explicit(&ring->self.reader, memory_order_relaxed);
	if (rb_handle_slots_out(ring) == 0) {
		rb_handle_end_subscription(ring);
	} else if (reader != RB_NO_READER) {
		if (rb_ring_withdraw(&ring->map, reader, ring->self.held) > 0)
			rb_event_notify(&ring->map.control->freed);
		/* withdrawn:B seq_cst, pairs with withdrawn:A, withdrawn:C: see rb_handle_end_if_withdrawn() */
		atomic_store_explicit(&ring->withdrawn, 1, memory_order_seq_cst);
		rb_handle_end_if_withdrawn(ring);
	}
	pthread_mutex_unlock(&ring->joining);
	return 0;
}

/* ---- waiting in another thread's place ---------------------------------------------------------------- */

static struct rb_event *event_of(struct rb_ring *ring, enum rb_wish wish)
{
	return wish == RB_TO_TAKE ? &ring->map.control->ready : &ring->map.control->freed;
}

uint32_t rb_watch(struct rb_ring *ring, enum rb_wish wish)
{
	return rb_event_prepare(event_of(ring, wish));
}

int rb_can_take(struct rb_ring *ring, const struct rb_filter *filter)
{
	int rc = rb_handle_enter_as_reader(ring);

	return rc < 0 ? rc : rb_ring_ready(&ring->self, filter) > 0 || rb_ring_drained(&ring->self, filter);
}

int rb_can_claim(struct rb_ring *ring)
{
	int rc = rb_handle_enter(ring);

	return rc < 0 ? rc : rb_ring_claimable(&ring->self);
}

/* Who changed something may have died before it told us, so after a slice we look. An error is for the caller's next call to meet. */
int rb_await(struct rb_ring *ring, enum rb_wish wish, uint32_t seen, int64_t deadline_ns)
{
	if (rb_handle_enter(ring) < 0)
		return 0;

	struct rb_row *row = &ring->map.rows[ring->self.row];
	int64_t now = rb_now_ns();
	int64_t until = deadline_ns - now < SLICE_NS ? deadline_ns : now + SLICE_NS;
	int rc = rb_event_sleep(event_of(ring, wish), seen, until);

	rb_count(&row->waits, 1);
	rb_count(&row->wait_ns, (uint64_t)(rb_now_ns() - now));
	if (rc == 0)
		return 0;
	rb_handle_reap(ring);
	return (wish == RB_TO_TAKE ? rb_can_take(ring, NULL) : rb_can_claim(ring)) != 0 ? 0 : -EAGAIN;
}

int rb_count_tags(const struct rb_ring *ring, uint64_t first, uint64_t last)
{
	int n = 0;

	for (uint32_t i = 0; i < ring->map.header.slots; i++) {
		struct rb_view view;
		int rc = rb_stats_look(&ring->map, i, &view);

		/* Who changes too fast to be seen is not gone. */
		n += rc == -EAGAIN || (view.state != RB_FREE && view.tag >= first && view.tag <= last);
	}
	return n;
}

void *rb_payload_of(const struct rb_ring *ring, uint32_t index)
{
	return index < ring->map.header.slots ? rb_payload(&ring->map, index) : NULL;
}

/* ---- looking after it --------------------------------------------------------------------------------- */

int rb_recover(struct rb_ring *ring)
{
	int rc = rb_handle_enter(ring);

	return rc < 0 ? rc : rb_handle_recover(ring);
}

int rb_ready(struct rb_ring *ring)
{
	int rc = rb_handle_enter(ring);

	return rc < 0 ? rc : rb_ring_ready(&ring->self, NULL);
}

int rb_look(const struct rb_ring *ring, uint32_t index, struct rb_view *out)
{
	return index < ring->map.header.slots ? rb_stats_look(&ring->map, index, out) : -EINVAL;
}

void rb_get_stats(struct rb_ring *ring, struct rb_stats *out)
{
	rb_stats_collect(&ring->map, out);
}

int rb_get_lost(struct rb_ring *ring, struct rb_lost *out, uint32_t most)
{
	return rb_stats_losses(&ring->map, out, most);
}
