/* The bytes of a segment. Every process maps them at another address, so there are no pointers in here;
 * every process may be of another build, so every offset is asserted and RB_LAYOUT_VERSION counts changes.
 *
 *     0     struct rb_header     written once by the creator, then never again; attachers validate a copy
 *   512     struct rb_control    what everybody writes: counters, event counts, readers, the log of losses
 *  4096     struct rb_row [participants]    who is attached; row p is written by the holder of lock byte p
 *           struct rb_desc[slots]           one word of truth per slot, and what its owner wrote about it
 *           payload[slots]                  page aligned, `slot_stride` apart
 *
 * A slot word is the only truth about its slot; each change of ownership is ONE compare-and-swap on it:
 *
 *     state:3 | who:12 | seq:49      queue:      FREE(s) -> WRITING(p,s) -> READY(t) -> READING(c,t) -> FREE(t)
 *     state:3 | who:16 | seq:45      broadcast:  FREE(s) -> WRITING(p,s) -> READY(mask,t) -> ... -> FREE(t)
 *
 * `who` is a row's index plus one, or the mask of readers that still owe a release. `seq` is a ticket: the
 * counter is drawn from for every commit, abort and burial, so that a word never comes back on a slot. (Two
 * do, after a redelivery: READY(t), which is the same message still, and READING(c,t), which is safe because the
 * reaper holds lock byte c meanwhile.)
 *
 * Locks are open-file-description locks on bytes far behind the data: the kernel drops them when the
 * last descriptor of their holder is gone, and with them the proof of life. */
#ifndef RB_LAYOUT_H
#define RB_LAYOUT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#ifdef RINGBUF_WAIT_SEMAPHORE
#include <semaphore.h>
#endif

#include "include/ringbuf.h"
#include "platform.h"

#define RB_MAGIC "ringbuf\n"
#define RB_BYTE_ORDER 0x01020304u
#define RB_LOST_LOG 64u

#ifdef RINGBUF_WAIT_SEMAPHORE
#define RB_WAIT_KIND 2u
#else
#define RB_WAIT_KIND 1u
#endif

/* Lock bytes, relative to RB_LOCKS: row p's is at p. */
#define RB_LOCKS (INT64_C(1) << 62)
#define RB_LIFE_BYTE (RB_LOCKS + 65536) /* shared: somebody is attached; exclusive: the name is being removed */

struct rb_header {
	char magic[8];
	uint32_t version;
	uint32_t byte_order;
	uint32_t wait_kind;
	uint32_t mode;
	uint32_t full;
	uint32_t redeliver;
	uint32_t hugepages;
	uint32_t slots;
	uint32_t participants;
	uint32_t page_bytes;    /* of the creator: payloads are aligned to it */
	uint64_t slot_bytes;
	uint64_t slot_stride;
	uint64_t rows_at;
	uint64_t descs_at;
	uint64_t payload_at;
	uint64_t total_bytes;
	uint64_t id[2];         /* random: tells two segments of one name apart */
	int64_t created_ns;     /* CLOCK_REALTIME, for display only */
	char name[208];         /* NUL-terminated; empty: anonymous */
	uint64_t checksum;      /* of all bytes before it */
};

/* An event count: bit 0 says that somebody may sleep, the rest is an epoch. See wait.h.
 * The futex build leaves all but `word` alone; wait_kind keeps the two builds apart. */
struct rb_event {
	_Atomic uint32_t word;
	uint32_t unused;
	_Atomic uint32_t sleepers[2]; /* by parity of their epoch: how many posts a wake-up takes */
#ifdef RINGBUF_WAIT_SEMAPHORE
	sem_t bell[2];
#else
	uint64_t no_bell[8];
#endif
};

struct rb_reader {
	_Atomic uint64_t start;  /* first ticket it is entitled to; 0: still joining, nobody else clears its bits; UINT64_MAX: left */
	_Atomic uint32_t owner;  /* row plus one; 0: entry not in use */
	_Atomic uint32_t keeps;  /* not active any more, but messages are in its hands: nobody else clears its bits */
};

