/* See scheduler.h. */
#define _GNU_SOURCE
#include "scheduler.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fiber.h"
#include "step.h"

#define STEPS_MAX 3000      /* of one schedule: longer is a loop that nobody else's doing ends */
#define ENDLESS "this does not end"
#define UNDO_MAX 65536
#define TAPE_BYTES (64u << 20)
#define CHOICES_MAX (3 * SCHED_FIBERS_MAX)
#define REMEMBERED_MAX 2048
#define SEEN_BITS_USUAL 23
#define SEEN_BITS_THOROUGH 27
#define PROGRESS_S 5

enum status { RUNS, WAITS, DONE, DEAD };
/* Make a step; make it, a weak compare-and-swap, in vain; die before it; nobody dies any more. */
enum kind { RUN, FAIL, DIE, REST };

struct choice {
	uint8_t fiber, kind;
};

struct task {
	struct fiber fiber;
	uint64_t seen;      /* hash of its steps since its mark, and of what they read */
	uint8_t status;
	uint16_t missed;    /* events since it looked */
	uint16_t awaited;
	bool weak;          /* its next step may fail for no reason */
	bool fails;         /* and does */
	bool quiet;         /* no other fiber that lives can tell whether its next step was made */
	const uint64_t *lock; /* its next step is an attempt at this one; NULL: it is not */
};

/* Everything about the run that is not memory, stacks or the checks'. */
static struct {
	struct task tasks[SCHED_FIBERS_MAX];
	int current, fibers;
	int preemptions, deaths, failures; /* that are left */
	uint64_t memory;                   /* hash of all shared bytes */
	uint32_t undos, steps;
	bool marked;                       /* it stands at a mark, not before a step */
} now;

static _Alignas(64) unsigned char stacks[SCHED_FIBERS_MAX][FIBER_STACK_BYTES];
static const char *doing[SCHED_FIBERS_MAX]; /* where each one's next step is, for messages */
static struct choice path[STEPS_MAX];
static struct { volatile void *at; uint64_t old; unsigned bytes; } undo[UNDO_MAX];

static struct { unsigned char *base; size_t bytes; } memory, remembered;
static bool inside;           /* a fiber runs */
static bool narrates;         /* a replay tells each step */
static struct { const struct choice *steps; uint32_t count; } replay;

static uint64_t *seen;        /* 60 bits of hash, 4 bits of preemptions left plus one; 0: empty */
static unsigned seen_bits;
static uint64_t seen_count;
static struct { uint64_t schedules, states, steps, random; } figures;

const struct sched_case *sched_case;

/* ---- failing ------------------------------------------------------------------------------------------- */

/* "a12bxc3c~": a makes 12 steps, b dies, c makes 3 and then one in vain. A dot: nobody can go on, nor dies. */
static void print_schedule(FILE *to)
{
	for (uint32_t i = 0, n; i < now.steps; i += n) {
		for (n = 1; i + n < now.steps && memcmp(&path[i], &path[i + n], sizeof(*path)) == 0; n++)
			;
		fputc('a' + path[i].fiber, to);
		if (path[i].kind == RUN)
			fprintf(to, "%u", n);
		else
			fputc("?~x."[path[i].kind], to), n = 1;
	}
}

_Noreturn void sched_fail(const char *format, ...)
{
	va_list args;

	inside = false;
	fprintf(stderr, "%s: ", sched_case->name);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	for (int f = 0; f < now.fibers; f++)
		fprintf(stderr, "  %c %s: %s %s\n", 'a' + f, sched_case->fibers[f].name,
			(const char *[]){ "at", "waits at", "done", "died at" }[now.tasks[f].status],
			now.tasks[f].status == DONE || !doing[f] ? "" : doing[f]);
	fprintf(stderr, "after %u steps; again, step by step: %s %s --replay ", now.steps, program_invocation_name,
		sched_case->name);
	print_schedule(stderr);
	fputc('\n', stderr);
	fflush(stderr);
	_exit(1);
}

/* ---- memory --------------------------------------------------------------------------------------------- */

static uint64_t mix(uint64_t a, uint64_t b)
{
	uint64_t x = (a + UINT64_C(0x9e3779b97f4a7c15)) * UINT64_C(0xbf58476d1ce4e5b9);

	x = (x ^ x >> 32 ^ b) * UINT64_C(0x94d049bb133111eb);
	x = (x ^ x >> 29) * UINT64_C(0xff51afd7ed558ccd);
	return x ^ x >> 32;
}

