/* A ring from outside: what `ringbuf ls` shows, of the living, the dead and the damaged.
 *
 * Whose ring it is may write to it, cut it short or never have been one of ours. So nothing of it is mapped: its tables are read into
 * a copy, which nobody changes and no touch of which can be SIGBUS, and the copy is looked at as a ring is, with sizes and offsets
 * from a header that was validated. Nothing is locked either; whether a lock is held can be asked. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "participant.h"
#include "segment.h"
#include "stats.h"

/* One allocation: the survey, the name that its info points to, and its tables. */
struct whole {
	struct rb_survey survey;
	char name[RB_NAME_MAX + 1];
	_Alignas(16) unsigned char tables[];
};

/* All before the payloads. -EBADMSG: the file has become shorter. */
static int read_tables(int fd, unsigned char *to, uint64_t bytes)
{
	for (uint64_t at = 0; at < bytes;) {
		ssize_t got = pread(fd, to + at, bytes - at, (off_t)at);
		if (got <= 0)
			return got < 0 ? -errno : -EBADMSG;
		at += (uint64_t)got;
	}
	return 0;
}

static int ask_who_lives(int fd, struct rb_peer *peers, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		int alive = rb_member_is_alive(fd, peers[i].row);
		if (alive < 0)
			return alive;
		peers[i].alive = alive;
	}
	return 0;
}

static int look_at_copy(int fd, const struct rb_map *map, struct whole *whole)
{
	struct rb_survey *survey = &whole->survey;
	struct rb_peer *peers = (struct rb_peer *)whole->tables;
	struct rb_view *slots = (struct rb_view *)(peers + map->header.participants);

	rb_segment_info(&map->header, &survey->info);
	strcpy(whole->name, map->header.name); /* fits: the header was validated */
	survey->info.name = whole->name[0] != '\0' ? whole->name : NULL;
	survey->id[0] = map->header.id[0];
	survey->id[1] = map->header.id[1];
	survey->created_ns = map->header.created_ns;
	survey->message_bytes = rb_stats_message_bytes(map);
	rb_stats_collect(map, &survey->stats);
	for (uint32_t i = 0; i < map->header.slots; i++)
		(void)rb_stats_look(map, i, &slots[i]); /* never -EAGAIN: nobody changes the copy */
	survey->stats.participants = rb_stats_peers(map, peers);
	survey->peers = peers;
	survey->slots = slots;
	survey->readable = true;
	return ask_who_lives(fd, peers, survey->stats.participants);
}

/* Copy the tables of a ring whose header this is, and look at them. */
static int look_inside(int fd, const struct rb_header *header, struct whole *whole)
{
	/* Some MB at most: counts are bounded. Not malloc(): rows and slots are aligned. */
	unsigned char *copy = mmap(NULL, header->payload_at, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (copy == MAP_FAILED)
		return -errno;
	int rc = read_tables(fd, copy, header->payload_at);
	if (rc == 0) {
		struct rb_map map = rb_segment_at(copy, header);
		rc = look_at_copy(fd, &map, whole);
	}
	munmap(copy, header->payload_at);
	return rc;
}

static uint64_t table_bytes(const struct rb_header *header)
{
	return header->participants * sizeof(struct rb_peer) + header->slots * sizeof(struct rb_view);
}

/* Why not even the header is read. fd -1: it may not be. */
static int taboo(int fd, const char *name, const struct stat *stat)
{
	if (name && stat->st_uid != geteuid())
		return -EACCES;
	if (!S_ISREG(stat->st_mode))
		return -EBADMSG;
	return fd < 0 ? -EACCES : 0;
}

/* What does not depend on what kind of ring it is, and whether it is one. */
static int look_at_header(int fd, const char *name, struct rb_survey *survey, struct rb_header *header)
{
	survey->alive = rb_member_anybody_alive(fd);
	if (survey->alive < 0)
		return survey->alive;
	(void)rb_peek_version(fd, &survey->version); /* stays 0 of what is no ring */
	int rc = rb_segment_check(fd, header);
	if (rc == 0 && name && strcmp(name, header->name) != 0)
		rc = -EBADMSG;
	if (rc != -EBADMSG && rc != -EPROTO)
		return rc;
	survey->problem = rc;
	return 0;
}

/* As rb_survey(). name: NULL: asked for by descriptor. */
static int survey(int fd, const char *name, const struct stat *stat, struct rb_survey **out)
{
	struct rb_survey facts = {
		.problem = taboo(fd, name, stat),
		.alive = -1,
		.uid = stat->st_uid,
		.file_bytes = (uint64_t)stat->st_size,
		.changed_ns = (int64_t)stat->st_mtim.tv_sec * 1000000000 + stat->st_mtim.tv_nsec,
	};
	struct rb_header header = { .slots = 0 };
	int rc = facts.problem == 0 ? look_at_header(fd, name, &facts, &header) : 0;

	if (rc < 0)
		return rc;
	bool known = facts.problem == 0;
	if (known && name && stat->st_mode & 077)
		facts.problem = -EACCES; /* attaching would trust it, looking does not */
	struct whole *whole = malloc(sizeof(*whole) + (known ? table_bytes(&header) : 0));
	if (!whole)
		return -ENOMEM;
	whole->survey = facts;
	rc = known ? look_inside(fd, &header, whole) : 0;
	if (rc == -EBADMSG) {
		whole->survey.problem = rc;
		rc = 0;
	}
	if (rc < 0)
		free(whole);
	else
		*out = &whole->survey;
	return rc;
}

int rb_survey(const char *name, struct rb_survey **out)
{
	struct stat stat;
	int fd;
	int rc = rb_segment_glimpse(name, &stat, &fd);

	if (rc < 0)
		return rc;
	rc = survey(fd, name, &stat, out);
	if (fd >= 0)
		close(fd);
	return rc;
}

int rb_survey_fd(int fd, struct rb_survey **out)
{
	struct stat stat;

	return fstat(fd, &stat) < 0 ? -errno : survey(fd, NULL, &stat, out);
}

void rb_survey_free(struct rb_survey *survey)
{
	free(survey); /* the first member of what was allocated */
}
