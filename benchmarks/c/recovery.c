/* How long a slot of a killed process is missing: from kill() until another process has it in hand.
 *
 * recovery CASE SAMPLES [SEED]     one line of JSON: the median and the longest, in nanoseconds
 *
 * CASE  told      its death is known, the survivor asks for recovery at once: rb_recover(), then claim
 *       polling   the survivor tries to claim, again and again, without a pause
 *       sleeping  the survivor sleeps in a claim when it happens
 *       message   the survivor sleeps in a take; the dead one had taken the only message, which is to be redelivered */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ringbuf.h"

#define GRACE_S 60
#define LONGEST_SLICE_US 100000 /* deaths come at any moment of the 100 ms after which a sleeper looks for the dead */
#define TAG 4711

struct scene {
	rb_ring *ring;
	pid_t victim;
	useconds_t after_us; /* until the kill */
	int64_t killed_ns;
};

static void die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	_exit(1);
}

static void must(int rc, int want, const char *what)
{
	if (rc != want)
		die("%s is %d, not %d", what, rc, want);
}

/* The child's whole life: hold the only slot, say so, and be killed. */
static void hold_the_slot(rb_ring *ring, bool message, int told)
{
	struct rb_slot slot;

	if (message)
		must(rb_take(ring, NULL, RB_NOW, &slot), 0, "the victim's take");
	else
		must(rb_claim(ring, TAG, RB_ANY, RB_NOW, &slot), 0, "the victim's claim");
	if (write(told, "", 1) != 1)
		die("the victim cannot speak: %s", strerror(errno));
	for (;;)
		pause();
}

static pid_t start_victim(rb_ring *ring, bool message)
{
	int ends[2];
	char byte;
	pid_t parent = getpid();

	if (pipe(ends) < 0)
		die("pipe: %s", strerror(errno));
	pid_t pid = fork();
	if (pid < 0)
		die("fork: %s", strerror(errno));
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() == parent)
			hold_the_slot(ring, message, ends[1]);
		_exit(1);
	}
	close(ends[1]);
	if (read(ends[0], &byte, 1) != 1)
		die("the victim ended before it held the slot");
	close(ends[0]);
	return pid;
}

static void *kill_later(void *arg)
{
	struct scene *scene = arg;

	usleep(scene->after_us);
	scene->killed_ns = rb_now_ns();
	kill(scene->victim, SIGKILL);
	return NULL;
}

/* Returns once the survivor has the slot. */
static void get_it_back(const char *how, struct scene *scene, struct rb_slot *slot)
{
	pthread_t killer;

	if (!strcmp(how, "told")) {
		kill_later(scene);
		must(waitpid(scene->victim, NULL, 0), scene->victim, "waitpid");
		must(rb_recover(scene->ring), 1, "rb_recover");
		must(rb_claim(scene->ring, 0, RB_ANY, RB_NOW, slot), 0, "the survivor's claim");
		return;
	}
	if (pthread_create(&killer, NULL, kill_later, scene) != 0)
		die("no thread");
	if (!strcmp(how, "polling")) {
		int rc;
		while ((rc = rb_claim(scene->ring, 0, RB_ANY, RB_NOW, slot)) == -EAGAIN)
			;
		must(rc, 0, "the survivor's claim");
	} else if (!strcmp(how, "sleeping")) {
		must(rb_claim(scene->ring, 0, RB_ANY, RB_FOREVER, slot), 0, "the survivor's claim");
	} else {
		must(rb_take(scene->ring, NULL, RB_FOREVER, slot), 0, "the survivor's take");
	}
	must(pthread_join(killer, NULL), 0, "pthread_join");
}

static int64_t sample(const char *how, useconds_t after_us)
{
	bool message = !strcmp(how, "message");
	struct rb_options options = { .slots = 1, .slot_bytes = 8, .redeliver = true };
	struct scene scene = { .after_us = after_us };
	struct rb_slot slot;
	struct rb_stats stats;

	must(rb_create(&options, &scene.ring), 0, "rb_create");
	if (message) {
		must(rb_claim(scene.ring, TAG, RB_ANY, RB_NOW, &slot), 0, "claim");
		memcpy(slot.data, "message", 8);
		must(rb_commit(scene.ring, &slot, 8), 0, "commit");
	}
	scene.victim = start_victim(scene.ring, message);
	get_it_back(how, &scene, &slot);
	int64_t took_ns = rb_now_ns() - scene.killed_ns;

	rb_get_stats(scene.ring, &stats);
	must((int)stats.lost, message ? 0 : 1, "the number of lost messages");
	if (message && (slot.tag != TAG || memcmp(slot.data, "message", 8) != 0))
		die("the message came back changed");
	if (strcmp(how, "told"))
		must(waitpid(scene.victim, NULL, 0), scene.victim, "waitpid");
	rb_detach(scene.ring);
	return took_ns;
}

static int compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static bool is_a_case(const char *name)
{
	return !strcmp(name, "told") || !strcmp(name, "polling") || !strcmp(name, "sleeping") || !strcmp(name, "message");
}

int main(int argc, char **argv)
{
	if (argc < 3 || !is_a_case(argv[1]) || atoi(argv[2]) < 1) {
		fprintf(stderr, "usage: recovery told|polling|sleeping|message SAMPLES [SEED]\n");
		return 2;
	}
	int count = atoi(argv[2]);
	unsigned seed = argc > 3 ? (unsigned)atoi(argv[3]) : 1;
	int64_t *took_ns = calloc((size_t)count, sizeof(*took_ns));
	if (!took_ns)
		die("no memory for %d samples", count);
	for (int i = 0; i < count; i++) {
		alarm(GRACE_S);
		took_ns[i] = sample(argv[1], 1000 + (useconds_t)rand_r(&seed) % LONGEST_SLICE_US);
	}
	qsort(took_ns, (size_t)count, sizeof(*took_ns), compare);
	printf("{\"samples\": %d, \"recovery_ns\": %lld, \"recovery_max_ns\": %lld}\n", count, (long long)took_ns[count / 2],
	       (long long)took_ns[count - 1]);
	return 0;
}
