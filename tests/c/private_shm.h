/* A /dev/shm of this process and its children alone, as small as one likes. After t.h. */
#ifndef PRIVATE_SHM_H
#define PRIVATE_SHM_H

#include <dirent.h>
#include <sys/mount.h>

static inline void private_shm_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		t_skip("this kernel gives no user namespaces");
	close(fd);
}

/* options: as of mount -t tmpfs -o. Called again it mounts another one on top. */
static inline void private_shm(const char *options)
{
	static bool alone;
	char map[32];
	uid_t uid = geteuid();

	if (!alone && unshare(uid == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS) < 0)
		t_skip("no mount namespace of our own to be had");
	if (!alone && uid != 0) {
		snprintf(map, sizeof(map), "0 %u 1", (unsigned)uid);
		private_shm_write("/proc/self/setgroups", "deny");
		private_shm_write("/proc/self/uid_map", map);
	}
	if (!alone && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		t_skip("no private mounts to be had");
	alone = true;
	if (mount("t", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, options) < 0)
		t_skip("no small /dev/shm to be had");
}

static inline int private_shm_entries(void)
{
	DIR *directory = opendir("/dev/shm");
	const struct dirent *entry;
	int n = 0;

	t_check(directory);
	while ((entry = readdir(directory)))
		n += entry->d_name[0] != '.';
	closedir(directory);
	return n;
}

#endif
