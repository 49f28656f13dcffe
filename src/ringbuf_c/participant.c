/* See participant.h. */
#define _GNU_SOURCE
#include "participant.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crash_points.h"
#include "lock.h"

#define NO_ROW UINT32_MAX

static off_t row_byte(uint32_t row)
{
	return RB_LOCKS + row;
}

int rb_member_open(const struct rb_map *map, int fd, bool by_name, struct rb_member *member)
{
	char path[32];
	struct stat stat;

	/* Not dup(): it would share the locks with everybody who inherited or received `fd`. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	member->row = NO_ROW;
	member->live = open(path, O_RDWR | O_CLOEXEC);
	if (member->live < 0)
		return -errno;
	RB_CRASH_POINT(join_opened);
	if (map->header.name[0] == '\0')
		return 0;

	int rc = rb_lock(member->live, RB_LIFE_BYTE, F_RDLCK);
	if (rc == 0)
		RB_CRASH_POINT(join_alive);
	/* Refused: whoever holds the byte exclusively is removing the name. Asked after the lock is held: the name
	 * cannot go any more, but it may have gone before. Who has come by descriptor needs no name. */
	if (rc == -EAGAIN)
		rc = by_name ? -ENOENT : 0;
	else if (rc == 0 && by_name && fstat(member->live, &stat) < 0)
		rc = -errno;
	else if (rc == 0 && by_name && stat.st_nlink == 0)
		rc = -ENOENT;
	if (rc < 0)
		rb_member_close(member);
	return rc;
}

int rb_member_join(const struct rb_map *map, struct rb_member *member)
{
	for (uint32_t p = 0; p < map->header.participants; p++) {
		struct rb_row *row = &map->rows[p];

		/* join:A relaxed: a hint that saves the lock; what counts is asked again below */
		if (atomic_load_explicit(&row->joined, memory_order_relaxed))
			continue;
		int rc = rb_lock(member->live, row_byte(p), F_WRLCK);
		if (rc == -EAGAIN)
			continue;
		if (rc < 0)
			return rc; /* no lock is to be had: the table may be as empty as it likes */
		RB_CRASH_POINT(join_locked);
		/* join:B acquire, pairs with vacate:A, leave:A: its last holder's slots are all returned */
		if (atomic_load_explicit(&row->joined, memory_order_acquire)) {
			rb_lock(member->live, row_byte(p), F_UNLCK); /* joined and died since we looked */
			continue;
		}
		/* join:C relaxed: for display; join:D orders them for a reaper that reports the pid */
		atomic_store_explicit(&row->pid, (uint64_t)getpid(), memory_order_relaxed);
		/* join:E relaxed: for display */
		atomic_store_explicit(&row->joined_ns, (uint64_t)rb_clock_ns(CLOCK_REALTIME), memory_order_relaxed);
		RB_CRASH_POINT(join_named);
		/* join:D release, pairs with seize:A, holder:A, peers:A: who finds us dead finds our pid */
		atomic_store_explicit(&row->joined, 1, memory_order_release);
		member->row = p;
		RB_CRASH_POINT(join_written);
		return 0;
	}
	return -EUSERS;
}

bool rb_member_leave(const struct rb_map *map, struct rb_member *member)
{
	RB_CRASH_POINT(leave_returned);
	/* leave:A release, pairs with join:B: our slots are returned before the row is somebody else's */
	atomic_store_explicit(&map->rows[member->row].joined, 0, memory_order_release);
	RB_CRASH_POINT(leave_vacated);
	rb_lock(member->live, row_byte(member->row), F_UNLCK);
	member->row = NO_ROW;
	RB_CRASH_POINT(leave_unlocked);
	if (map->header.name[0] == '\0')
		return false;
	/* First let go, then try for all: of two that leave at once the later one succeeds, or the earlier
	 * holds the byte at that moment and is the one that succeeded. */
	rb_lock(member->live, RB_LIFE_BYTE, F_UNLCK);
	RB_CRASH_POINT(leave_lifeless);
	if (rb_lock(member->live, RB_LIFE_BYTE, F_WRLCK) < 0)
		return false;
	RB_CRASH_POINT(leave_last);
	return true;
}

void rb_member_close(struct rb_member *member)
{
	if (member->live >= 0)
		close(member->live);
	member->live = -1;
	member->row = NO_ROW;
}

bool rb_member_seize(const struct rb_map *map, const struct rb_member *self, uint32_t row)
{
	if (row == self->row)
		return false; /* our own lock would not stop us */
	/* seize:B relaxed: a hint that saves the lock; asked again below */
	if (!atomic_load_explicit(&map->rows[row].joined, memory_order_relaxed))
		return false;
	if (rb_lock(self->live, row_byte(row), F_WRLCK) < 0)
		return false;
	RB_CRASH_POINT(reap_locked);
	/* seize:A acquire, pairs with join:D: the row is as its dead holder wrote it */
	if (atomic_load_explicit(&map->rows[row].joined, memory_order_acquire))
		return true;
	rb_lock(self->live, row_byte(row), F_UNLCK); /* left or buried since we looked */
	return false;
}

int rb_member_is_alive(int fd, uint32_t row)
{
	return rb_locked(fd, row_byte(row), 1);
}

/* Every byte, and not the life byte alone: a segment of another version may have its own elsewhere. */
int rb_member_anybody_alive(int fd)
{
	return rb_locked(fd, 0, 0);
}

void rb_member_vacate(const struct rb_map *map, const struct rb_member *self, uint32_t row)
{
	RB_CRASH_POINT(reap_done);
	/* vacate:A release, pairs with join:B: its slots are returned before the row is somebody else's */
	atomic_store_explicit(&map->rows[row].joined, 0, memory_order_release);
	RB_CRASH_POINT(reap_vacated);
	rb_lock(self->live, row_byte(row), F_UNLCK);
	RB_CRASH_POINT(reap_unlocked);
}
