/* A ring under a name, what a death may leave of it, and what must hold afterwards. After scene.h, which it works on. */
#ifndef NAMED_H
#define NAMED_H

#include "scene.h"

static const char *name;
static enum state state;

/* ---- before ------------------------------------------------------------------------------------------- */

static inline int create(void)
{
	struct rb_options options = { .name = name, .slots = SLOTS, .slot_bytes = 64, .participants = 8, .redeliver = true };
	int rc = rb_create(&options, &ring);

	if (rc == 0)
		map = t_map(ring);
	return rc;
}

static inline void leave(void)
{
	t_unmap(&map);
	rb_detach(ring);
}

static inline void get_all(int n)
{
	for (int got = 0; get(NULL, RB_NOW); got++)
		t_check(got < n);
}

static inline void be_there(void)
{
	t_equal(create(), 0);
	scene_fill(state, get_all);
}

static inline void create_and_die(void *arg)
{
	(void)arg;
	mortal = true;
	t_equal(create(), 0);
	scene_fill(state, get_all);
	raise(SIGKILL);
}

static inline void leave_a_dead_ring(void)
{
	t_equal(t_wait(t_child(create_and_die, NULL)), SIGKILL);
	t_check(t_name_exists(name));
	memset(ledger, 0, sizeof(*ledger));
}

/* ---- afterwards --------------------------------------------------------------------------------------- */

/* Whatever it left: the name can be had, the ring under it is new and whole, and goes when we go. */
static inline void check_name_to_be_had(void)
{
	rb_ring *other;

	memset(ledger, 0, sizeof(*ledger));
	t_equal(create(), 0);
	t_equal(rb_attach(name, &other), 0);
	t_equal(t_stats(ring).participants, 2);
	for (uint64_t tag = 1; tag <= SLOTS + 1; tag++) {
		t_put(ring, tag);
		t_equal(t_get(other), tag);
	}
	rb_detach(other);
	scene_check_whole();
}

/* We were there all the time. */
static inline void check_ring_goes_on(void)
{
	for (uint64_t tag = TAG_OTHERS + 1; tag <= TAG_OTHERS + SLOTS + 1; tag++) {
		while (get(NULL, RB_NOW))
			;
		t_check(put(tag, t_soon()));
		t_check(get(NULL, t_soon()));
	}
	scene_reach_every_slot(false);
	scene_check_whole();
	scene_check_fates(0);
}

static inline int names_left(void)
{
	DIR *folder = opendir("/dev/shm");
	const char *file = strrchr(t_path(name), '/') + 1;
	int n = 0;

	t_check(folder);
	for (struct dirent *entry; (entry = readdir(folder));)
		n += strstr(entry->d_name, file) != NULL;
	closedir(folder);
	return n;
}

#endif
