/* What a peer does that wishes the others ill: ways of writing to the words of a ring that everybody shares. Each aims at one
 * part of the algorithm, and is written to be repeated without a pause. After t.h. */
#ifndef HOSTILE_H
#define HOSTILE_H

struct hostile {
	struct rb_map map;   /* its own */
	uint64_t state;      /* of its random numbers */
	uint64_t n;          /* how often it wrote */
};

static inline struct hostile hostile_at(const rb_ring *ring, uint64_t seed)
{
	return (struct hostile){ .map = t_map(ring), .state = seed };
}

static inline uint64_t hostile_random(struct hostile *peer)
{
	return t_random(&peer->state);
}

static inline struct rb_desc *hostile_desc(struct hostile *peer)
{
	return &peer->map.descs[hostile_random(peer) % peer->map.header.slots];
}

/* Numbers that are likely to hurt: small, near a limit, near what is there, or random. */
static inline uint64_t hostile_number(struct hostile *peer, uint64_t old)
{
	uint64_t random = hostile_random(peer);
	uint64_t near = atomic_load(&peer->map.control->tickets) + (random >> 40) % 8;

	switch (hostile_random(peer) % 8) {
	case 0: return 0;
	case 1: return UINT64_MAX;
	case 2: return random % 8;
	case 3: return old + random % 3 - 1;
	case 4: return old ^ UINT64_C(1) << random % 64;
	case 5: return rb_word(&peer->map, (enum rb_state)(random % 8), random >> 8 & 3, random >> 20 & 63);
	case 6: return rb_word(&peer->map, (enum rb_state)(random % 4), random >> 8, near);
	default: return random;
	}
}

/* A POSIX semaphore in shared memory is a matter of trust: the C library aborts when it finds one damaged. */
static inline bool hostile_spares(const struct hostile *peer, const void *word)
{
	const struct rb_control *control = peer->map.control;
	const char *at = word, *events[] = { (const char *)&control->ready, (const char *)&control->freed };

	for (int i = 0; i < 2; i++)
		if (RB_WAIT_KIND == 2 && at >= events[i] + 16 && at < events[i] + sizeof(struct rb_event))
			return true;
	return false;
}

static inline void hostile_write_over(struct hostile *peer, void *from, size_t bytes)
{
	_Atomic uint64_t *word = (_Atomic uint64_t *)from + hostile_random(peer) % (bytes / 8);

	if (!hostile_spares(peer, word))
		atomic_store(word, hostile_number(peer, atomic_load(word)));
}

static inline void hostile_anything(struct hostile *peer)
{
	const struct rb_map *map = &peer->map;

	switch (hostile_random(peer) % 4) {
	case 0: hostile_write_over(peer, map->control, sizeof(*map->control)); break;
	case 1: hostile_write_over(peer, map->rows, map->header.participants * sizeof(*map->rows)); break;
	default: hostile_write_over(peer, map->descs, map->header.slots * sizeof(*map->descs)); break;
	}
}

/* A slot that is there when looked for and another when reached for. */
static inline void hostile_ready_words(struct hostile *peer)
{
	struct rb_map *map = &peer->map;

	atomic_store(&map->control->tickets, 1 << 20);
	for (uint32_t i = 0; i < map->header.slots; i++)
		atomic_store(&map->descs[i].word, rb_word(map, RB_READY, 0xffff & -(map->header.mode == RB_BROADCAST),
							   1 + peer->n % (1 << 19)));
}

static inline void hostile_free_words(struct hostile *peer)
{
	struct rb_map *map = &peer->map;

	for (uint32_t i = 0; i < map->header.slots; i++)
		atomic_store(&map->descs[i].word, rb_word(map, RB_FREE, 0, peer->n % (1 << 19)));
}

/* A message whose other readers never are the same. */
static inline void hostile_masks(struct hostile *peer)
{
	struct rb_map *map = &peer->map;

	atomic_store(&map->control->tickets, 1 << 20);
	for (uint32_t i = 0; i < map->header.slots; i++)
		atomic_store(&map->descs[i].word, rb_word(map, RB_READY, 1 | (peer->n & 0x7fff) << 1, 1 << 19));
}

/* A message that is as long as a message may be, and then is not. */
static inline void hostile_lengths(struct hostile *peer)
{
	struct rb_map *map = &peer->map;

	atomic_store(&map->control->tickets, 1 << 20);
	for (uint32_t i = 0; i < map->header.slots; i++) {
		if (rb_word_state(atomic_load(&map->descs[i].word)) == RB_FREE)
			atomic_store(&map->descs[i].word, rb_word(map, RB_READY, 0xffff & -(map->header.mode == RB_BROADCAST), 1 << 19));
		atomic_store(&map->descs[i].bytes, peer->n % 2 ? 8 : UINT64_MAX);
	}
}

/* Tickets that are drawn now and not drawn then. */
static inline void hostile_tickets(struct hostile *peer)
{
	struct rb_map *map = &peer->map;

	atomic_store(&map->control->tickets, peer->n % 2 ? 1 : 1 << 20);
	atomic_store(&hostile_desc(peer)->word, rb_word(map, RB_READY, 0xffff & -(map->header.mode == RB_BROADCAST), 1 << 10));
}

