/* A peer that rewrites shared words without a pause, while others use every call there is, costs them messages at most: each call comes back, with a slot inside the ring or an error. */
#include "t.h"

#include "hostile.h"

#define VICTIMS 2
#define TURNS T_ROUNDS(400) /* of each victim under each way of writing; at full length 20 times as many */

static struct shared {
	_Atomic int turns[VICTIMS];     /* how many a victim has behind it */
	_Atomic int ready, over;
	_Atomic uint64_t claimed, taken, writes;
	_Atomic int64_t longest_ns;
} *shared;

static rb_ring *ring;
static const struct hostile_way *way;
static int turns_wanted;
static bool threads;

/* ---- the victims' side ------------------------------------------------------------------------------------ */

struct victim {
	int number;
	uint64_t state;
	unsigned char *payload;
	rb_ring *ring;
};

static int64_t deadline(struct victim *self)
{
	return t_random(&self->state) % 4 ? RB_NOW : rb_now_ns() + T_MS_NS / 10;
}

static void produce(struct victim *self)
{
	struct rb_slot slot;

	if (rb_claim(self->ring, 1, RB_ANY, deadline(self), &slot) != 0)
		return;
	hostile_check(self->ring, &slot, self->payload);
	atomic_fetch_add(&shared->claimed, 1);
	if (t_random(&self->state) & 3)
		rb_commit(self->ring, &slot, HOSTILE_SLOT_BYTES);
	else
		rb_abort(self->ring, &slot);
}

static void consume(struct victim *self)
{
	struct rb_filter filter = { .by_tag = t_random(&self->state) & 1, .by_target = t_random(&self->state) & 1, .tag = 1 };
	struct rb_slot slot;

	if (rb_take(self->ring, t_random(&self->state) & 1 ? &filter : NULL, deadline(self), &slot) != 0)
		return;
	hostile_check(self->ring, &slot, self->payload);
	atomic_fetch_add(&shared->taken, 1);
	rb_release(self->ring, &slot);
}

static void look_around(struct victim *self)
{
	struct rb_lost lost[RB_LOST_LOG];
	struct rb_stats stats = t_stats(self->ring);
	int ready = rb_ready(self->ring), n = rb_get_lost(self->ring, lost, RB_LOST_LOG);

	t_check(stats.free + stats.writing + stats.ready + stats.reading <= HOSTILE_SLOTS);
	t_check(ready >= 0 && ready <= HOSTILE_SLOTS);
	t_check(n >= 0 && n <= (int)RB_LOST_LOG);
	t_check(rb_recover(self->ring) >= 0);
	rb_wake(self->ring);
}

/* May be refused, but no worse. */
static void come_and_go(struct victim *self)
{
	rb_ring *late;
	int rc = rb_attach_fd(rb_fd(self->ring), &late);

	t_check(rc == 0 || rc == -EUSERS);
	if (rc == 0)
		rb_detach(late);
}

static void turn(struct victim *self)
{
	int64_t began = rb_now_ns();

	switch (t_random(&self->state) % 8) {
	case 0: look_around(self); break;
	case 1: come_and_go(self); break;
	case 2:
		if (!threads) /* not while another thread takes */
			rb_unsubscribe(self->ring);
		break;
	case 3: rb_subscribe(self->ring); break;
	case 4: case 5: produce(self); break;
	default: consume(self); break;
	}
	int64_t took = rb_now_ns() - began;
	if (took > atomic_load(&shared->longest_ns))
		atomic_store(&shared->longest_ns, took);
}

static void suffer(struct victim *self)
{
	atomic_fetch_add(&shared->ready, 1);
	t_await(&shared->ready, VICTIMS + 1);
	while (!atomic_load(&shared->over)) {
		turn(self);
		atomic_fetch_add(&shared->turns[self->number], 1);
	}
}

static void victim_process(void *arg)
{
	struct victim self = { .number = *(int *)arg, .state = 1000 + (uint64_t)*(int *)arg, .ring = t_attach(ring) };

	self.payload = hostile_payload(self.ring);
	suffer(&self);
}

