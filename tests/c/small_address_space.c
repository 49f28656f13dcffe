/* A limit on address space (RLIMIT_AS) makes creating and attaching say -ENOMEM with nothing left behind; what there is already
 * works on. One on locked memory (RLIMIT_MEMLOCK) changes nothing. */
#include "t.h"
#include <sys/resource.h>

static void limit(int kind, rlim_t bytes)
{
	struct rlimit most;

	t_equal(getrlimit(kind, &most), 0);
	most.rlim_cur = bytes;
	t_equal(setrlimit(kind, &most), 0);
}

static rlim_t address_space(void)
{
	FILE *statm = fopen("/proc/self/statm", "re");
	unsigned long pages;

	t_check(statm && fscanf(statm, "%lu", &pages) == 1);
	fclose(statm);
	return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

static void use(rb_ring *ring)
{
	for (uint64_t tag = 1; tag < 9; tag++) {
		t_put(ring, tag);
		t_equal(t_get(ring), tag);
	}
}

int main(void)
{
	struct rb_options large = { .slots = 4, .slot_bytes = 1 << 20 }, huge = large, named = large;
	const char *name = t_name();
	rb_ring *made = NULL;

	if (T_SANITIZED)
		t_skip("a sanitizer takes terabytes of address space");
	huge.hugepages = RB_HUGE_ALWAYS;
	named.name = name;
	rb_ring *ring = t_create(.slots = 4, .slot_bytes = 1 << 20);
	rb_ring *small = t_create(.slots = 2, .slot_bytes = 4096, .participants = 4);

	limit(RLIMIT_MEMLOCK, 65536);
	int next = dup(0);
	close(next);
	limit(RLIMIT_AS, address_space() + (2 << 20));
	for (int i = 0; i < 20; i++) {
		t_equal(rb_create(&large, &made), -ENOMEM);
		t_equal(rb_create(&huge, &made), -ENOMEM);
		t_equal(rb_create(&named, &made), -ENOMEM);
		t_equal(rb_attach_fd(rb_fd(ring), &made), -ENOMEM);
		t_check(made == NULL && !t_name_exists(name));
	}
	int fd = dup(0);
	t_equal(fd, next);
	close(fd);
	use(ring);
	rb_ring *other = t_attach(small);
	use(other);
	rb_detach(other);

	limit(RLIMIT_AS, RLIM_INFINITY);
	t_equal(rb_create(&huge, &made), 0);
	use(made);
	rb_detach(made);
	other = t_attach(ring);
	use(other);
	rb_detach(other);
	rb_detach(small);
	rb_detach(ring);
	return 0;
}
