/* A ring's file that is cut short and made long again at full speed is looked at without a bus error: as a ring, or as none. */
#include "t.h"

#define ROUNDS T_ROUNDS(20000)

static const char *path;
static uint64_t bytes;
static _Atomic int *done;

static void shrink_and_grow(void *arg)
{
	(void)arg;
	for (int i = 0; i < ROUNDS; i++) {
		t_equal(truncate(path, 8192), 0);
		t_equal(truncate(path, (off_t)bytes), 0);
	}
	atomic_store(done, 1);
}

int main(void)
{
	const char *name = t_name();
	rb_ring *ring = t_create(.name = name, .slots = 4096, .slot_bytes = 64);
	struct rb_info info;
	struct rb_survey *found;
	char copy[RB_NAME_MAX + 64];

	alarm(2 * T_PATIENCE_NS / T_SECOND_NS);
	path = strcpy(copy, t_path(name));
	done = t_shared(sizeof(*done));
	rb_get_info(ring, &info);
	bytes = info.total_bytes;
	pid_t child = t_child(shrink_and_grow, NULL);
	for (int64_t end = t_soon(); !atomic_load(done) && rb_now_ns() < end;) {
		t_equal(rb_survey(name, &found), 0);
		t_check(found->problem == 0 || found->problem == -EBADMSG);
		t_equal(found->readable, found->problem == 0);
		t_equal(found->alive, 1);
		rb_survey_free(found);
	}
	t_ends_well(child);
	t_equal(unlink(path), 0);
	return 0; /* without detaching: its own mapping is full of holes */
}