struct rb_loss {
	_Atomic uint64_t word;   /* of the slot, while it was WRITING: with `slot` it names this loss uniquely */
	_Atomic uint64_t tag;
	_Atomic uint64_t pid;
	_Atomic uint64_t slot;
};

struct rb_control {
	_Alignas(RB_LINE) _Atomic uint64_t tickets;   /* next ticket; starts at 1 */
	_Alignas(RB_LINE) struct rb_event ready;      /* moved by commits, takers sleep on it */
	_Alignas(RB_LINE) struct rb_event freed;      /* moved by releases, claimers sleep on it */
	_Alignas(RB_LINE) _Atomic uint32_t finished;
	_Atomic uint32_t active;                      /* broadcast: bit b set: reader b is subscribed */
	_Atomic uint64_t losses;                      /* entries ever written to the log */
	_Alignas(RB_LINE) struct rb_reader readers[RB_READERS_MAX];
	_Alignas(RB_LINE) struct rb_loss log[RB_LOST_LOG];
};

/* A participant. The counters outlive it: they are the row's, and a ring's totals are the sum over rows. */
struct rb_row {
	_Alignas(RB_LINE) _Atomic uint32_t joined; /* 1: somebody is, or died as, this participant */
	_Atomic uint32_t unused;
	_Atomic uint64_t pid;
	_Atomic uint64_t joined_ns;                /* CLOCK_REALTIME, for display only */
	/* A burial in progress, so that a reaper's own death neither loses nor doubles a loss: see recover.c. */
	_Atomic uint64_t grave_word;               /* 0: none */
	_Atomic uint64_t grave_slot;
	_Atomic uint64_t grave_tag;
	_Atomic uint64_t grave_count;              /* what `lost` becomes */
	_Atomic uint64_t lost;
	_Alignas(RB_LINE) _Atomic uint64_t published;
	_Atomic uint64_t consumed;
	_Atomic uint64_t dropped;
	_Atomic uint64_t waits;
	_Atomic uint64_t wait_ns;
};

/* A slot. All but `word` belongs to the slot's owner of the moment and is ordered by the word. tag and target are
 * also read by consumers that only look (to filter), hence atomic; what they saw counts only if their CAS succeeds. */
struct rb_desc {
	_Alignas(64) _Atomic uint64_t word;
	_Atomic uint64_t tag;
	_Atomic uint64_t claimed;  /* the WRITING word that `tag` belongs to: a tag left from before is not reported */
	_Atomic uint32_t target;
	uint32_t unused;
	_Atomic uint64_t bytes;    /* committed; ordered by the word */
};

