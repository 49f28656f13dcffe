/* The memory of a ring: made whole or not at all, found by name or by descriptor, believed only after checking.
 *
 * Anonymous: a sealed memfd; nothing to name, to leak or to truncate.
 * Named: a file in /dev/shm that gets its name by link(2) when it is complete, so that nobody ever opens half
 * a ring, and a creator that is killed leaves nothing.
 *
 * A name belongs to the living: it may be removed only by who holds its segment's life byte exclusively, which
 * every participant holds shared (participant.h), and only while the name still leads to that segment. */
#ifndef RB_SEGMENT_H
#define RB_SEGMENT_H

#include <sys/stat.h>

#include "layout.h"

/* Fill in the geometry that the options ask for. Pure. -EINVAL, -EOVERFLOW as rb_segment_bytes(). */
RB_PRIVATE int rb_segment_plan(const struct rb_options *options, struct rb_header *header);

/* Make, reserve, map and fill a segment that has no name yet. unsecured: of each slot the first page only. On success *fd and *map are the caller's,
 * to be given back with rb_segment_unmap() and close(). Errors as rb_create(). */
RB_PRIVATE int rb_segment_create(const struct rb_header *plan, bool unsecured, int *fd, struct rb_map *map);

/* Reserve one slot's pages, unless that was done before, and populate() them. -ENOMEM, -ENOSPC, -EFBIG. */
RB_PRIVATE int rb_segment_secure(const struct rb_map *map, int fd, uint32_t slot);

/* Give a complete segment its name. -EEXIST: the name is taken, perhaps by the dead: see rb_segment_reclaim(). */
RB_PRIVATE int rb_segment_publish(int fd, const char *name);

/* Remove a name that no living process holds. -EBUSY, -ENOENT, -EACCES; others as from the system, and the name is there still. */
RB_PRIVATE int rb_segment_reclaim(const char *name);

/* Remove `name` if it leads to the segment behind `fd`. The caller holds the life byte exclusively. After a failure the
 * name may still be there, and is a dead one's. */
RB_PRIVATE int rb_segment_unname(int fd, const char *name);

/* Open a named segment. *fd is the caller's. -ENOENT, -EACCES, -EBADMSG as rb_attach(). */
RB_PRIVATE int rb_segment_open(const char *name, int *fd);

/* See what stands under a name, without writing or following. *fd is for reading, and the caller's; -1: it is a link, or not for us
 * to read. -EINVAL: no name. -ENOENT, and others as from the system. */
RB_PRIVATE int rb_segment_glimpse(const char *name, struct stat *stat, int *fd);

/* Read the header of the segment behind fd, and validate it. -EPROTO, -EBADMSG as rb_attach(); writes nothing. */
RB_PRIVATE int rb_segment_check(int fd, struct rb_header *header);

/* What lies where in a segment, or in a copy of its beginning, that stands at `base`. */
RB_PRIVATE struct rb_map rb_segment_at(unsigned char *base, const struct rb_header *header);

/* Validate the segment behind fd and map it. -EPROTO, -EBADMSG as rb_attach(); writes nothing. */
RB_PRIVATE int rb_segment_map(int fd, struct rb_map *map);

/* What a header says, for people. The name is the header's own. */
RB_PRIVATE void rb_segment_info(const struct rb_header *header, struct rb_info *out);

RB_PRIVATE void rb_segment_unmap(struct rb_map *map);

/* Bring one slot's pages into this process's page tables in one call. Best effort. */
RB_PRIVATE void rb_segment_populate(const struct rb_map *map, uint32_t slot);

#endif
