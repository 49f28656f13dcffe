/* A segment that is larger than a process's address space is -ENOMEM, in small pages and in huge ones. */
#include "t.h"

#define SLOT_BYTES (UINT64_C(1) << 47)

int main(void)
{
	rb_ring *small = t_create(.slots = 1, .slot_bytes = 64, .participants = 1);
	struct rb_header header = t_header(rb_fd(small));

	for (int huge = RB_HUGE_NEVER; huge <= RB_HUGE_ALWAYS; huge++) {
		rb_ring *ring = NULL;
		int fd = memfd_create("t", MFD_CLOEXEC | MFD_ALLOW_SEALING);

		header.hugepages = (uint32_t)huge;
		header.slot_bytes = header.slot_stride = SLOT_BYTES;
		header.payload_at = huge == RB_HUGE_ALWAYS ? 2 << 20 : 8192;
		header.total_bytes = header.payload_at + SLOT_BYTES;
		header.checksum = t_checksum(&header);
		t_check(fd >= 0);
		if (ftruncate(fd, (off_t)header.total_bytes) < 0)
			t_skip("this kernel has no files of that size");
		t_equal(pwrite(fd, &header, sizeof(header), 0), sizeof(header));
		t_equal(fcntl(fd, F_ADD_SEALS, T_SEALS), 0);
		t_equal(rb_attach_fd(fd, &ring), -ENOMEM);
		t_check(ring == NULL);
		close(fd);
	}
	rb_detach(small);
	return 0;
}
