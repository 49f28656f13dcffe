/* A named ring is its owner's alone, mode 0600 whatever the umask says; one that others may open is refused. */
#include "t.h"

int main(void)
{
	static const mode_t umasks[] = { 0, 022, 077, 0777 };
	const char *name = t_name();
	struct stat stat;
	rb_ring *ring, *other = NULL;

	for (int i = 0; i < 4; i++) {
		umask(umasks[i]);
		ring = t_create(.name = name, .slots = 1, .slot_bytes = 1);
		t_equal(lstat(t_path(name), &stat), 0);
		t_equal(stat.st_mode, S_IFREG | 0600);
		t_equal(stat.st_uid, geteuid());
		rb_detach(ring);
	}

	ring = t_create(.name = name, .slots = 1, .slot_bytes = 1);
	static const mode_t open_to[] = { 0640, 0660, 0604, 0602, 0666, 0601 };
	for (int i = 0; i < 6; i++) {
		t_equal(chmod(t_path(name), open_to[i]), 0);
		t_equal(rb_attach(name, &other), -EACCES);
		t_check(t_name_exists(name));
	}
	t_equal(chmod(t_path(name), 0600), 0);
	t_equal(rb_attach(name, &other), 0);
	rb_detach(other);
	rb_detach(ring);
	return 0;
}
