/* Whichever system call fails, with whichever error is plausible for it, once or from then on: creating, attaching, waiting and
 * leaving succeed or say why not, leave nothing behind, and work when tried again.
 *     fault_syscalls [--thorough]                        all cases
 *     fault_syscalls OPERATION NTH PICK PERSISTENT       the one that a failure names */
#include "t.h"
#include "allocations.h"
#include "fault.h"
#include <dirent.h>

#define PATIENCE_MS 15000
#define MOST_FAILURES 30
#define WAIT_NS (400 * T_MS_NS) /* of waits whose end may be prevented by what fails */

/* ---- what one has ------------------------------------------------------------------------------------- */

struct belongings {
	int descriptors, names;
	long allocations;
	uint64_t mapped_bytes;
};

static int count_entries(const char *path, const char *prefix)
{
	DIR *directory = opendir(path);
	const struct dirent *entry;
	int n = 0;

	t_check(directory);
	while ((entry = readdir(directory)))
		n += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
	closedir(directory);
	return n;
}

/* Without the heap and the stack, which grow as they like. */
static uint64_t mapped_bytes(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned long from, to;
	uint64_t bytes = 0;
	char line[512];

	t_check(maps);
	while (fgets(line, sizeof(line), maps))
		if (!strstr(line, "[heap]") && !strstr(line, "[stack]") && sscanf(line, "%lx-%lx", &from, &to) == 2 &&
		    (!T_SANITIZED || strstr(line, "ringbuf")))
			bytes += to - from;
	fclose(maps);
	return bytes;
}

static struct belongings belongings(const char *name)
{
	char file[RB_NAME_MAX + 16];

	snprintf(file, sizeof(file), "ringbuf.%s", name);
	return (struct belongings){
		.descriptors = count_entries("/proc/self/fd", ""),
		.names = count_entries("/dev/shm", file),
		.mapped_bytes = mapped_bytes(),
		.allocations = atomic_load(&allocations.living),
	};
}

/* ---- operations ---------------------------------------------------------------------------------------- */

/* prepare: what has to be there; not part of the window. run: what shall fail. settle: use what came of it, and undo both. */
struct operation {
	const char *name;
	void (*prepare)(void);
	int (*run)(void);
	void (*settle)(int rc);
	int also[3]; /* errors that the operation may answer with, whatever the failing call said */
};

static const char *name;
static rb_ring *ring, *made;
static struct rb_slot slot;
static pid_t partner;
static _Atomic int *begun; /* shared: the window is open */

static void nothing(void)
{
}

static void settle_made(int rc)
{
	if (rc == 0) {
		rb_ring *other = t_attach(made); /* as a whole ring lets one */
		t_put(other, 1);
		t_equal(t_get(made), 1);
		rb_detach(other);
		rb_detach(made);
	} else {
		t_check(made == NULL);
	}
	made = NULL;
}

static int create(const char *called, enum rb_hugepages huge)
{
	struct rb_options options = { .name = called, .slots = 2, .slot_bytes = 64, .participants = 4, .hugepages = huge };

	return rb_create(&options, &made);
}

static int create_anonymous(void)
{
	return create(NULL, RB_HUGE_AUTO);
}

static int create_huge(void)
{
	return create(NULL, RB_HUGE_ALWAYS);
}

static int create_named(void)
{
	return create(name, RB_HUGE_AUTO);
}

static void settle_named(int rc)
{
	bool left = t_name_exists(name);

	settle_made(rc);
	t_check(rc < 0 || left);
}

static void die_attached(void *arg)
{
	(void)arg;
	ring = t_create(.name = name, .slots = 2, .slot_bytes = 64, .participants = 4);
}

static void leave_dead_name(void)
{
	if (!t_name_exists(name))
		t_ends_well(t_child(die_attached, NULL));
	t_check(t_name_exists(name));
}

static int unlink_dead(void)
{
	return rb_unlink(name);
}

/* A success that left the name would be a lie; a failure leaves it to the next one. */
static void settle_unlink(int rc)
{
	if (rc < 0 && t_name_exists(name))
		t_equal(rb_unlink(name), 0);
	t_check(!t_name_exists(name));
}

static void make_ring(void)
{
	ring = t_create(.slots = 2, .slot_bytes = 64, .participants = 4, .redeliver = true);
}

static void make_named_ring(void)
{
	ring = t_create(.name = name, .slots = 2, .slot_bytes = 64, .participants = 4);
}

static int attach_by_descriptor(void)
{
	return rb_attach_fd(rb_fd(ring), &made);
}