static uint64_t hash_of(const void *bytes, size_t count)
{
	uint64_t hash = count, word;

	for (size_t i = 0; i < count; i += sizeof(word)) {
		memcpy(&word, (const unsigned char *)bytes + i, sizeof(word));
		hash = mix(hash, word);
	}
	return hash;
}

void sched_memory(void *base, size_t bytes)
{
	memory.base = base;
	memory.bytes = bytes;
}

void sched_remember(void *base, size_t bytes)
{
	sched_check(bytes <= REMEMBERED_MAX && bytes % 8 == 0, "%zu bytes cannot be remembered", bytes);
	remembered.base = base;
	remembered.bytes = bytes;
}

uint64_t sched_get(const volatile void *at, unsigned bytes)
{
	return bytes == 8 ? *(const volatile uint64_t *)at : *(const volatile uint32_t *)at;
}

static void poke(volatile void *at, unsigned bytes, uint64_t value)
{
	if (bytes == 8)
		*(volatile uint64_t *)at = value;
	else
		*(volatile uint32_t *)at = (uint32_t)value;
}

void sched_put(volatile void *at, unsigned bytes, uint64_t value)
{
	uint64_t place = (uint64_t)((volatile unsigned char *)at - memory.base);
	uint64_t old = sched_get(at, bytes);

	sched_check(place + bytes <= memory.bytes && (bytes == 8 || bytes == 4), "a write beyond shared memory");
	sched_check(now.undos < UNDO_MAX, "too many writes");
	undo[now.undos].at = at;
	undo[now.undos].bytes = bytes;
	undo[now.undos++].old = old;
	poke(at, bytes, value);
	if (bytes == 4)
		value = (uint32_t)value;
	now.memory ^= mix(place, old) ^ mix(place, value);
	if (narrates && inside)
		printf("\t%s+%llu = 0x%llx", old == value ? "same " : "", (unsigned long long)place, (unsigned long long)value);
	check_wrote(at, old, value);
}

static void undo_to(uint32_t mark, uint32_t from)
{
	while (from > mark) {
		from--;
		poke(undo[from].at, undo[from].bytes, undo[from].old);
	}
}

/* ---- in a fiber ------------------------------------------------------------------------------------------ */

int sched_me(void)
{
	return inside ? now.current : -1;
}

bool sched_is_dead(int fiber)
{
	return now.tasks[fiber].status == DEAD;
}

bool sched_is_done(int fiber)
{
	return now.tasks[fiber].status == DONE;
}

void sched_saw(uint64_t value)
{
	if (!inside)
		return;
	now.tasks[now.current].seen = mix(now.tasks[now.current].seen, value);
	if (narrates)
		printf("\tsaw 0x%llx", (unsigned long long)value);
}


static void log_step(struct choice choice)
{
	if (now.steps >= STEPS_MAX)
		sched_fail(ENDLESS);
	path[now.steps++] = choice;
	figures.steps++;
}

/* Is there anything to decide before the step at hand? */
static bool is_open(const struct task *task)
{
	return (now.preemptions > 0 && !task->quiet) || now.deaths > 0 || (task->weak && now.failures > 0) || replay.count > 0 ||
	       figures.random > 0;
}

static void step(const char *where, bool weak, const uint64_t *lock, bool quiet)
{
	if (!inside)
		return;
	struct task *task = &now.tasks[now.current];
	doing[now.current] = where;
	task->quiet = quiet;
	task->weak = weak;
	task->lock = lock;
	if (task->status == RUNS && !is_open(task))
		log_step((struct choice){ (uint8_t)now.current, RUN });
	else
		fiber_leave();
	task->seen = mix(task->seen, 1); /* a step further, even if it tells nothing and changes nothing */
	task->weak = false;
	task->lock = NULL;
	task->quiet = false;
}

void sched_mark_at(uint64_t place, uint64_t local)
{
	struct task *task = &now.tasks[now.current];

	task->seen = mix(place, local);
	if (now.undos > 0 && !is_open(task)) { /* nothing to decide for long, perhaps; is it known from here? */
		now.marked = true;
		fiber_leave();
	}
}

void sched_step(const char *where)
{
	step(where, false, NULL, false);
}

void sched_step_at_lock(const uint64_t *holder, const char *where)
{
	step(where, false, holder, false);
}

void sched_look(void)
{
	now.tasks[now.current].missed = 0;
}

