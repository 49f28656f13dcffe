/* The only file that enters the kernel to sleep or to wake. Two kinds of sleep under one event count:
 * futex (default), or POSIX semaphores as doorbells (RINGBUF_WAIT_SEMAPHORE). */
#define _GNU_SOURCE
#include "wait.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "crash_points.h"

#define FLAG 1u
#define EPOCH 2u
#define NAP_NS INT64_C(1000000)
#define TRIES 1000 /* races that honest peers do not lose in a row; a hostile one could keep us here otherwise */

static struct timespec timespec_of(int64_t ns)
{
	return (struct timespec){ .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };
}

#ifdef RINGBUF_WAIT_SEMAPHORE

/* The semaphore is a doorbell, never a count of messages: a process killed between its sem_wait and its take
 * costs a wake-up, not a message. Epochs alternate between two bells, so that a waiter of the new epoch does not
 * take the post that was meant for one of the old.
 * glibc trusts a semaphore's insides: a peer that scribbles on them can make it abort us. The futex build has no
 * such weakness, one reason why it is the default. */
static unsigned parity(uint32_t word)
{
	return word / EPOCH & 1;
}

int rb_event_init(struct rb_event *event)
{
	for (int i = 0; i < 2; i++)
		if (sem_init(&event->bell[i], 1, 0) < 0)
			return -errno;
	return 0;
}

static int sleep_on(struct rb_event *event, uint32_t seen, const struct timespec *until)
{
	unsigned mine = parity(seen);
	int rc = 0;

	/* sleep:A seq_cst, pairs with ring_bell:A: either the notifier counts us, or we see the epoch it moved */
	atomic_fetch_add_explicit(&event->sleepers[mine], 1, memory_order_seq_cst);
	RB_CRASH_POINT(bell_counted);
	/* sleep:B seq_cst, pairs with notify:C: the other half of sleep:A */
	if (atomic_load_explicit(&event->word, memory_order_seq_cst) == seen &&
	    sem_clockwait(&event->bell[mine], CLOCK_MONOTONIC, until) < 0)
		rc = -errno;
	/* sleep:C relaxed: a count too high for a moment costs one post too many */
	atomic_fetch_sub_explicit(&event->sleepers[mine], 1, memory_order_relaxed);
	return rc;
}

static void wake_all(struct rb_event *event, uint32_t moved)
{
	unsigned theirs = parity(moved);
	int posted = 0;

	/* ring_bell:A seq_cst, pairs with sleep:A: see there */
	uint32_t sleepers = atomic_load_explicit(&event->sleepers[theirs], memory_order_seq_cst);

	/* Posts that nobody took (their sleeper was killed) stay and are counted in: they never pile up. */
	sem_getvalue(&event->bell[theirs], &posted);
	for (int64_t n = posted; n < (int64_t)sleepers && n < RB_PARTICIPANTS_MAX; n++) {
		sem_post(&event->bell[theirs]);
		RB_CRASH_POINT(bell_posted);
	}
}

#else

int rb_event_init(struct rb_event *event)
{
	(void)event; /* a zeroed word is ready */
	return 0;
}

/* The kernel lets nobody sleep on the word (a sandbox, no memory): look again soon, without using up a processor. */
static int nap(const struct timespec *until)
{
	int64_t end_ns = (int64_t)until->tv_sec * 1000000000 + until->tv_nsec;
	int64_t left_ns = end_ns - rb_clock_ns(CLOCK_MONOTONIC);
	struct timespec pause = timespec_of(left_ns < NAP_NS ? left_ns : NAP_NS);

	if (left_ns > 0 && nanosleep(&pause, NULL) < 0)
		return -errno;
	return left_ns > NAP_NS ? 0 : -ETIMEDOUT;
}

static int sleep_on(struct rb_event *event, uint32_t seen, const struct timespec *until)
{
	/* Not FUTEX_PRIVATE: the word is shared between processes. _BITSET takes an absolute time. */
	if (syscall(SYS_futex, &event->word, FUTEX_WAIT_BITSET, seen, until, NULL, FUTEX_BITSET_MATCH_ANY) == 0)
		return 0;
	if (errno == EAGAIN)
		return 0;
	if (errno != EINTR && errno != ETIMEDOUT)
		return nap(until);
	return -errno;
}

static void wake_all(struct rb_event *event, uint32_t moved)
{
	(void)moved;
	syscall(SYS_futex, &event->word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

#endif

uint32_t rb_event_prepare(struct rb_event *event)
{
	/* prepare:A relaxed: only a first guess for the CAS, or a word that says already what we would write */
	uint32_t word = atomic_load_explicit(&event->word, memory_order_relaxed);

	/* prepare:C relaxed: the fence below orders it; when it fails, somebody else moved the word: look again. Who gives
	 * up returns a word that is not there, on which nobody sleeps. */
	for (int tries = TRIES; tries > 0 && !(word & FLAG); tries--)
		if (atomic_compare_exchange_weak_explicit(&event->word, &word, word | FLAG, memory_order_relaxed,
							  memory_order_relaxed))
			break;
	/* prepare:B seq_cst, pairs with notify:A, notify:D: our flag before our second look */
	atomic_thread_fence(memory_order_seq_cst);
	RB_CRASH_POINT(wait_flagged);
	return word | FLAG;
}

int rb_event_sleep(struct rb_event *event, uint32_t seen, int64_t until_ns)
{
	/* A deadline in the past costs the kernel a timer that fires at once: some 20 us for nothing. */
	if (rb_clock_ns(CLOCK_MONOTONIC) >= until_ns)
		return -ETIMEDOUT;
	struct timespec until = timespec_of(until_ns);
	int rc = sleep_on(event, seen, &until);

	RB_CRASH_POINT(wait_woken);
	return rc;
}

void rb_event_notify(struct rb_event *event)
{
	/* notify:A seq_cst, pairs with prepare:B: the change we made before our look at the flag. Every caller's change ends
	 * in a read-modify-write or a seq_cst store. */
#if defined(__x86_64__)
	/* Those are full barriers here already, and the fence would cost as much as they do: hold back the compiler alone. */
	atomic_signal_fence(memory_order_seq_cst);
#else
	/* notify:D seq_cst, pairs with prepare:B: as notify:A; on ARM a release CAS does not hold back the load below */
	atomic_thread_fence(memory_order_seq_cst);
#endif
	/* notify:B relaxed: ordered by the fence */
	uint32_t word = atomic_load_explicit(&event->word, memory_order_relaxed);

	for (int tries = TRIES; tries > 0 && word & FLAG; tries--) {
		/* notify:C seq_cst, pairs with sleep:B: in the futex build the kernel orders it against the sleeper */
		if (atomic_compare_exchange_weak_explicit(&event->word, &word, (word + EPOCH) & ~FLAG,
							  memory_order_seq_cst, memory_order_relaxed)) {
			RB_CRASH_POINT(wake_moved);
			wake_all(event, word);
			RB_CRASH_POINT(wake_told);
			return;
		}
	}
}
