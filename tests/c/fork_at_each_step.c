/* Wherever in a call a process forks, the child keeps nothing that shows the parent alive, and can use the handle at once: no lock, no
 * mark of what the parent was doing stays with it. */
#include "t.h"

#include "legal.h"

#include <dirent.h>
#include <sys/syscall.h>

#define SLOTS 4

static rb_ring *ring, *second;
static int handles; /* of this process */

static struct {
	int at, now;
	bool on;
} steps;

/* ---- the child --------------------------------------------------------------------------------------------- */

static int ring_descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	const struct dirent *entry;
	char target[64];
	int n = 0;

	t_check(folder);
	while ((entry = readdir(folder))) {
		ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof(target) - 1);
		target[length < 0 ? 0 : length] = '\0';
		n += strstr(target, "memfd:ringbuf") != NULL;
	}
	closedir(folder);
	return n;
}

static void claim_and_die(void *arg)
{
	(void)arg;
	t_claim(t_attach(ring), 1);
	raise(SIGKILL);
}

static void live_on(void *arg)
{
	(void)arg;
	t_equal(ring_descriptors(), handles); /* those to hand out, none with locks */
	t_equal(rb_subscribe(ring), 0);
	t_put(ring, 2);
	t_equal(t_get(ring), 2);
	t_equal(t_wait(t_child(claim_and_die, NULL)), SIGKILL);
	t_check(rb_recover(ring) >= 1);
}

/* ---- forks -------------------------------------------------------------------------------------------------- */

void rb_between(void);

void rb_between(void)
{
	if (!steps.on || ++steps.now != steps.at)
		return;
	steps.on = false;
	t_ends_well(t_child(live_on, NULL));
}

static bool at_step(void (*call)(void), int n)
{
	ring = t_create(.slots = SLOTS, .slot_bytes = 64, .participants = 8, .mode = RB_BROADCAST);
	struct rb_map map = t_map(ring);
	handles = 1;
	second = NULL;
	t_equal(t_wait(t_child(claim_and_die, NULL)), SIGKILL);
	steps.at = n;
	steps.now = 0;
	steps.on = true;
	call();
	steps.on = false;
	if (second)
		rb_detach(second);
	rb_recover(ring);
	legal_owners(&map, rb_fd(ring));
	t_unmap(&map);
	rb_detach(ring);
	return steps.now >= n;
}

static void attach(void)
{
	handles = 2;
	second = t_attach(ring);
}

static void recover(void)
{
	rb_recover(ring);
}

static void subscribe(void)
{
	t_equal(rb_subscribe(ring), 0);
}

static void at_each_step(const char *what, void (*call)(void))
{
	int n = 0;

	do
		snprintf(t_context, sizeof(t_context), "%s, step %d: ", what, ++n);
	while (at_step(call, n));
	t_check(n > 10);
}

/* ---- a fork in another thread, where ours has opened the description with the locks ------------------------- */

static bool watched;
static pthread_t forker;

static void count(void *arg)
{
	(void)arg;
	t_equal(ring_descriptors(), handles);
}

static void *fork_now(void *arg)
{
	(void)arg;
	t_ends_well(t_child(count, NULL));
	return NULL;
}

int open(const char *path, int flags, ...)
{
	va_list args;

	va_start(args, flags);
	int mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, int) : 0;
	va_end(args);
	int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
	if (watched) {
		watched = false;
		forker = t_thread(fork_now, NULL);
		t_sleep_ms(20); /* it is to wait for us: longer makes no difference */
	}
	return fd;
}

static void in_another_thread(void)
{
	snprintf(t_context, sizeof(t_context), "in another thread: ");
	ring = t_broadcast(SLOTS);
	handles = 2;
	watched = true;
	second = t_attach(ring);
	t_check(!watched);
	t_join(forker);
	rb_detach(second);
	rb_detach(ring);
}

int main(void)
{
	at_each_step("attaching", attach);
	at_each_step("recovering", recover);
	at_each_step("subscribing", subscribe);
	in_another_thread();
	return 0;
}
