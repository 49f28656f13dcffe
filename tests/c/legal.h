/* Is every word of a segment one that the library could have written? legal_words() holds at any moment, whoever runs or has
 * died; legal_owners() holds once the dead are reaped and nobody is in the middle of anything. After t.h. */
#ifndef LEGAL_H
#define LEGAL_H

#define legal_fail(...) t_die(__FILE__, __LINE__, __VA_ARGS__)

static inline void legal_word(const struct rb_map *map, uint32_t slot)
{
	uint64_t word = atomic_load(&map->descs[slot].word);
	uint64_t tickets = atomic_load(&map->control->tickets); /* after the word: it only grows */
	uint32_t who = rb_word_who(map, word);
	bool broadcast = map->header.mode == RB_BROADCAST;
	bool legal = rb_word_seq(map, word) < tickets;

	switch (rb_word_state(word)) {
	case RB_FREE: legal &= who == 0; break;
	case RB_WRITING: legal &= who >= 1 && who <= map->header.participants; break;
	case RB_READY: legal &= broadcast ? who != 0 && who <= 0xffff : who == 0; break;
	case RB_READING: legal &= !broadcast && who >= 1 && who <= map->header.participants; break;
	default: legal = false;
	}
	if (!legal)
		legal_fail("slot %u's word is illegal: state %d, who 0x%x, ticket %llu of %llu", slot, (int)rb_word_state(word),
			   who, (unsigned long long)rb_word_seq(map, word), (unsigned long long)tickets);
}

static inline void legal_words(const struct rb_map *map)
{
	for (uint32_t i = 0; i < map->header.slots; i++)
		legal_word(map, i);
	for (uint32_t p = 0; p < map->header.participants; p++)
		if (atomic_load(&map->rows[p].joined) > 1 ||
		    (atomic_load(&map->rows[p].grave_word) != 0 && atomic_load(&map->rows[p].grave_slot) >= map->header.slots))
			legal_fail("row %u is illegal", p);
}

/* Does somebody hold the byte of this row? `fd` must not be the description that holds our own. */
static inline bool legal_locked(int fd, uint32_t row)
{
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = RB_LOCKS + row, .l_len = 1 };

	t_equal(fcntl(fd, F_OFD_GETLK, &lock), 0);
	return lock.l_type != F_UNLCK;
}

static inline bool legal_alive(const struct rb_map *map, int fd, uint32_t who)
{
	return who >= 1 && who <= map->header.participants && atomic_load(&map->rows[who - 1].joined) == 1 &&
	       legal_locked(fd, who - 1);
}

static inline void legal_rows(const struct rb_map *map, int fd)
{
	for (uint32_t p = 0; p < map->header.participants; p++) {
		const struct rb_row *row = &map->rows[p];

		if ((atomic_load(&row->joined) == 1) != legal_locked(fd, p))
			legal_fail("row %u says joined %u, and its byte is%s locked", p, atomic_load(&row->joined),
				   legal_locked(fd, p) ? "" : " not");
		if (atomic_load(&row->grave_word) != 0)
			legal_fail("row %u still notes a burial", p);
	}
}

static inline void legal_readers(const struct rb_map *map, int fd)
{
	uint32_t active = atomic_load(&map->control->active);

	if (active >> RB_READERS_MAX)
		legal_fail("active readers 0x%x: there are no more than %u", active, RB_READERS_MAX);
	for (uint32_t b = 0; b < RB_READERS_MAX; b++) {
		const struct rb_reader *reader = &map->control->readers[b];
		uint32_t owner = atomic_load(&reader->owner);
		bool on = active >> b & 1, keeps = atomic_load(&reader->keeps) != 0;
		uint64_t start = atomic_load(&reader->start);
		bool legal = owner == 0 ? !on && !keeps && start == UINT64_MAX
					: legal_alive(map, fd, owner) && (!on || (!keeps && start <= map->control->tickets));

		if (!legal)
			legal_fail("reader entry %u is illegal: owner %u, active %d, keeps %d, start %llu", b, owner, on, keeps,
				   (unsigned long long)start);
	}
}

static inline void legal_owners(const struct rb_map *map, int fd)
{
	legal_words(map);
	legal_rows(map, fd);
	legal_readers(map, fd);
	for (uint32_t i = 0; i < map->header.slots; i++) {
		uint64_t word = atomic_load(&map->descs[i].word);
		uint32_t who = rb_word_who(map, word);

		if ((rb_word_state(word) == RB_WRITING || rb_word_state(word) == RB_READING) && !legal_alive(map, fd, who))
			legal_fail("slot %u belongs to row %u, where nobody lives", i, who - 1);
		if (rb_word_state(word) != RB_READY || map->header.mode != RB_BROADCAST)
			continue;
		for (uint32_t b = 0; b < RB_READERS_MAX; b++)
			if (who >> b & 1 && atomic_load(&map->control->readers[b].owner) == 0)
				legal_fail("slot %u waits for reader %u, who is nobody", i, b);
	}
}

#endif
