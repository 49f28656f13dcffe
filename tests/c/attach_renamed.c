/* A ring that stands under another name than its own is refused: nobody would ever remove that name. */
#include "t.h"

int main(void)
{
	const char *name = t_name();
	char other[RB_NAME_MAX + 32], from[RB_NAME_MAX + 64], to[RB_NAME_MAX + 64];
	rb_ring *ring = t_create(.slots = 1, .slot_bytes = 64, .name = name), *attached = NULL;

	snprintf(other, sizeof(other), "%s.other", name);
	strcpy(from, t_path(name));
	strcpy(to, t_path(other));
	t_equal(link(from, to), 0);
	int rc = rb_attach(other, &attached);
	unlink(to);
	t_equal(rc, -EBADMSG);
	t_check(attached == NULL);
	t_equal(rb_attach(name, &attached), 0);
	rb_detach(attached);
	t_equal(t_stats(ring).participants, 1);
	rb_detach(ring);
	t_check(!t_name_exists(name));
	return 0;
}