void sched_wait(unsigned events)
{
	struct task *task = &now.tasks[now.current];

	if (task->missed & events)
		return;
	task->status = WAITS;
	task->awaited = (uint16_t)events;
	step("waiting", false, NULL, false);
}

void sched_event(unsigned events)
{
	for (int f = 0; f < now.fibers; f++) {
		struct task *task = &now.tasks[f];

		if (f == sched_me())
			continue;
		task->missed |= (uint16_t)events;
		if (task->status == WAITS && task->awaited & events)
			task->status = RUNS;
	}
}

/* ---- the library's accesses (step_atomics.h) ----------------------------------------------------------- */

static void step_at(const volatile void *at, bool weak, const char *where)
{
	if (!check_is_private(at))
		step(where, weak, NULL, check_is_quiet(at));
}

uint64_t step_load(const volatile void *at, unsigned bytes, const char *where)
{
	step_at(at, false, where);
	uint64_t value = sched_get(at, bytes);
	sched_saw(value);
	return value;
}

void step_store(volatile void *at, unsigned bytes, uint64_t value, const char *where)
{
	step_at(at, false, where);
	sched_put(at, bytes, value);
}

bool step_exchange(volatile void *at, unsigned bytes, void *expected, uint64_t desired, bool weak, const char *where)
{
	step_at(at, weak, where);
	bool fails = inside && now.tasks[now.current].fails;
	uint64_t value = sched_get(at, bytes);
	bool same = !fails && value == sched_get(expected, bytes);

	if (inside)
		now.tasks[now.current].fails = false;
	sched_saw(value);
	sched_saw(same);
	if (same)
		sched_put(at, bytes, desired);
	else
		poke(expected, bytes, value);
	return same;
}

uint64_t step_change(volatile void *at, unsigned bytes, enum step_change change, uint64_t by, const char *where)
{
	step_at(at, false, where);
	uint64_t value = sched_get(at, bytes);

	if (!check_is_private(at)) /* nobody asks what a counter was */
		sched_saw(value);
	sched_put(at, bytes, change == STEP_ADD ? value + by : change == STEP_SUB ? value - by
						     : change == STEP_OR ? value | by : value & by);
	return value;
}

/* ---- states ---------------------------------------------------------------------------------------------- */

/* A place to come back to: one of its decisions after the other. On the tape, with the stacks and what the checks remember. */
struct node {
	size_t before;    /* where the node below starts on the tape */
	struct choice choices[CHOICES_MAX];
	int count, next;
	unsigned char bytes[]; /* now, remembered, each stack */
};

static unsigned char *tape;

static size_t save(unsigned char *to)
{
	unsigned char *at = to;

	memcpy(at, &now, sizeof(now));
	at += sizeof(now);
	memcpy(at, remembered.base, remembered.bytes);
	at += remembered.bytes;
	for (int f = 0; f < now.fibers; f++) {
		const struct task *task = &now.tasks[f];
		size_t live = (size_t)(task->fiber.top - task->fiber.sp);

		if (task->status >= DONE)
			continue;
		memcpy(at, task->fiber.sp, live);
		at += live;
	}
	return (size_t)(at - to);
}

static void restore(const unsigned char *from)
{
	uint32_t undos = now.undos;

	memcpy(&now, from, sizeof(now));
	from += sizeof(now);
	memcpy(remembered.base, from, remembered.bytes);
	from += remembered.bytes;
	for (int f = 0; f < now.fibers; f++) {
		const struct task *task = &now.tasks[f];
		size_t live = (size_t)(task->fiber.top - task->fiber.sp);

		if (task->status >= DONE)
			continue;
		memcpy(task->fiber.sp, from, live);
		from += live;
	}
	undo_to(now.undos, undos);
}

static uint64_t hash_now(void)
{
	uint64_t hash = mix(now.memory, hash_of(remembered.base, remembered.bytes));

	for (int f = 0; f < now.fibers; f++) {
		const struct task *task = &now.tasks[f];
		uint64_t small = task->status | (uint64_t)task->missed << 8 | (uint64_t)task->awaited << 24;

		hash = mix(hash, task->status >= DONE ? task->status : mix(task->seen, small));
	}
	return mix(hash, (uint64_t)now.current << 16 | (uint64_t)now.deaths << 8 | (uint64_t)now.failures);
}

