/* Whatever bytes a segment begins with, attaching to it is an error, or a handle on which every call returns and every slot lies inside.
 *
 * An input is one byte of options and the first bytes of the segment. Built with -DRINGBUF_FUZZ and -fsanitize=fuzzer it is
 * libFuzzer's (scripts/fuzz); otherwise it runs once through the inputs that it is given, files or folders of them. */
#include "t.h"

#include <dirent.h>

#define SEGMENT_BYTES 65536u
#define MAKE_CHECKSUM_RIGHT 1
#define LEAVE_SHORT 2 /* no longer than the input */
#define LEAVE_UNSEALED 4
#define SLOTS_OUT 4

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void inside(const struct rb_slot *slot, const struct rb_info *info)
{
	t_check(slot->index < info->slots && slot->bytes <= info->slot_bytes);
	memset(slot->data, 0x5a, info->slot_bytes);
}

static void put(rb_ring *ring, const struct rb_info *info, int n)
{
	struct rb_slot slot;

	if (rb_claim(ring, (uint64_t)n, RB_ANY, RB_NOW, &slot) != 0)
		return;
	inside(&slot, info);
	if (n % 3 == 0)
		t_check(rb_abort(ring, &slot) == 0);
	else
		t_check(rb_commit(ring, &slot, info->slot_bytes) == 0);
}

static int get(rb_ring *ring, const struct rb_info *info, int n, struct rb_slot *slot)
{
	static const struct rb_filter filters[] = { { 0 }, { .by_tag = true, .tag = 1 }, { .by_target = true, .target = 1 } };
	int rc = rb_take(ring, &filters[n % 3], RB_NOW, slot);

	t_check(rc <= 0);
	if (rc == 0)
		inside(slot, info);
	return rc;
}

static void look_around(rb_ring *ring, const struct rb_info *info)
{
	struct rb_lost lost[RB_LOST_LOG];
	struct rb_stats stats = t_stats(ring);
	int ready = rb_ready(ring), n = rb_get_lost(ring, lost, RB_LOST_LOG);

	t_check(stats.free + stats.writing + stats.ready + stats.reading <= info->slots);
	t_check(ready >= 0 && ready <= (int)info->slots);
	t_check(n >= 0 && n <= (int)RB_LOST_LOG);
	t_check(rb_recover(ring) >= 0);
	rb_wake(ring);
}

static void use(rb_ring *ring, size_t total_bytes)
{
	struct rb_slot out[SLOTS_OUT];
	struct rb_info info;
	bool taken[SLOTS_OUT];

	rb_get_info(ring, &info);
	t_check(info.total_bytes <= total_bytes && info.slots * info.slot_stride <= info.total_bytes);
	rb_subscribe(ring);
	for (int n = 0; n < SLOTS_OUT; n++) {
		put(ring, &info, n);
		taken[n] = get(ring, &info, n, &out[n]) == 0;
		look_around(ring, &info);
	}
	rb_unsubscribe(ring);
	for (int n = 0; n < SLOTS_OUT; n++)
		if (taken[n])
			rb_release(ring, &out[n]);
	rb_finish(ring);
	put(ring, &info, 1);
	t_check(get(ring, &info, 0, &out[0]) <= 0);
}

static int segment(uint8_t options, const uint8_t *data, size_t bytes, size_t total_bytes)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	struct rb_header header;

	t_check(fd >= 0);
	t_equal(ftruncate(fd, (off_t)total_bytes), 0);
	t_equal(pwrite(fd, data, bytes, 0), bytes);
	if (options & MAKE_CHECKSUM_RIGHT && bytes >= sizeof(header)) {
		memcpy(&header, data, sizeof(header));
		header.checksum = t_checksum(&header);
		t_equal(pwrite(fd, &header, sizeof(header), 0), sizeof(header));
	}
	if (!(options & LEAVE_UNSEALED))
		t_equal(fcntl(fd, F_ADD_SEALS, T_SEALS), 0);
	return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	rb_ring *ring;

	if (bytes < 1 || bytes > SEGMENT_BYTES)
		return 0;
	size_t total_bytes = data[0] & LEAVE_SHORT ? bytes - 1 : SEGMENT_BYTES;
	int fd = segment(data[0], data + 1, bytes - 1, total_bytes);
	int rc = rb_attach_fd(fd, &ring);

	t_check(rc <= 0);
	if (rc == 0) {
		use(ring, total_bytes);
		rb_detach(ring);
	}
	close(fd);
	return 0;
}

#ifndef RINGBUF_FUZZ

static int replayed;

static void replay_file(const char *path)
{
	static uint8_t data[SEGMENT_BYTES];
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	t_check(fd >= 0);
	ssize_t bytes = read(fd, data, sizeof(data));
	t_check(bytes >= 0);
	close(fd);
	snprintf(t_context, sizeof(t_context), "%s: ", path);
	LLVMFuzzerTestOneInput(data, (size_t)bytes);
	replayed++;
}

static void replay_folder(DIR *folder, const char *path)
{
	char file[4096];

	for (struct dirent *entry; (entry = readdir(folder));) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
		replay_file(file);
	}
	closedir(folder);
}

int main(int argc, char **argv)
{
	alarm(T_PATIENCE_NS / T_SECOND_NS);
	for (int i = 1; i < argc; i++) {
		DIR *folder = opendir(argv[i]);

		if (folder)
			replay_folder(folder, argv[i]);
		else
			replay_file(argv[i]);
	}
	t_check(replayed > 0);
	t_figures("inputs=%d", replayed);
	return 0;
}

#endif