static int attach_by_name(void)
{
	return rb_attach(name, &made);
}

static void settle_attached(int rc)
{
	settle_made(rc);
	t_equal(t_stats(ring).participants, 1);
	rb_detach(ring);
}

static void settle_attached_by_name(int rc)
{
	settle_attached(rc);
	t_check(!t_name_exists(name));
}

/* ---- waits */

static void await_window(void)
{
	t_await(begun, 1);
	t_sleep_ms(2); /* asleep by now, or about to */
}

static void put_one(void *arg)
{
	(void)arg;
	await_window();
	t_put(ring, 7);
}

static void take_one(void *arg)
{
	(void)arg;
	await_window();
	t_equal(t_get(ring), 1);
}

static void start_partner(void (*run)(void *))
{
	atomic_store(begun, 0);
	partner = t_child(run, NULL);
}

static void prepare_sleeping_take(void)
{
	make_ring();
	start_partner(put_one);
}

static int take_asleep(void)
{
	return rb_take(ring, NULL, t_soon(), &slot);
}

static void settle_take(int rc)
{
	t_equal(rc, 0); /* no call that fails while it sleeps may cost it the message */
	t_equal(slot.tag, 7);
	t_verify(&slot);
	t_equal(rb_release(ring, &slot), 0);
	t_ends_well(partner);
	rb_detach(ring);
}

static void fill_ring(void)
{
	make_ring();
	t_put(ring, 1);
	t_put(ring, 2);
}

static void prepare_sleeping_claim(void)
{
	fill_ring();
	start_partner(take_one);
}

static int claim_asleep(void)
{
	return rb_claim(ring, 7, RB_ANY, t_soon(), &slot);
}

static void settle_claim(int rc)
{
	t_equal(rc, 0);
	t_commit(ring, slot);
	t_ends_well(partner);
	t_equal(t_get(ring), 2);
	t_equal(t_get(ring), 7);
	rb_detach(ring);
}

static void prepare_timed_take(void)
{
	make_ring();
	t_equal(rb_ready(ring), 0);
}

static int take_until_deadline(void)
{
	return rb_take(ring, NULL, rb_now_ns() + 20 * T_MS_NS, &slot);
}

static void settle_timed_take(int rc)
{
	t_equal(rc, -ETIMEDOUT);
	t_check(t_stats(ring).waits < 20 + 2 * FAULT_STORM); /* where nobody may sleep, nobody spins: he naps for a ms */
	t_put(ring, 1);
	t_equal(t_get(ring), 1);
	rb_detach(ring);
}

/* A sleeper that our commit has to wake; told nothing, it looks by itself within a slice. */
static void sleep_for_one(void *arg)
{
	(void)arg;
	atomic_store(begun, 1);
	t_equal(t_get(ring), 7);
}

static void prepare_sleeper(void)
{
	make_ring();
	start_partner(sleep_for_one);
	t_await(begun, 1);
	for (int64_t end = t_soon(); t_stats(ring).participants < 2 && rb_now_ns() < end;)
		usleep(100);
	t_sleep_ms(2);
	slot = t_claim(ring, 7);
	t_fill(&slot);
}

static int commit_and_wake(void)
{
	return rb_commit(ring, &slot, 16);
}

static void settle_commit(int rc)
{
	t_equal(rc, 0);
	t_ends_well(partner);
	rb_detach(ring);
}

/* ---- the dead */

static void die_with_both(void *arg)
{
	(void)arg;
	t_equal(rb_take(ring, NULL, RB_NOW, &slot), 0);
	t_equal(rb_claim(ring, 9, RB_ANY, RB_NOW, &slot), 0);
}

static void prepare_dead_peer(void)
{
	make_ring();
	t_put(ring, 7);
	t_ends_well(t_child(die_with_both, NULL));
}

static int recover(void)
{
	int rc = rb_recover(ring);

	return rc > 0 ? 0 : rc; /* 0: not now */
}

/* Whatever the first one could do, the next one does the rest, and counts the loss once. */
static void settle_recovered(int rc)
{
	t_check(rc <= 0);
	rb_recover(ring);
	struct rb_stats stats = t_stats(ring);
	t_equal(stats.lost, 1);
	t_equal(stats.participants, 1);
	t_equal(stats.free, 1);
	t_equal(t_get(ring), 7);
	rb_ring *other = t_attach(ring);
	rb_detach(other);
	rb_detach(ring);
}

