/* What the programs in this directory share. Each shows one behaviour, which its first line states; it is silent (a sweep
 * prints its figures) and exits 0 when that holds, exits 77 with a reason when this machine cannot show it, and
 * otherwise says which check failed and exits 1. Nothing waits without a deadline, and no child outlives its parent.
 * To be included first. */
#ifndef T_H
#define T_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "layout.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define T_SANITIZED 1
#define T_ROUNDS(n) ((n) / 10) /* sanitizers cost a factor of ten or so; they find in one round what others find in many */
#else
#define T_SANITIZED 0
#define T_ROUNDS(n) (n)
#endif

#define T_PATIENCE_NS INT64_C(20000000000) /* a machine may be busy; what takes longer than this hangs */
#define T_SECOND_NS INT64_C(1000000000)
#define T_MS_NS INT64_C(1000000)

/* ---- checking ------------------------------------------------------------------------------------- */

static char t_named[RB_NAME_MAX + 1]; /* see t_name() */
static pid_t t_namer;
static char t_context[128]; /* for a failure's message: which of many cases this is; empty: there is one only */

/* Where a name stands. Good until the next call. */
static inline const char *t_path(const char *name)
{
	static char path[RB_NAME_MAX + 64];

	snprintf(path, sizeof(path), "/dev/shm/ringbuf.%s", name);
	return path;
}

static inline _Noreturn void t_die(const char *file, int line, const char *format, ...)
{
	va_list args;

	if (t_namer == getpid())
		unlink(t_path(t_named));
	fprintf(stderr, "%s:%d: %s", file, line, t_context);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	_exit(1);
}

#define t_check(condition) ((condition) ? (void)0 : t_die(__FILE__, __LINE__, "not so: %s", #condition))

/* Both values are shown when they differ. */
#define t_equal(got, want) t_compare(__FILE__, __LINE__, #got, (long long)(got), (long long)(want))

static inline void t_compare(const char *file, int line, const char *what, long long got, long long want)
{
	if (got != want)
		t_die(file, line, "%s is %lld (0x%llx), not %lld (0x%llx)", what, got, (unsigned long long)got, want,
		      (unsigned long long)want);
}

static inline _Noreturn void t_skip(const char *why)
{
	printf("skipped: %s\n", why);
	fflush(stdout);
	_exit(77);
}

/* ---- sweeps ---------------------------------------------------------------------------------------- */

/* A sweep tries many cases. It has a short version, and with --thorough the whole of it, which says how far it is. */
static inline bool t_thorough(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], "--thorough") == 0)
			return true;
	return false;
}

/* The one thing that a sweep prints when all is well: what it did, as "name=number ..." for the report. */
#define t_figures(...) (printf("figures: " __VA_ARGS__), putchar('\n'), fflush(stdout))

/* ---- time ----------------------------------------------------------------------------------------- */

static inline int64_t t_soon(void)
{
	return rb_now_ns() + T_PATIENCE_NS;
}

static inline void t_sleep_ms(int ms)
{
	usleep((useconds_t)ms * 1000);
}

/* Wait until another thread or process has raised *step to `want`. */
#define t_await(step, want) t_await_step(__FILE__, __LINE__, #step, step, want)

static inline void t_await_step(const char *file, int line, const char *what, _Atomic int *step, int want)
{
	for (int64_t end = t_soon(); atomic_load(step) < want; usleep(100))
		if (rb_now_ns() > end)
			t_die(file, line, "%s stays at %d, %d does not come", what, atomic_load(step), want);
}

/* ---- rings ---------------------------------------------------------------------------------------- */

#define t_create(...) t_create_at(__FILE__, __LINE__, (struct rb_options){ __VA_ARGS__ })

static inline rb_ring *t_create_at(const char *file, int line, struct rb_options options)
{
	rb_ring *ring = NULL;
	int rc = rb_create(&options, &ring);

	if (rc != 0)
		t_die(file, line, "rb_create: %s", strerror(-rc));
	return ring;
}

