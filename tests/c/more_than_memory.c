/* A ring larger than the memory that there is: -ENOMEM before any of it is asked for.
 *
 * Nothing limits the memory behind a memfd: the kernel would hand out page after page, and then kill somebody. So
 * the call that asks for pages is replaced here, by one that only notes that it was made. */
#include "t.h"

static _Atomic int asked;

int posix_fallocate(int fd, off_t offset, off_t bytes)
{
	(void)fd;
	(void)offset;
	(void)bytes;
	asked++;
	return EDOM;
}

int main(void)
{
	rb_ring *ring = NULL;
	struct rb_options small = { .slots = 1, .slot_bytes = 1 };
	struct rb_options astronomical = { .slots = 1024, .slot_bytes = UINT64_C(1) << 46 };
	uint64_t physical = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
	struct rb_options large = { .slots = 8, .slot_bytes = physical };
	uint64_t bytes;

	t_equal(rb_create(&small, &ring), -EDOM); /* the replacement is what the library calls */
	t_equal(asked, 1);

	t_equal(rb_segment_bytes(&astronomical, &bytes), 0); /* countable */
	t_equal(rb_create(&astronomical, &ring), -ENOMEM);
	t_equal(rb_create(&large, &ring), -ENOMEM);
	t_equal(asked, 1);
	t_check(ring == NULL);
	return 0;
}