static int take_from_dead(void)
{
	return rb_take(ring, NULL, rb_now_ns() + WAIT_NS, &slot);
}

static void settle_taken_from_dead(int rc)
{
	if (rc == 0)
		t_equal(rb_release(ring, &slot), 0);
	else
		t_equal(t_get(ring), 7);
	t_equal(t_stats(ring).lost, 1);
	rb_detach(ring);
}

/* ---- leaving, and joining anew */

static int detach(void)
{
	rb_detach(ring);
	return 0;
}

static void prepare_leaving(void)
{
	make_ring();
	made = t_attach(ring);
	t_put(made, 7);
	t_equal(rb_take(ring, NULL, RB_NOW, &slot), 0);
}

static void settle_left(int rc)
{
	t_equal(rc, 0);
	t_equal(t_stats(made).participants, 1);
	t_equal(t_get(made), 7); /* handed on, not lost */
	t_put(made, 8);
	t_put(made, 9);
	rb_detach(made);
	made = NULL;
}

/* A name that could not be removed is a dead one's: the next creator has it. */
static void settle_left_name(int rc)
{
	t_equal(rc, 0);
	if (t_name_exists(name)) {
		t_equal(create_named(), 0);
		settle_made(0);
	}
	t_check(!t_name_exists(name));
}

/* The child of a fork, which is what a victim is, joins with its first call. Named: it then holds two locks. */
static rb_ring *inherited;

static int first_call_after_fork(void)
{
	return rb_claim(inherited, 1, RB_ANY, RB_NOW, &slot);
}

static void settle_first_call(int rc)
{
	if (rc == 0)
		t_equal(rb_abort(inherited, &slot), 0);
	t_put(inherited, 1);
	t_equal(t_get(inherited), 1);
	rb_recover(inherited); /* victims before this one */
	t_equal(t_stats(inherited).participants, 2);
}

static int subscribe(void)
{
	return rb_subscribe(ring);
}

static void die_subscribed(void *arg)
{
	(void)arg;
	for (int i = 0; i < (int)RB_READERS_MAX; i++)
		t_equal(rb_subscribe(t_attach(ring)), 0);
}

static void prepare_dead_broadcast(void)
{
	ring = t_create(.slots = 2, .slot_bytes = 64, .participants = 20, .mode = RB_BROADCAST);
	t_ends_well(t_child(die_subscribed, NULL));
}

static void settle_subscribed(int rc)
{
	if (rc < 0)
		t_equal(rb_subscribe(ring), 0);
	t_put(ring, 1);
	t_equal(t_get(ring), 1);
	rb_detach(ring);
}

/* ---- looks from outside */

static struct rb_survey *looked;

static int survey(void)
{
	return rb_survey(name, &looked);
}

/* Surveys once, so that a sanitizer's malloc() has mapped what it takes such sizes from before the window opens. */
static void prepare_survey(void)
{
	make_named_ring();
	t_equal(survey(), 0);
	rb_survey_free(looked);
}

static void settle_survey(int rc)
{
	t_check(rc < 0 || (looked->readable && looked->info.slots == 2 && looked->peers[0].alive) || looked->problem != 0);
	if (rc == 0)
		rb_survey_free(looked);
	rb_detach(ring);
	t_check(!t_name_exists(name));
}

/* ---- slots whose memory comes later */

static int create_unsecured(void)
{
	struct rb_options options = { .slots = 2, .slot_bytes = 64, .participants = 4, .unsecured = true };

	return rb_create(&options, &made);
}

static void prepare_unsecured(void)
{
	ring = t_create(.slots = 2, .slot_bytes = 8192, .participants = 4, .hugepages = RB_HUGE_ALWAYS, .unsecured = true);
	slot = t_claim(ring, 7);
}

static int secure(void)
{
	return rb_secure(ring, &slot);
}

/* Refused, the slot is ours still, and may be asked for again. */
static void settle_secured(int rc)
{
	if (rc < 0)
		t_equal(rb_secure(ring, &slot), 0);
	memset(slot.data, 7, 8192);
	t_equal(rb_commit(ring, &slot, 8192), 0);
	t_equal(rb_take(ring, NULL, RB_NOW, &slot), 0);
	t_equal(((unsigned char *)slot.data)[8191], 7);
	t_equal(rb_release(ring, &slot), 0);
	rb_detach(ring);
}

