/* Who opened a named ring whose last participant then removed the name is too late: -ENOENT; who came by descriptor needs no name. */
#include "t.h"

#include "participant.h"

int main(void)
{
	const char *name = t_name();
	rb_ring *ring = t_create(.slots = 1, .slot_bytes = 64, .name = name);
	struct rb_map map = t_map(ring);
	struct rb_member member = { .live = -1 };

	int fd = open(t_path(name), O_RDWR | O_CLOEXEC); /* as rb_attach() begins */
	t_check(fd >= 0);
	t_equal(rb_member_open(&map, fd, true, &member), 0);
	rb_member_close(&member);
	rb_detach(ring);
	t_check(!t_name_exists(name));

	t_equal(rb_member_open(&map, fd, true, &member), -ENOENT);
	t_equal(member.live, -1);
	t_equal(rb_member_open(&map, fd, false, &member), 0);
	rb_member_close(&member);
	t_unmap(&map);
	close(fd);
	return 0;
}
