/* Somebody else fills /dev/shm, of 1 or 4 MiB, while rings run: those that exist go on over all their pages, new named ones are
 * -ENOSPC, anonymous ones do not notice, nothing dies of SIGBUS and nothing is left. */
#include "t.h"
#include "private_shm.h"

static void fill_up(const char *path)
{
	static char bytes[4096];
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	t_check(fd >= 0);
	while (write(fd, bytes, sizeof(bytes)) > 0)
		;
	t_equal(errno, ENOSPC);
	close(fd);
}

/* Another process, again and again: fill, empty. */
static void fill_and_empty(void *arg)
{
	_Atomic int *turns = arg;

	while (atomic_load(turns) >= 0) {
		fill_up("/dev/shm/other");
		atomic_fetch_add(turns, 1);
		unlink("/dev/shm/other");
	}
}

/* Writes and reads each byte of each slot. */
static void go_round(rb_ring *ring, uint32_t slots, uint64_t bytes)
{
	for (uint32_t i = 0; i < slots; i++) {
		struct rb_slot slot = t_claim(ring, i);
		memset(slot.data, (int)i + 1, bytes);
		t_equal(rb_commit(ring, &slot, bytes), 0);
	}
	for (uint32_t i = 0; i < slots; i++) {
		struct rb_slot slot;
		t_equal(rb_take(ring, NULL, t_soon(), &slot), 0);
		for (uint64_t at = 0; at < bytes; at += 512)
			t_equal(((unsigned char *)slot.data)[at], slot.tag + 1);
		t_equal(rb_release(ring, &slot), 0);
	}
}

static void run(const char *size)
{
	struct rb_options named = { .name = "second", .slots = 4, .slot_bytes = 65536, .participants = 4 };
	_Atomic int *turns = t_shared(sizeof(*turns));
	rb_ring *other = NULL, *made;

	private_shm(size);
	rb_ring *ring = t_create(.name = "first", .slots = 8, .slot_bytes = 65536, .participants = 4);
	pid_t filler = t_child(fill_and_empty, turns);
	t_await(turns, 1);
	for (int i = 0; i < 50; i++) {
		go_round(ring, 8, 65536);
		int rc = rb_create(&named, &other);
		if (rc == 0) {
			go_round(other, 4, 65536);
			rb_detach(other);
		} else {
			t_equal(rc, -ENOSPC);
		}
	}
	atomic_store(turns, -1000000);
	t_ends_well(filler);

	fill_up("/dev/shm/other");
	t_equal(rb_create(&named, &other), -ENOSPC);
	t_equal(rb_attach("first", &other), 0); /* costs no room */
	go_round(other, 8, 65536);
	made = t_create(.slots = 8, .slot_bytes = 1 << 20);
	go_round(made, 8, 1 << 20);
	rb_detach(made);
	rb_detach(other);
	go_round(ring, 8, 65536);
	rb_detach(ring);
	t_equal(private_shm_entries(), 1); /* the filler's */
	unlink("/dev/shm/other");
	t_equal(rb_create(&named, &other), 0);
	rb_detach(other);
	t_equal(private_shm_entries(), 0);
	munmap((void *)turns, sizeof(*turns));
}

int main(void)
{
	run("size=1m");
	run("size=4m");
	return 0;
}