/* Notes the state at hand. True if it was seen before with as many preemptions left. */
static bool is_known(void)
{
	uint64_t key = hash_now() & ~UINT64_C(15);
	uint64_t left = (uint64_t)now.preemptions + 1;
	uint64_t mask = (UINT64_C(1) << seen_bits) - 1;
	uint64_t at = key >> (64 - seen_bits);

	for (; seen[at] != 0; at = (at + 1) & mask) {
		if ((seen[at] & ~UINT64_C(15)) != key)
			continue;
		if ((seen[at] & 15) >= left)
			return true;
		seen[at] = key | left;
		figures.states++;
		return false;
	}
	figures.states++;
	if (seen_count < mask / 8 * 7) { /* beyond, all goes on, only slower */
		seen[at] = key | left;
		seen_count++;
	}
	return false;
}

/* ---- deciding --------------------------------------------------------------------------------------------- */

static bool may_die(int f)
{
	return now.deaths > 0 && now.tasks[f].status < DONE && sched_case->fibers[f].mortal;
}

/* Everything that may happen next. The death of somebody else matters, and is tried, where it can be told: when a lock is tried
 * that it would hold, and when nobody can go on but for deaths that they wait for. */
static int choices_now(struct choice *choices)
{
	int me = now.current, n = 0;
	bool goes_on = now.tasks[me].status == RUNS;

#define CHOICE(f, k) (choices[n++] = (struct choice){ (uint8_t)(f), (k) })
	if (goes_on) {
		const struct task *task = &now.tasks[me];

		CHOICE(me, RUN);
		if (task->weak && now.failures > 0)
			CHOICE(me, FAIL);
		if (may_die(me))
			CHOICE(me, DIE);
		int holder = task->lock ? (int)*task->lock - 1 : -1;
		if (holder >= 0 && holder < now.fibers && holder != me && may_die(holder))
			CHOICE(holder, DIE);
	}
	bool any = false;
	for (int f = 0; f < now.fibers; f++)
		any |= now.tasks[f].status == RUNS;
	if (!any && now.deaths > 0)
		CHOICE(me, REST);
	for (int f = 0; f < now.fibers; f++) {
		if (f != me && now.tasks[f].status == RUNS && (!goes_on || (now.preemptions > 0 && !now.tasks[me].quiet)))
			CHOICE(f, RUN);
		if (!goes_on && may_die(f))
			CHOICE(f, DIE);
	}
#undef CHOICE
	return n;
}

static void enter(int f)
{
	inside = true;
	fiber_enter(&now.tasks[f].fiber);
	inside = false;
}

static void die(int f)
{
	now.tasks[f].status = DEAD;
	now.deaths--;
	check_died(f);
	sched_event(SCHED_DEATH);
}

static void apply(struct choice choice)
{
	int f = choice.fiber;

	log_step(choice);
	if (narrates)
		printf("\n%4u %c %-12s %-8s %s", now.steps, 'a' + f, sched_case->fibers[f].name,
		       (const char *[]){ "", "in vain", "dies", "rests" }[choice.kind], doing[f] ? doing[f] : "");
	if (choice.kind == DIE) {
		die(f);
		return;
	}
	if (choice.kind == REST) {
		now.deaths = 0;
		return;
	}
	if (f != now.current && now.tasks[now.current].status == RUNS)
		now.preemptions--;
	now.current = f;
	if (choice.kind == FAIL) {
		now.failures--;
		now.tasks[f].fails = true;
	}
	enter(f);
}

/* ---- exploring -------------------------------------------------------------------------------------------- */

static void run_fiber(void)
{
	sched_case->fibers[now.current].run(now.current);
	now.tasks[now.current].status = DONE;
	for (;;)
		fiber_leave();
}

/* Each fiber stands before its first step. */
static void begin(const struct sched_bounds *bounds)
{
	memset(&now, 0, sizeof(now));
	sched_case->prepare();
	now.undos = 0;
	now.preemptions = 1; /* so that nobody runs past its first step */
	while (now.fibers < SCHED_FIBERS_MAX && sched_case->fibers[now.fibers].run)
		now.fibers++;
	for (int f = 0; f < now.fibers; f++) {
		now.current = f;
		doing[f] = NULL;
		fiber_make(&now.tasks[f].fiber, stacks[f], run_fiber);
		enter(f);
		sched_check(now.undos == 0, "%s wrote before its first step", sched_case->fibers[f].name);
	}
	now.current = 0;
	now.preemptions = bounds->preemptions;
	now.deaths = bounds->deaths;
	now.failures = bounds->failures;
}

