/* Open-file-description locks on single bytes: the kernel's word on who is alive.
 * They belong to the description, not to the process or the thread: dup() and fork() share them, and they
 * vanish with the last descriptor, at the latest when the kernel has torn down the last thread of the last holder. */
#ifndef RB_LOCK_H
#define RB_LOCK_H

#include <errno.h>
#include <fcntl.h>

/* Lock (F_RDLCK shared, F_WRLCK exclusive) or unlock (F_UNLCK) one byte.
 * Returns 0; -EAGAIN when another description holds it; others when the kernel has no memory, or no such locks. */
static inline int rb_lock(int fd, off_t byte, short kind)
{
	struct flock lock = { .l_type = kind, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1 };
	int rc;

	do
		rc = fcntl(fd, F_OFD_SETLK, &lock);
	while (rc < 0 && errno == EINTR);
	if (rc == 0)
		return 0;
	return errno == EACCES ? -EAGAIN : -errno;
}

/* Does another description hold a byte from `from` on, of so many (0: of all that follow)? Takes none, so nobody is in anybody's way,
 * and a descriptor for reading will do. Returns 1, 0, or a negative errno. */
static inline int rb_locked(int fd, off_t from, off_t bytes)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = from, .l_len = bytes };

	return fcntl(fd, F_OFD_GETLK, &lock) < 0 ? -errno : lock.l_type != F_UNLCK;
}

#endif