static void *victim_thread(void *arg)
{
	struct victim self = { .number = *(int *)arg, .state = 2000 + (uint64_t)*(int *)arg, .ring = ring };

	self.payload = hostile_payload(self.ring);
	suffer(&self);
	return NULL;
}

/* ---- the other side ---------------------------------------------------------------------------------------- */

static void attack(struct hostile *peer)
{
	t_await(&shared->ready, VICTIMS);
	atomic_fetch_add(&shared->ready, 1);
	while (!atomic_load(&shared->over)) {
		for (int i = 0; i < 1000; i++)
			hostile_write(peer, way);
		if (t_random(&peer->state) % 16 == 0)
			hostile_relent(peer);
	}
	atomic_fetch_add(&shared->writes, peer->n);
}

static void hostile_process(void *arg)
{
	struct hostile peer = hostile_at(ring, *(uint64_t *)arg);

	attack(&peer);
}

static void *hostile_thread(void *arg)
{
	hostile_process(arg);
	return NULL;
}

/* None does before it is told to, unless it crashes. */
static bool somebody_ended(void)
{
	siginfo_t who = { 0 };

	return !threads && waitid(P_ALL, 0, &who, WEXITED | WNOHANG | WNOWAIT) == 0 && who.si_pid != 0;
}

/* It goes on for as long as they need for so many turns: who gets nowhere while it lasts, hangs. */
static void await_turns(void)
{
	int64_t end = t_soon();

	for (int i = 0; i < VICTIMS && !somebody_ended(); i++)
		for (; atomic_load(&shared->turns[i]) < turns_wanted && !somebody_ended(); usleep(500))
			if (rb_now_ns() > end)
				t_die(__FILE__, __LINE__, "%d hangs after %d turns", i, atomic_load(&shared->turns[i]));
	atomic_store(&shared->over, 1);
}

static void in_processes(uint64_t seed)
{
	pid_t victims[VICTIMS];

	for (int i = 0; i < VICTIMS; i++)
		victims[i] = t_child(victim_process, &i);
	pid_t peer = t_child(hostile_process, &seed);
	await_turns();
	t_ends_well(peer);
	for (int i = 0; i < VICTIMS; i++)
		t_ends_well(victims[i]);
}

static void in_threads(uint64_t seed)
{
	pthread_t victims[VICTIMS];
	int numbers[VICTIMS];

	for (int i = 0; i < VICTIMS; i++) {
		numbers[i] = i;
		victims[i] = t_thread(victim_thread, &numbers[i]);
	}
	pthread_t peer = t_thread(hostile_thread, &seed);
	await_turns();
	t_join(peer);
	for (int i = 0; i < VICTIMS; i++)
		t_join(victims[i]);
}

static void run_case(int kind, const struct hostile_way *this_way, bool in_one_process)
{
	uint64_t seed = 88172645463325252u + (uint64_t)kind;

	way = this_way;
	threads = in_one_process;
	snprintf(t_context, sizeof(t_context), "%s, ring kind %d, %s: ", way->name, kind, threads ? "threads" : "processes");
	ring = t_create_at(__FILE__, __LINE__, hostile_rings[kind]);
	for (int i = 0; i < VICTIMS; i++)
		atomic_store(&shared->turns[i], 0);
	atomic_store(&shared->ready, 0);
	atomic_store(&shared->over, 0);
	if (threads)
		in_threads(seed);
	else
		in_processes(seed);
	rb_detach(ring);
}

int main(int argc, char **argv)
{
	int cases = 0;

	shared = t_shared(sizeof(*shared));
	turns_wanted = t_thorough(argc, argv) ? TURNS * 20 : TURNS;
	for (int kind = 0; kind < (int)HOSTILE_RINGS; kind++)
		for (size_t w = 0; w < HOSTILE_WAYS; w++)
			for (int in_one_process = 0; in_one_process < 2; in_one_process++) {
				run_case(kind, &hostile_ways[w], in_one_process);
				cases++;
			}
	t_check(shared->claimed > 0 && shared->taken > 0);
	t_figures("cases=%d writes=%llu claimed=%llu taken=%llu longest_us=%lld", cases, (unsigned long long)shared->writes,
		  (unsigned long long)shared->claimed, (unsigned long long)shared->taken, (long long)shared->longest_ns / 1000);
	return 0;
}