static inline rb_ring *t_queue(uint32_t slots)
{
	return t_create(.slots = slots, .slot_bytes = 64, .redeliver = true);
}

static inline rb_ring *t_broadcast(uint32_t slots)
{
	return t_create(.slots = slots, .slot_bytes = 64, .mode = RB_BROADCAST);
}

/* Another participant, with a mapping of its own. */
static inline rb_ring *t_attach(const rb_ring *ring)
{
	rb_ring *other = NULL;
	int rc = rb_attach_fd(rb_fd(ring), &other);

	if (rc != 0)
		t_die(__FILE__, __LINE__, "rb_attach_fd: %s", strerror(-rc));
	return other;
}

/* A name that no other run uses, removed when a check fails. One for each program. */
static inline const char *t_name(void)
{
	snprintf(t_named, sizeof(t_named), "t.%s.%d", program_invocation_short_name, (int)getpid());
	t_namer = getpid();
	return t_named;
}

static inline bool t_name_exists(const char *name)
{
	return access(t_path(name), F_OK) == 0;
}

static inline struct rb_stats t_stats(rb_ring *ring)
{
	struct rb_stats stats;

	rb_get_stats(ring, &stats);
	return stats;
}

/* What ring.c works on, in a mapping of our own: for tests that look at words or set counters. */
static inline struct rb_map t_map(const rb_ring *ring)
{
	struct rb_info info;

	rb_get_info(ring, &info);
	unsigned char *base = mmap(NULL, info.total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, rb_fd(ring), 0);
	t_check(base != MAP_FAILED);
	const struct rb_header *header = (const struct rb_header *)base;
	return (struct rb_map){
		.base = base,
		.control = (struct rb_control *)(base + RB_CONTROL_AT),
		.rows = (struct rb_row *)(base + header->rows_at),
		.descs = (struct rb_desc *)(base + header->descs_at),
		.payload = base + header->payload_at,
		.header = *header,
		.seq_bits = header->mode == RB_BROADCAST ? 45 : 49,
	};
}

static inline void t_unmap(struct rb_map *map)
{
	munmap(map->base, map->header.total_bytes);
}

/* ---- doctored segments ---------------------------------------------------------------------------- */

/* A memfd with the first `bytes` of a ring's segment, sealed as the library seals its own. */
static inline int t_copy(const rb_ring *ring, uint64_t bytes, int seals)
{
	struct rb_map map = t_map(ring);
	int fd = memfd_create("t", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	t_check(fd >= 0);
	t_equal(ftruncate(fd, (off_t)bytes), 0);
	t_equal(pwrite(fd, map.base, bytes, 0), bytes);
	t_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	t_unmap(&map);
	return fd;
}

#define T_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static inline struct rb_header t_header(int fd)
{
	struct rb_header header;

	t_equal(pread(fd, &header, sizeof(header), 0), sizeof(header));
	return header;
}

/* FNV-1a, the sum that makes a header agree with itself. */
static inline uint64_t t_checksum(const struct rb_header *header)
{
	uint64_t sum = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < offsetof(struct rb_header, checksum); i++)
		sum = (sum ^ ((const unsigned char *)header)[i]) * UINT64_C(0x100000001b3);
	return sum;
}

/* Attach, see it refused, and see that nothing was written. */
#define t_refuses(fd, want) t_compare(__FILE__, __LINE__, "rb_attach_fd", t_try_attach(fd), want)

static inline int t_try_attach(int fd)
{
	struct stat stat;
	rb_ring *ring = NULL;

	t_equal(fstat(fd, &stat), 0);
	size_t bytes = (size_t)stat.st_size;
	unsigned char *before = malloc(bytes + 1), *after = malloc(bytes + 1);
	t_check(before && after);
	t_equal(pread(fd, before, bytes, 0), bytes);
	int rc = rb_attach_fd(fd, &ring);
	if (rc == 0) {
		rb_detach(ring);
	} else {
		t_equal(pread(fd, after, bytes, 0), bytes);
		t_equal(memcmp(before, after, bytes), 0);
	}
	free(before);
	free(after);
	return rc;
}