#define RB_AT(type, field, offset) \
	_Static_assert(offsetof(struct type, field) == (offset), #type "." #field " moved: count up RB_LAYOUT_VERSION")

RB_AT(rb_header, version, 8);
RB_AT(rb_header, byte_order, 12);
RB_AT(rb_header, wait_kind, 16);
RB_AT(rb_header, mode, 20);
RB_AT(rb_header, full, 24);
RB_AT(rb_header, redeliver, 28);
RB_AT(rb_header, hugepages, 32);
RB_AT(rb_header, slots, 36);
RB_AT(rb_header, participants, 40);
RB_AT(rb_header, page_bytes, 44);
RB_AT(rb_header, slot_bytes, 48);
RB_AT(rb_header, slot_stride, 56);
RB_AT(rb_header, rows_at, 64);
RB_AT(rb_header, descs_at, 72);
RB_AT(rb_header, payload_at, 80);
RB_AT(rb_header, total_bytes, 88);
RB_AT(rb_header, id, 96);
RB_AT(rb_header, created_ns, 112);
RB_AT(rb_header, name, 120);
RB_AT(rb_header, checksum, 328);
_Static_assert(sizeof(struct rb_header) == 336, "header size");

RB_AT(rb_event, word, 0);
RB_AT(rb_event, sleepers, 8);
_Static_assert(sizeof(struct rb_event) == 80, "event size, the same in both builds");
RB_AT(rb_reader, start, 0);
RB_AT(rb_reader, owner, 8);
RB_AT(rb_reader, keeps, 12);
_Static_assert(sizeof(struct rb_reader) == 16, "reader size");
RB_AT(rb_loss, word, 0);
RB_AT(rb_loss, tag, 8);
RB_AT(rb_loss, pid, 16);
RB_AT(rb_loss, slot, 24);
_Static_assert(sizeof(struct rb_loss) == 32, "loss size");

#define RB_CONTROL_AT 512
_Static_assert(sizeof(struct rb_header) <= RB_CONTROL_AT, "header fits before the control block");
RB_AT(rb_control, tickets, 0);
RB_AT(rb_control, ready, 128);
RB_AT(rb_control, freed, 256);
RB_AT(rb_control, finished, 384);
RB_AT(rb_control, active, 388);
RB_AT(rb_control, losses, 392);
RB_AT(rb_control, readers, 512);
RB_AT(rb_control, log, 768);
#define RB_ROWS_AT 4096
_Static_assert(RB_CONTROL_AT + sizeof(struct rb_control) <= RB_ROWS_AT, "control fits before the rows");

RB_AT(rb_row, joined, 0);
RB_AT(rb_row, pid, 8);
RB_AT(rb_row, joined_ns, 16);
RB_AT(rb_row, grave_word, 24);
RB_AT(rb_row, grave_slot, 32);
RB_AT(rb_row, grave_tag, 40);
RB_AT(rb_row, grave_count, 48);
RB_AT(rb_row, lost, 56);
RB_AT(rb_row, published, 128);
RB_AT(rb_row, consumed, 136);
RB_AT(rb_row, dropped, 144);
RB_AT(rb_row, waits, 152);
RB_AT(rb_row, wait_ns, 160);
_Static_assert(sizeof(struct rb_row) == 256, "row size");

RB_AT(rb_desc, word, 0);
RB_AT(rb_desc, tag, 8);
RB_AT(rb_desc, claimed, 16);
RB_AT(rb_desc, target, 24);
RB_AT(rb_desc, bytes, 32);
_Static_assert(sizeof(struct rb_desc) == 64, "one cache line per slot");

/* One process's view of a segment: addresses in its own mapping, and geometry from its own validated copy
 * of the header. Shared memory is never asked again for a size. */
struct rb_map {
	unsigned char *base;
	struct rb_control *control;
	struct rb_row *rows;
	struct rb_desc *descs;
	unsigned char *payload;
	struct rb_header header;  /* the private copy */
	unsigned seq_bits;        /* width of a word's seq */
};

/* ---- the slot word ------------------------------------------------------------------------------ */

#define RB_STATE_SHIFT 61

static inline uint64_t rb_word(const struct rb_map *map, enum rb_state state, uint64_t who, uint64_t seq)
{
	return (uint64_t)state << RB_STATE_SHIFT | who << map->seq_bits | seq;
}

static inline enum rb_state rb_word_state(uint64_t word)
{
	return (enum rb_state)(word >> RB_STATE_SHIFT);
}

static inline uint64_t rb_word_seq(const struct rb_map *map, uint64_t word)
{
	return word & ((UINT64_C(1) << map->seq_bits) - 1);
}

static inline uint32_t rb_word_who(const struct rb_map *map, uint64_t word)
{
	return (uint32_t)((word & ((UINT64_C(1) << RB_STATE_SHIFT) - 1)) >> map->seq_bits);
}

/* The ring finishes by itself before tickets run out; the margin is for claims under way. */
static inline uint64_t rb_last_ticket(const struct rb_map *map)
{
	return (UINT64_C(1) << map->seq_bits) - (UINT64_C(1) << 24);
}

static inline unsigned char *rb_payload(const struct rb_map *map, uint32_t slot)
{
	return map->payload + (uint64_t)slot * map->header.slot_stride;
}

#endif