static const struct operation operations[] = {
	{ "create_anonymous", nothing, create_anonymous, settle_made, { 0 } },
	{ "create_huge", nothing, create_huge, settle_made, { 0 } },
	{ "create_unsecured", nothing, create_unsecured, settle_made, { 0 } },
	{ "secure", prepare_unsecured, secure, settle_secured, { 0 } },
	{ "create_named", nothing, create_named, settle_named, { 0 } },
	{ "create_over_the_dead", leave_dead_name, create_named, settle_named, { 0 } },
	{ "unlink_dead", leave_dead_name, unlink_dead, settle_unlink, { 0 } },
	{ "attach_by_descriptor", make_ring, attach_by_descriptor, settle_attached, { EBADMSG } },
	{ "attach_by_name", make_named_ring, attach_by_name, settle_attached_by_name, { 0 } },
	{ "survey", prepare_survey, survey, settle_survey, { 0 } },
	{ "take_asleep", prepare_sleeping_take, take_asleep, settle_take, { 0 } },
	{ "claim_asleep", prepare_sleeping_claim, claim_asleep, settle_claim, { 0 } },
	{ "take_until_deadline", prepare_timed_take, take_until_deadline, settle_timed_take, { ETIMEDOUT } },
	{ "commit_and_wake", prepare_sleeper, commit_and_wake, settle_commit, { 0 } },
	{ "recover", prepare_dead_peer, recover, settle_recovered, { 0 } },
	{ "take_from_dead", prepare_dead_peer, take_from_dead, settle_taken_from_dead, { ETIMEDOUT } },
	{ "detach", prepare_leaving, detach, settle_left, { 0 } },
	{ "detach_last", make_named_ring, detach, settle_left_name, { 0 } },
	{ "first_call_after_fork", nothing, first_call_after_fork, settle_first_call, { 0 } },
	{ "subscribe_over_the_dead", prepare_dead_broadcast, subscribe, settle_subscribed, { EUSERS } },
};

#define OPERATIONS (int)(sizeof(operations) / sizeof(operations[0]))

/* ---- the sweep ------------------------------------------------------------------------------------------- */

struct test_case {
	const struct operation *operation;
	struct fault_plan plan;
	struct fault_seen *seen; /* shared */
};

/* An error is the one that the failing call gave, or one that the operation has for it. */
static void check_error(const struct test_case *test, int rc)
{
	if (rc == 0 || (-rc == test->seen->error && rc != -EINTR)) /* a signal is no reason to fail */
		return;
	for (int i = 0; i < 3; i++)
		if (test->operation->also[i] && -rc == test->operation->also[i])
			return;
	bool locked = test->seen->number == SYS_fcntl && (test->seen->error == EAGAIN || test->seen->error == EACCES);
	if (locked && (rc == -EUSERS || rc == -EBUSY || rc == -EEXIST || rc == -ENOENT))
		return; /* somebody else has the byte: all rows, or the name */
	t_die(__FILE__, __LINE__, "answers %s", strerror(-rc));
}

static void be_victim(void *arg)
{
	struct test_case *test = arg;
	const struct operation *operation = test->operation;
	struct belongings before = belongings(name);

	operation->prepare();
	if (fault_window_opens() < 0)
		_exit(77);
	atomic_store(begun, 1);
	int rc = operation->run();
	fault_window_closes();

	snprintf(t_context, sizeof(t_context), "%s %d %d %d (%s: %s%s): ", operation->name, test->plan.nth, test->plan.pick,
		 test->plan.persistent, test->seen->name, strerror(test->seen->error), rc ? ", refused" : "");
	check_error(test, rc);
	if (rc < 0 && test->seen->error == 0)
		t_equal(rc, operation->also[0] == ETIMEDOUT ? -ETIMEDOUT : 0);
	atomic_fetch_add(&begun[1], rc == 0);
	operation->settle(rc);

	operation->prepare();
	atomic_store(begun, 1);
	rc = operation->run();
	if (rc < 0)
		t_equal(rc, operation->also[0] == ETIMEDOUT ? -ETIMEDOUT : 0);
	operation->settle(rc);

	struct belongings after = belongings(name);
	t_equal(after.descriptors, before.descriptors + (operation->run == first_call_after_fork));
	t_equal(after.names, before.names);
	t_equal(after.mapped_bytes, before.mapped_bytes);
	t_equal(after.allocations, before.allocations);
}

static struct {
	int cases, injections, errors, kinds, failed;
	bool kind_seen[FAULT_KINDS];
} figures;

