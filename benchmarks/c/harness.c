#define _GNU_SOURCE
#include "harness.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct member {
	void (*run)(void *arg, uint32_t who);
	void *arg;
	uint32_t who;
	int cpu; /* -1: anywhere */
	pthread_t thread;
	pid_t pid;
};

struct crew {
	bool processes;
	uint32_t count;
	struct member members[];
};

void die(const char *format, ...)
{
	va_list args;

	fprintf(stderr, "%s: ", queue_peer.label);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	_exit(1);
}

void *queue_memory(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (memory == MAP_FAILED)
		die("no %zu bytes of shared memory: %s", bytes, strerror(errno));
	return memory;
}

int64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void nap_ns(int64_t ns)
{
	struct timespec left = { .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };

	while (nanosleep(&left, &left) < 0 && errno == EINTR)
		;
}

int64_t cpu_ns(void)
{
	int64_t ns = 0;

	for (int i = 0; i < 2; i++) {
		struct rusage used;
		getrusage(i ? RUSAGE_CHILDREN : RUSAGE_SELF, &used);
		ns += (int64_t)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1000000000 +
		      (int64_t)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1000;
	}
	return ns;
}

static int compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

int64_t percentile(int64_t *values, uint64_t count, double percent)
{
	qsort(values, count, sizeof(*values), compare);
	return values[(uint64_t)((double)(count - 1) * percent / 100)];
}

/* The processor for participant `who`, or -1 where there are not enough for all. */
static int cpu_for(uint32_t who, uint32_t count)
{
	cpu_set_t allowed;

	if (sched_getaffinity(0, sizeof(allowed), &allowed) < 0 || count > (uint32_t)CPU_COUNT(&allowed))
		return -1;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &allowed) && who-- == 0)
			return cpu;
	return -1;
}

static void *member_run(void *arg)
{
	struct member *member = arg;

	if (member->cpu >= 0) {
		cpu_set_t own;
		CPU_ZERO(&own);
		CPU_SET(member->cpu, &own);
		sched_setaffinity(0, sizeof(own), &own);
	}
	member->run(member->arg, member->who);
	return NULL;
}

static void start(struct crew *crew, struct member *member)
{
	pid_t parent = getpid();

	if (!crew->processes) {
		int rc = pthread_create(&member->thread, NULL, member_run, member);
		if (rc != 0)
			die("no thread: %s", strerror(rc));
		return;
	}
	member->pid = fork();
	if (member->pid < 0)
		die("no process: %s", strerror(errno));
	if (member->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() == parent)
			member_run(member);
		_exit(0);
	}
}

struct crew *crew_start(const struct options *options, uint32_t count, void (*run)(void *arg, uint32_t who), void *arg)
{
	struct crew *crew = calloc(1, sizeof(*crew) + count * sizeof(struct member));

	if (!crew)
		die("no memory for %u participants", count);
	crew->processes = options->processes;
	crew->count = count;
	for (uint32_t i = 0; i < count; i++) {
		crew->members[i] = (struct member){ .run = run, .arg = arg, .who = i, .cpu = cpu_for(i, count) };
		start(crew, &crew->members[i]);
	}
	return crew;
}

/* Any of the children may end first, and the one that failed is not always the one that is waited for. */
static void reap_one(struct crew *crew)
{
	int status;
	pid_t pid = waitpid(-1, &status, 0);

	if (pid < 0)
		die("waitpid: %s", strerror(errno));
	if (WIFSIGNALED(status))
		die("a participant was ended by signal %d", WTERMSIG(status));
	if (status != 0)
		_exit(1); /* it has said why */
	for (uint32_t i = 0; i < crew->count; i++)
		if (crew->members[i].pid == pid)
			crew->members[i].pid = 0;
}

void crew_join(struct crew *crew, uint32_t first, uint32_t last)
{
	for (uint32_t i = first; i < last; i++) {
		if (!crew->processes)
			pthread_join(crew->members[i].thread, NULL);
		while (crew->members[i].pid != 0)
			reap_one(crew);
	}
}