static inline void hostile_readers(struct hostile *peer)
{
	struct rb_control *control = peer->map.control;
	struct rb_reader *reader = &control->readers[hostile_random(peer) % RB_READERS_MAX];

	switch (hostile_random(peer) % 4) {
	case 0: atomic_store(&control->active, (uint32_t)hostile_number(peer, 0)); break;
	case 1: atomic_store(&reader->start, hostile_number(peer, 0)); break;
	case 2: atomic_store(&reader->owner, (uint32_t)(hostile_random(peer) % 6)); break;
	default: atomic_store(&reader->keeps, (uint32_t)(hostile_random(peer) % 2)); break;
	}
}

static inline void hostile_rows(struct hostile *peer)
{
	hostile_write_over(peer, peer->map.rows, peer->map.header.participants * sizeof(struct rb_row));
}

static inline void hostile_log(struct hostile *peer)
{
	struct rb_control *control = peer->map.control;

	hostile_write_over(peer, control->log, sizeof(control->log));
	atomic_store(&control->losses, hostile_number(peer, atomic_load(&control->losses)));
}

static inline void hostile_move(struct hostile *peer, uint32_t flag)
{
	struct rb_control *control = peer->map.control;

	atomic_store(&control->ready.word, (uint32_t)peer->n << 1 | flag);
	atomic_store(&control->freed.word, (uint32_t)peer->n << 1 | flag);
	atomic_store(&control->ready.sleepers[peer->n % 2], (uint32_t)hostile_random(peer));
}

/* Epochs that pass faster than anybody can fall asleep. */
static inline void hostile_epochs(struct hostile *peer)
{
	hostile_move(peer, 0);
}

/* Sleepers that come faster than anybody can wake them. */
static inline void hostile_sleepers(struct hostile *peer)
{
	hostile_move(peer, 1);
}

/* The end of the ring, and dead producers and consumers without end. */
static inline void hostile_dead(struct hostile *peer)
{
	struct rb_map *map = &peer->map;
	uint32_t last = map->header.participants;

	atomic_store(&map->control->finished, 1);
	atomic_store(&map->rows[last - 1].joined, 1);
	for (uint32_t i = 0; i < map->header.slots; i++)
		atomic_store(&map->descs[i].word, rb_word(map, RB_READING, last, 1 + peer->n % 1000));
}

/* As if nothing had happened: so that calls also succeed in between, and go on from there. */
static inline void hostile_relent(struct hostile *peer)
{
	struct rb_control *control = peer->map.control;

	atomic_store(&control->tickets, 1 << 20);
	atomic_store(&control->finished, 0);
	for (uint32_t i = 0; i < peer->map.header.slots; i++)
		atomic_store(&peer->map.descs[i].word, rb_word(&peer->map, RB_FREE, 0, i));
}

static const struct hostile_way {
	const char *name;
	void (*write)(struct hostile *peer);
} hostile_ways[] = {
	{ "anything", hostile_anything },
	{ "ready words", hostile_ready_words },
	{ "free words", hostile_free_words },
	{ "masks", hostile_masks },
	{ "lengths", hostile_lengths },
	{ "tickets", hostile_tickets },
	{ "readers", hostile_readers },
	{ "rows", hostile_rows },
	{ "log", hostile_log },
	{ "epochs", hostile_epochs },
	{ "sleepers", hostile_sleepers },
	{ "dead", hostile_dead },
};

#define HOSTILE_WAYS (sizeof(hostile_ways) / sizeof(hostile_ways[0]))

static inline void hostile_write(struct hostile *peer, const struct hostile_way *way)
{
	way->write(peer);
	peer->n++;
}

/* ---- those who have to live with it --------------------------------------------------------------------- */

#define HOSTILE_SLOTS 4
#define HOSTILE_SLOT_BYTES 100

static const struct rb_options hostile_rings[] = {
	{ .slots = HOSTILE_SLOTS, .slot_bytes = HOSTILE_SLOT_BYTES, .participants = 6, .redeliver = true },
	{ .slots = HOSTILE_SLOTS, .slot_bytes = HOSTILE_SLOT_BYTES, .participants = 6, .full = RB_OVERWRITE },
	{ .slots = HOSTILE_SLOTS, .slot_bytes = HOSTILE_SLOT_BYTES, .participants = 6, .mode = RB_BROADCAST },
};

#define HOSTILE_RINGS (sizeof(hostile_rings) / sizeof(hostile_rings[0]))

/* Where this handle's first payload lies; asked before anybody is hostile. */
static inline unsigned char *hostile_payload(rb_ring *ring)
{
	struct rb_slot slot = t_claim(ring, 0);
	struct rb_info info;

	rb_get_info(ring, &info);
	t_equal(rb_abort(ring, &slot), 0);
	return (unsigned char *)slot.data - slot.index * info.slot_stride;
}

/* Whatever it says it is, it lies where a slot lies. */
static inline void hostile_check(rb_ring *ring, const struct rb_slot *slot, unsigned char *payload)
{
	struct rb_info info;

	rb_get_info(ring, &info);
	t_check(slot->index < HOSTILE_SLOTS);
	t_check(slot->bytes <= HOSTILE_SLOT_BYTES);
	t_check((unsigned char *)slot->data == payload + slot->index * info.slot_stride);
	memset(slot->data, 0x5a, HOSTILE_SLOT_BYTES);
}

#endif