static void note_kind(const struct fault_seen *seen)
{
	for (size_t i = 0; i < FAULT_KINDS; i++)
		if (fault_kinds[i].number == seen->number && strcmp(fault_kinds[i].name, seen->name) == 0 &&
		    !figures.kind_seen[i]) {
			figures.kind_seen[i] = true;
			figures.kinds++;
		}
}

/* What is wrong with a victim's end; NULL: nothing. What it says itself it has printed. */
static const char *verdict(const struct fault_seen *seen, pid_t pid)
{
	static char text[80];

	if (seen->broken == ENOSYS) {
		snprintf(text, sizeof(text), "the table of fault.h does not know system call %ld", seen->number);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		return text;
	}
	if (seen->broken)
		t_die(__FILE__, __LINE__, "ptrace: %s", strerror(seen->broken));
	if (seen->hung)
		return "hangs";
	if (seen->status != -1) {
		snprintf(text, sizeof(text), "died inside the window, status 0x%x", (unsigned)seen->status);
		return text;
	}
	return t_wait(pid) == 0 ? NULL : "failed as said above";
}

static void run_case(struct test_case *test)
{
	fault_begin_account(test->seen);
	int succeeded = atomic_load(&begun[1]);
	snprintf(t_context, sizeof(t_context), "%s %d %d %d: ", test->operation->name, test->plan.nth, test->plan.pick,
		 test->plan.persistent);
	pid_t pid = t_child(be_victim, test);
	fault_trace(pid, &test->plan, test->seen);
	if (test->seen->status == 77 << 8)
		t_skip("ptrace is not permitted here");
	const char *wrong = verdict(test->seen, pid);
	if (wrong) {
		fprintf(stderr, "%s%s (%s)\n", t_context, wrong, test->seen->name);
		if (++figures.failed == MOST_FAILURES) {
			rb_detach(inherited);
			exit(1);
		}
	}
	if (test->seen->injections == 0)
		return;
	note_kind(test->seen);
	figures.cases++;
	figures.injections += test->seen->injections;
	figures.errors += atomic_load(&begun[1]) == succeeded;
}

/* Fail the first call, the second, ... until there is none. */
static void sweep(const struct operation *operation, struct fault_seen *seen, bool thorough)
{
	struct test_case test = { .operation = operation, .seen = seen };
	int nth = 0;

	do {
		test.plan = (struct fault_plan){ .nth = ++nth, .patience_ms = PATIENCE_MS };
		run_case(&test);
		int errors = seen->errors;
		for (int pick = 0; pick < errors; pick++) {
			test.plan.pick = pick;
			test.plan.persistent = 0;
			if (pick > 0)
				run_case(&test);
			test.plan.persistent = 1;
			if (thorough || pick == nth % errors || operation->run == take_until_deadline)
				run_case(&test);
		}
		seen->errors = errors;
	} while (seen->errors > 0);
	/* An anonymous ring is left without a call that can fail, and so does glibc ring a semaphore. */
	bool quiet = operation->settle == settle_left || (RB_WAIT_KIND == 2 && operation->settle == settle_commit);
	t_check(nth > 1 || quiet);
}

int main(int argc, char **argv)
{
	struct fault_seen *seen = t_shared(sizeof(*seen));
	bool alone = argc == 5;
	int found = 0;

	if (!FAULT_SUPPORTED)
		t_skip("written for x86-64 and aarch64");
#ifdef __SANITIZE_THREAD__
	t_skip("ThreadSanitizer makes system calls of its own at any time");
#endif
	begun = t_shared(2 * sizeof(*begun));
	name = t_name();
	char inherited_name[sizeof(t_named) + 2];
	snprintf(inherited_name, sizeof(inherited_name), "%s.i", name);
	inherited = t_create(.name = inherited_name, .slots = 2, .slot_bytes = 64, .participants = 4);
	for (int i = 0; i < OPERATIONS; i++) {
		const struct operation *operation = &operations[i];
		if (alone && strcmp(operation->name, argv[1]) != 0)
			continue;
		found++;
		struct test_case test = { .operation = operation, .seen = seen };
		if (alone) {
			test.plan = (struct fault_plan){ atoi(argv[2]), atoi(argv[3]), atoi(argv[4]), PATIENCE_MS };
			run_case(&test);
		} else {
			sweep(operation, seen, t_thorough(argc, argv));
		}
	}
	t_check(found > 0);
	rb_detach(inherited);
	t_figures("operations=%d cases=%d injections=%d system_calls=%d errors=%d successes=%d", found, figures.cases,
		  figures.injections, figures.kinds, figures.errors, figures.cases - figures.errors);
	return figures.failed > 0;
}
