/* A peer so fast that it writes between any two accesses of a call keeps nobody in that call: tries are bounded, and what was found is not believed twice. */
#include "t.h"

#include "hostile.h"

#define MOST 1000000 /* accesses of one call; honest calls make some hundred */

static struct hostile peer;
static const struct hostile_way *way;
static bool on;
static int accesses, every, most;
static long all_accesses;

void rb_between(void);

void rb_between(void)
{
	if (!on)
		return;
	if (++accesses % every == 0)
		hostile_write(&peer, way);
	if (accesses > MOST)
		t_die(__FILE__, __LINE__, "still not back after %d accesses", accesses);
}

/* ---- the calls ---------------------------------------------------------------------------------------------- */

static rb_ring *ring;
static unsigned char *payload;
static struct rb_slot held; /* claimed or taken before it begins, where a call needs that */
static bool have;

static void begin(void)
{
	accesses = 0;
	on = true;
}

static void end(void)
{
	on = false;
	all_accesses += accesses;
	if (accesses > most)
		most = accesses;
}

static void honestly_claimed(void)
{
	have = rb_claim(ring, 1, RB_ANY, RB_NOW, &held) == 0;
}

static void honestly_taken(void)
{
	rb_subscribe(ring);
	honestly_claimed();
	if (have)
		rb_commit(ring, &held, 8);
	have = rb_take(ring, NULL, RB_NOW, &held) == 0;
}

static void nothing(void)
{
	have = false;
	rb_subscribe(ring);
}

static int claim(void) { return rb_claim(ring, 1, RB_ANY, RB_NOW, &held); }
static int take(void) { return rb_take(ring, NULL, RB_NOW, &held); }
static int take_filtered(void) { return rb_take(ring, &(struct rb_filter){ .by_tag = true, .by_target = true, .tag = 1 }, RB_NOW, &held); }
static int claim_waiting(void) { return rb_claim(ring, 1, RB_ANY, 1, &held); } /* a deadline that has passed */
static int take_waiting(void) { return rb_take(ring, NULL, 1, &held); }
static int commit(void) { return rb_commit(ring, &held, 8); }
static int abort_it(void) { return rb_abort(ring, &held); }
static int release(void) { return rb_release(ring, &held); }
static int recover(void) { return rb_recover(ring); }
static int ready(void) { return rb_ready(ring); }
static int wake(void) { rb_wake(ring); return 0; }
static int subscribe(void) { return rb_subscribe(ring); }
static int unsubscribe(void) { return rb_unsubscribe(ring); }

static int lost(void)
{
	struct rb_lost out[RB_LOST_LOG];
	int n = rb_get_lost(ring, out, RB_LOST_LOG);

	t_check(n >= 0 && n <= (int)RB_LOST_LOG);
	return n;
}

static int stats(void)
{
	struct rb_stats out;

	rb_get_stats(ring, &out);
	t_check(out.free + out.writing + out.ready + out.reading <= HOSTILE_SLOTS);
	return 0;
}

static int come_and_go(void)
{
	rb_ring *late;
	int rc = rb_attach_fd(rb_fd(ring), &late);

	if (rc == 0)
		rb_detach(late);
	return rc;
}

static const struct call {
	const char *name;
	void (*before)(void);
	int (*run)(void);
	bool gives_slot;
} calls[] = {
	{ "claim", nothing, claim, true },
	{ "claim with a deadline", nothing, claim_waiting, true },
	{ "take", nothing, take, true },
	{ "take by tag and target", nothing, take_filtered, true },
	{ "take with a deadline", nothing, take_waiting, true },
	{ "commit", honestly_claimed, commit, false },
	{ "abort", honestly_claimed, abort_it, false },
	{ "release", honestly_taken, release, false },
	{ "recover", nothing, recover, false },
	{ "ready", nothing, ready, false },
	{ "stats", nothing, stats, false },
	{ "lost", nothing, lost, false },
	{ "wake", nothing, wake, false },
	{ "subscribe", nothing, subscribe, false },
	{ "unsubscribe", nothing, unsubscribe, false },
	{ "attach and detach", nothing, come_and_go, false },
};

static void suffer(const struct call *call, const struct rb_options *options, uint64_t seed)
{
	ring = t_create_at(__FILE__, __LINE__, *options);
	payload = hostile_payload(ring);
	peer = hostile_at(ring, seed);
	call->before();
	begin();
	int rc = call->run();
	end();
	t_check(rc >= -4095);
	if (call->gives_slot && rc == 0)
		hostile_check(ring, &held, payload);
	t_unmap(&peer.map);
	rb_detach(ring);
}

int main(int argc, char **argv)
{
	int seeds = t_thorough(argc, argv) ? 40 : 1, cases = 0;

	for (size_t c = 0; c < sizeof(calls) / sizeof(calls[0]); c++)
		for (size_t w = 0; w < HOSTILE_WAYS; w++)
			for (size_t kind = 0; kind < HOSTILE_RINGS; kind++)
				for (int seed = 1; seed <= seeds; seed++)
					for (every = 1; every <= 4; every += 3) {
						way = &hostile_ways[w];
						snprintf(t_context, sizeof(t_context), "%s, %s, ring kind %d, seed %d, every %d: ",
							 calls[c].name, way->name, (int)kind, seed, every);
						suffer(&calls[c], &hostile_rings[kind], 88172645463325252u * (uint64_t)seed);
						cases++;
					}
	t_figures("cases=%d accesses=%ld most_in_one_call=%d", cases, all_accesses, most);
	return 0;
}