/* The decisions at hand; 0: this schedule is at its end, and is well. */
static int decisions(struct choice *choices)
{
	int count = choices_now(choices);

	if (count == 0 && check_settle())
		count = choices_now(choices);
	if (count == 0)
		check_end();
	return count;
}

static void progress(void)
{
	static time_t last;
	time_t t = time(NULL);

	if (last != 0 && t - last < PROGRESS_S)
		return;
	if (last != 0)
		fprintf(stderr, "%s: %llu schedules, %llu states, %llu steps\n", sched_case->name,
			(unsigned long long)figures.schedules, (unsigned long long)figures.states,
			(unsigned long long)figures.steps);
	last = t;
}

static void explore(bool thorough)
{
	size_t top = 0, end = 0; /* of the tape: the last node, and behind it */
	bool any = false;

	for (;;) {
		struct node *node = (struct node *)(void *)(tape + end);
		int count = now.marked ? 1 : decisions(node->choices);

		if (count > 0 + !now.marked && is_known())
			count = 0;
		if (count > 0 && now.marked) {
			now.marked = false;
			enter(now.current);
			continue;
		}
		if (count == 1 && any) {
			apply(node->choices[0]);
			continue;
		}
		if (count > 0) {
			node->before = any ? top : SIZE_MAX;
			node->count = count;
			node->next = 1;
			size_t bytes = sizeof(*node) + save(node->bytes);
			top = end;
			end += (bytes + 63) / 64 * 64;
			any = true;
			sched_check(end + 65536 < TAPE_BYTES, "the tape is full");
			apply(node->choices[0]);
			continue;
		}
		figures.schedules++;
		if (thorough && figures.schedules % 4096 == 0)
			progress();
		for (;;) {
			if (!any)
				return;
			node = (struct node *)(void *)(tape + top);
			restore(node->bytes);
			if (node->next < node->count)
				break;
			end = top;
			any = node->before != SIZE_MAX;
			top = any ? node->before : 0;
		}
		apply(node->choices[node->next++]);
	}
}

static uint64_t draw(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	return *state ^= *state << 17;
}

/* Interrupted at will: beyond the bounds on preemptions, at the price that not all is tried. */
static void wander(uint64_t rounds)
{
	struct choice choices[CHOICES_MAX];
	uint64_t random = UINT64_C(0x9e3779b97f4a7c15); /* what fails prints its schedule, which needs no seed */

	save(tape);
	for (figures.random = 1; figures.random <= rounds; figures.random++) {
		unsigned haste = 1 + (unsigned)(draw(&random) % 16); /* some schedules change at each step, some seldom */

		now.preemptions = STEPS_MAX;
		for (int count; (count = decisions(choices)) > 0;) {
			int pick = (int)(draw(&random) % (uint64_t)count);

			if (choices[pick].kind == DIE && draw(&random) % 32 != 0)
				pick = 0;
			else if (choices[pick].kind == RUN && draw(&random) % haste != 0)
				pick = 0;
			apply(choices[pick]);
		}
		restore(tape);
		figures.schedules++;
		if (figures.random % 4096 == 0)
			progress();
	}
	figures.random = 0;
}

/* ---- replaying ------------------------------------------------------------------------------------------- */

static _Noreturn void refuse(const char *what)
{
	fprintf(stderr, "%s: %s\nusage: %s [--thorough] [--bounds PREEMPTIONS,DEATHS,FAILURES,RANDOM] [CASE] [--replay SCHEDULE]\n",
		program_invocation_name, what, program_invocation_name);
	_exit(2);
}

static uint32_t parse(const char *text, struct choice *steps)
{
	uint32_t count = 0;

	while (*text) {
		uint8_t fiber = (uint8_t)(*text++ - 'a');
		enum kind kind = *text == 'x' ? DIE : *text == '~' ? FAIL : *text == '.' ? REST : RUN;
		unsigned long times = 1;

		if (kind != RUN)
			text++;
		else if (isdigit((unsigned char)*text))
			times = strtoul(text, (char **)&text, 10);
		else
			refuse("this is no schedule");
		if (fiber >= SCHED_FIBERS_MAX || times > STEPS_MAX - count)
			refuse("this is no schedule");
		for (; times > 0; times--)
			steps[count++] = (struct choice){ fiber, kind };
	}
	return count;
}