/* ---- messages: the tag again as payload, twice, once inverted, so that a torn one shows ---------------- */

static inline void t_fill(const struct rb_slot *slot)
{
	uint64_t *payload = slot->data;

	payload[0] = slot->tag;
	payload[1] = ~slot->tag;
}

static inline void t_verify(const struct rb_slot *slot)
{
	const uint64_t *payload = slot->data;

	t_equal(slot->bytes, 16);
	t_equal(payload[0], slot->tag);
	t_equal(payload[1], ~slot->tag);
}

static inline struct rb_slot t_claim(rb_ring *ring, uint64_t tag)
{
	struct rb_slot slot;

	t_equal(rb_claim(ring, tag, RB_ANY, t_soon(), &slot), 0);
	return slot;
}

static inline void t_commit(rb_ring *ring, struct rb_slot slot)
{
	t_fill(&slot);
	t_equal(rb_commit(ring, &slot, 16), 0);
}

static inline void t_put(rb_ring *ring, uint64_t tag)
{
	t_commit(ring, t_claim(ring, tag));
}

static inline struct rb_slot t_take(rb_ring *ring)
{
	struct rb_slot slot;

	t_equal(rb_take(ring, NULL, t_soon(), &slot), 0);
	t_verify(&slot);
	return slot;
}

static inline uint64_t t_get(rb_ring *ring)
{
	struct rb_slot slot = t_take(ring);

	t_equal(rb_release(ring, &slot), 0);
	return slot.tag;
}

/* What a try says that must not succeed. */
static inline int t_refused_claim(rb_ring *ring)
{
	struct rb_slot slot;

	return rb_claim(ring, 0, RB_ANY, RB_NOW, &slot);
}

static inline int t_refused_take(rb_ring *ring)
{
	struct rb_slot slot;

	return rb_take(ring, NULL, RB_NOW, &slot);
}

/* ---- processes and threads ------------------------------------------------------------------------ */

/* Memory that children share with us, zeroed. */
static inline void *t_shared(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	t_check(memory != MAP_FAILED);
	return memory;
}

/* Fork a child that runs `run` and exits 0, and that does not survive us. */
static inline pid_t t_child(void (*run)(void *arg), void *arg)
{
	pid_t parent = getpid();
	pid_t pid = fork();

	t_check(pid >= 0);
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() == parent)
			run(arg);
		_exit(0);
	}
	return pid;
}

/* Wait for a child; returns its status as of waitpid(). */
static inline int t_wait(pid_t pid)
{
	int status;

	for (int64_t end = rb_now_ns() + 2 * T_PATIENCE_NS;; usleep(200)) {
		pid_t got = waitpid(pid, &status, WNOHANG);
		if (got == pid)
			return status;
		t_equal(got, 0);
		if (rb_now_ns() > end) {
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			t_die(__FILE__, __LINE__, "child %d does not end", (int)pid);
		}
	}
}

static inline void t_ends_well(pid_t pid)
{
	t_equal(t_wait(pid), 0);
}

static inline void t_kill(pid_t pid)
{
	t_check(pid > 1); /* anything else would hit more than a child */
	t_equal(kill(pid, SIGKILL), 0);
	t_equal(t_wait(pid), SIGKILL);
}

/* For a child that has come as far as it should, and is to be killed there. */
static inline _Noreturn void t_hang(void)
{
	for (int64_t end = rb_now_ns() + 2 * T_PATIENCE_NS; rb_now_ns() < end;)
		pause();
	_exit(1);
}

static inline pthread_t t_thread(void *(*run)(void *arg), void *arg)
{
	pthread_t thread;

	t_equal(pthread_create(&thread, NULL, run, arg), 0);
	return thread;
}

static inline void t_join(pthread_t thread)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += 2 * T_PATIENCE_NS / T_SECOND_NS;
	t_equal(pthread_timedjoin_np(thread, NULL, &until), 0);
}

/* Numbers that differ from run to run would make failures that do not come back; libc's random() takes a lock. */
static inline uint64_t t_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	return *state ^= *state << 17;
}

#endif
