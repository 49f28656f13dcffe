/* What cannot be attached to is a survey too: whose, how large and why not, and nothing is followed, waited for or believed. */
#include "t.h"

static const char *name, *path;

static struct rb_survey *survey(int problem)
{
	struct rb_survey *found = NULL;
	rb_ring *ring = NULL;

	t_equal(rb_survey(name, &found), 0);
	t_equal(found->problem, problem);
	t_check(rb_attach(name, &ring) < 0);
	return found;
}

static void is_not_readable(int problem, int alive, uint32_t version)
{
	struct rb_survey *found = survey(problem);

	t_check(!found->readable);
	t_equal(found->alive, alive);
	t_equal(found->version, version);
	t_check(found->changed_ns > 0);
	rb_survey_free(found);
}

static void write_header(struct rb_header header, bool right)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);

	if (right)
		header.checksum = t_checksum(&header);
	t_check(fd >= 0);
	t_equal(pwrite(fd, &header, sizeof(header), 0), sizeof(header));
	close(fd);
}

static void another_version_or_damage(rb_ring *ring)
{
	struct rb_header whole = t_header(rb_fd(ring)), other = whole;
	struct rb_info info;

	rb_get_info(ring, &info);
	other.version = 7;
	other.slots = UINT32_MAX;
	write_header(other, true);
	is_not_readable(-EPROTO, 1, 7);
	other = whole;
	other.slots++;
	write_header(other, false);
	is_not_readable(-EBADMSG, 1, RB_LAYOUT_VERSION);
	other = whole;
	strcpy(other.name, "another");
	write_header(other, true);
	is_not_readable(-EBADMSG, 1, RB_LAYOUT_VERSION);
	write_header(whole, false);
	/* Cut short between two looks of ours, where a mapping would be a trap. */
	t_equal(truncate(path, 5000), 0);
	is_not_readable(-EBADMSG, 1, RB_LAYOUT_VERSION);
	t_equal(truncate(path, (off_t)info.total_bytes), 0);
	t_equal(chmod(path, 0644), 0);
	struct rb_survey *found = survey(-EACCES); /* others may read it, so it is not attached to; it can be looked at */
	t_check(found->readable && found->info.slots == 3);
	rb_survey_free(found);
	t_equal(chmod(path, 0600), 0);
}

static void something_else(void)
{
	t_equal(symlink("/etc/passwd", path), 0);
	is_not_readable(-EBADMSG, -1, 0);
	t_equal(unlink(path), 0);
	t_equal(mkfifo(path, 0600), 0);
	is_not_readable(-EBADMSG, -1, 0);
	t_equal(unlink(path), 0);
	t_equal(mknod(path, S_IFSOCK | 0600, 0), 0); /* which cannot be opened */
	is_not_readable(-EBADMSG, -1, 0);
	t_equal(unlink(path), 0);
	t_equal(mkdir(path, 0700), 0);
	is_not_readable(-EBADMSG, -1, 0);
	t_equal(rmdir(path), 0);
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	is_not_readable(-EBADMSG, 0, 0);
	t_equal(ftruncate(fd, 1 << 16), 0);
	is_not_readable(-EBADMSG, 0, 0);
	if (geteuid() == 0 && fchown(fd, 65534, 65534) == 0) {
		is_not_readable(-EACCES, -1, 0);
		t_equal(fchown(fd, 0, 0), 0);
	}
	close(fd);
	t_equal(unlink(path), 0);
}

static void nobody_looks(void *arg)
{
	rb_ring *ring = NULL;
	struct rb_survey *found = NULL;

	(void)arg;
	t_equal(setresuid(65534, 65534, 65534), 0);
	t_equal(rb_survey(name, &found), 0);
	t_equal(found->problem, -EACCES);
	t_equal(found->uid, 0);
	t_check(!found->readable && found->alive == -1 && found->file_bytes > 0);
	rb_survey_free(found);
	t_equal(rb_attach(name, &ring), -EACCES);
	int fd = open(t_path("t.sealed"), O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0200); /* ours, and not for us to read */
	if (fd >= 0) {
		int rc = rb_survey("t.sealed", &found);
		unlink(t_path("t.sealed"));
		t_equal(rc, 0);
		t_equal(found->problem, -EACCES);
		t_equal(found->uid, 65534);
		rb_survey_free(found);
	}
}

int main(void)
{
	alarm(T_PATIENCE_NS / T_SECOND_NS); /* opening a FIFO must not wait for its other end */
	name = t_name();
	char copy[RB_NAME_MAX + 64];
	path = strcpy(copy, t_path(name));
	rb_ring *ring = t_create(.name = name, .slots = 3, .slot_bytes = 64);
	another_version_or_damage(ring);
	if (geteuid() == 0)
		t_ends_well(t_child(nobody_looks, NULL));
	rb_detach(ring);
	t_check(!t_name_exists(name));
	something_else();
	return 0;
}