static void retrace(void)
{
	struct choice choices[CHOICES_MAX];
	struct sched_bounds bounds = { .preemptions = STEPS_MAX, .failures = STEPS_MAX };

	for (uint32_t i = 0; i < replay.count; i++)
		bounds.deaths += replay.steps[i].kind == DIE;
	narrates = true;
	setvbuf(stdout, NULL, _IOLBF, 0);
	begin(&bounds);
	for (uint32_t i = 0; i < replay.count; i++) {
		if (replay.steps[i].kind == REST) {
			apply(replay.steps[i]);
			continue;
		}
		int count = choices_now(choices);

		if (count == 0 && check_settle())
			count = choices_now(choices);
		while (count > 0 && memcmp(&choices[count - 1], &replay.steps[i], sizeof(*choices)) != 0)
			count--;
		if (count == 0)
			refuse("the schedule does not fit this case, or this build");
		apply(replay.steps[i]);
	}
	sched_check(now.steps < STEPS_MAX, ENDLESS);
	if (choices_now(choices) == 0)
		(void)decisions(choices);
	printf("\nnothing failed\n");
}

/* ---- the sweep ------------------------------------------------------------------------------------------- */

static void try_bounds(const struct sched_bounds *bounds, bool thorough)
{
	memset(seen, 0, sizeof(*seen) << seen_bits);
	seen_count = 0;
	begin(bounds);
	unsigned char *before = malloc(memory.bytes);
	memcpy(before, memory.base, memory.bytes);
	if (bounds->random > 0)
		wander(bounds->random);
	else
		explore(thorough);
	/* Whatever has been done was undone, or else something was written past the scheduler. */
	sched_check(memcmp(before, memory.base, memory.bytes) == 0, "a write was not a step");
	free(before);
}

static void try_case(bool thorough, const struct sched_bounds *asked)
{
	const struct sched_bounds *bounds = asked ? asked : thorough ? sched_case->thorough : sched_case->usual;
	int count = asked ? 1 : SCHED_BOUNDS_MAX;

	for (; count > 0 && bounds->preemptions + bounds->deaths + bounds->failures > 0; count--, bounds++) {
		uint64_t states = figures.states, schedules = figures.schedules, steps = figures.steps;
		clock_t start = clock();

		try_bounds(bounds, thorough);
		if (thorough || asked)
			fprintf(stderr, "%s, %d preemptions, %d deaths, %d failures%s: %" PRIu64 " schedules, %" PRIu64 " states, %" PRIu64
				" steps in %.1f s\n", sched_case->name, bounds->preemptions, bounds->deaths, bounds->failures,
				bounds->random ? ", random" : "", figures.schedules - schedules, figures.states - states,
				figures.steps - steps, (double)(clock() - start) / CLOCKS_PER_SEC);
	}
}

int sched_main(int argc, char **argv, const struct sched_case *cases, int count)
{
	static struct choice steps[STEPS_MAX];
	const char *only = NULL, *schedule = NULL;
	struct sched_bounds bounds = { 0 };
	bool thorough = false, asked = false;
	int tried = 0;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--thorough") == 0)
			thorough = true;
		else if (strcmp(argv[i], "--replay") == 0 && i + 1 < argc)
			schedule = argv[++i];
		else if (strcmp(argv[i], "--bounds") == 0 && i + 1 < argc)
			asked = sscanf(argv[++i], "%d,%d,%d,%" SCNu64, &bounds.preemptions, &bounds.deaths, &bounds.failures,
				       &bounds.random) > 0;
		else if (argv[i][0] != '-' && !only)
			only = argv[i];
		else
			refuse("what is this?");
	}
	if (bounds.preemptions > 15)
		refuse("more preemptions than the table of states can tell apart: 15");
	seen_bits = thorough ? SEEN_BITS_THOROUGH : SEEN_BITS_USUAL;
	seen = calloc(UINT64_C(1) << seen_bits, sizeof(*seen));
	tape = malloc(TAPE_BYTES);
	if (!seen || !tape)
		refuse("out of memory");
	for (int i = 0; i < count; i++) {
		sched_case = &cases[i];
		if (only && strcmp(only, sched_case->name) != 0)
			continue;
		tried++;
		if (schedule) {
			replay.steps = steps;
			replay.count = parse(schedule, steps);
			retrace();
			return 0;
		}
		try_case(thorough, asked ? &bounds : NULL);
	}
	if (tried == 0)
		refuse("there is no such case");
	printf("figures: cases=%d schedules=%llu states=%llu steps=%llu\n", tried, (unsigned long long)figures.schedules,
	       (unsigned long long)figures.states, (unsigned long long)figures.steps);
	return 0;
}
