/* ringbuf: a crash-safe, lock-free ring of slots in shared memory, for any number of producer and
 * consumer processes.
 *
 *   producer:  rb_claim -> write into slot.data -> rb_commit        (or rb_abort)
 *   consumer:  rb_take  -> read slot.data in place -> rb_release
 *
 * A process that is killed at any instruction of any of these calls costs the others at most its own
 * unpublished message: its slots come back, and what was lost is counted and named by its tag.
 *
 * Conventions, unless a call says otherwise:
 *   - A call returns 0 or a count on success and a negative errno on failure; results leave by pointer.
 *     errno itself is never used.
 *   - Any thread of the process that holds a handle may call, also several at once. rb_detach() must be
 *     the last call on a handle.
 *   - A call with a deadline blocks until it succeeds or that moment of rb_now_ns() has passed; RB_NOW
 *     never blocks, RB_FOREVER has no limit. Every other call never waits for another process.
 *   - After fork() a child may go on using an inherited handle: the first call joins the ring anew (and may
 *     fail as rb_attach_fd() does, with -EUSERS or -EMFILE).
 *     Slots that the parent held stay the parent's; the child's calls on them return -ESTALE.
 *     Children made by raw clone() or vfork() must not touch inherited handles.
 *   - A process that closes descriptors it did not open (closefrom, a daemonising library) gives up its
 *     proof of life; attach after such calls, not before.
 *
 * Linux, 64-bit. */
#ifndef RINGBUF_H
#define RINGBUF_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- limits and special values --------------------------------------------------------------- */

#define RB_SLOTS_MAX 65536u           /* slots of one ring */
#define RB_PARTICIPANTS_MAX 4095u     /* processes attached at once (12 bits of a slot word) */
#define RB_READERS_MAX 16u            /* readers of a broadcast ring (16 bits of a slot word) */
#define RB_NAME_MAX 200u              /* bytes of a ring's name: letters, digits, '.', '_', '-' */

#define RB_NOW INT64_C(0)             /* deadline: do not wait */
#define RB_FOREVER INT64_MAX          /* deadline: wait without limit */
#define RB_ANY UINT32_MAX             /* target: for whoever takes it first */
#define RB_TAG_UNKNOWN UINT64_MAX     /* a lost message whose producer died before it wrote the tag */

/* ---- types ------------------------------------------------------------------------------------ */

typedef struct rb_ring rb_ring; /* one process's handle on one ring */

enum rb_mode {
	RB_QUEUE = 0,     /* each message to one consumer */
	RB_BROADCAST = 1, /* each message to every reader that is subscribed when it is committed */
};

enum rb_full {
	RB_BLOCK = 0,     /* a full ring makes producers wait */
	RB_OVERWRITE = 1, /* a full ring gives up its oldest unread message (queue mode only) */
};

/* Huge pages for payloads, made at creation as far as memory is not too fragmented. A wish: without them all works the same, slower. */
enum rb_hugepages {
	RB_HUGE_AUTO = 0,   /* for slots of 16 MiB and more */
	RB_HUGE_NEVER = 1,
	RB_HUGE_ALWAYS = 2, /* for all; rounds each slot up to 2 MiB */
};

struct rb_options {
	const char *name;            /* NULL: anonymous, shared by descriptor only */
	uint64_t slot_bytes;         /* payload bytes of a slot, at least 1 */
	uint32_t slots;              /* 1 ... RB_SLOTS_MAX */
	uint32_t participants;       /* rows in the table of processes; 0: 256 */
	enum rb_mode mode;
	enum rb_full full;
	enum rb_hugepages hugepages;
	bool redeliver;              /* queue mode: a dead consumer's messages go back, as it left them (true), or are dropped */
	bool supervised;             /* this handle is as from rb_attach_fd_supervised() */
	bool unsecured;              /* leave all but the first page of each slot to rb_secure(): a large ring is there at once */
};

/* A slot in the caller's hands, between claim and commit/abort or between take and release.
 * The first six fields are for the caller to read; the rest is the ring's. Plain data: may be copied,
 * must be handed back once. */
struct rb_slot {
	void *data;       /* the payload in this process's mapping, page aligned */
	uint64_t bytes;   /* claim: capacity of the payload; take: bytes committed */
	uint64_t tag;     /* the producer's label */
	uint64_t ticket;  /* take: place in the order of commits, from 1, with gaps */
	uint32_t target;  /* the consumer it is addressed to, or RB_ANY */
	uint32_t index;   /* which slot this is, 0 ... slots-1 */
	uint64_t word;
	uint32_t who;
	uint32_t life;
};

/* Which messages a take accepts. A zeroed filter, or NULL, accepts all. */
struct rb_filter {
	bool by_tag;       /* only messages whose tag is `tag` */
	bool by_target;    /* only messages addressed to `target` or to RB_ANY */
	uint32_t target;
	uint64_t tag;
};

struct rb_info {
	uint64_t slot_bytes;    /* as asked for at creation */
	uint64_t slot_stride;   /* distance between payloads in bytes, a multiple of the page size */
	uint64_t total_bytes;   /* size of the segment */
	uint32_t slots;
	uint32_t participants;
	enum rb_mode mode;
	enum rb_full full;
	bool redeliver;
	const char *name;       /* NULL for an anonymous ring; lives as long as the handle */
};

struct rb_stats {
	/* since creation, all processes together; a killed process may not have counted its last act */
	uint64_t published;     /* messages committed */
	uint64_t consumed;      /* messages released (in broadcast: once for each reader) */
	uint64_t dropped;       /* overwritten, dropped with their consumer, or broadcast to nobody */
	uint64_t lost;          /* claimed by producers that died before they committed; exact */
	uint64_t waits;         /* times that a call went to sleep */
	uint64_t wait_ns;       /* nanoseconds asleep */
	/* now; the slots are read one after another while others go on */
	uint32_t free, writing, ready, reading;
	uint32_t participants;  /* attached, or dead and not yet reaped */
	uint32_t readers;       /* subscribed to a broadcast ring */
	bool finished;
};

enum rb_state {
	RB_FREE = 0,
	RB_WRITING = 1, /* claimed */
	RB_READY = 2,   /* committed; in broadcast until the last reader has released it */
	RB_READING = 3, /* queue mode: taken */
};

/* A slot as one look found it. */
struct rb_view {
	uint64_t tag;    /* RB_TAG_UNKNOWN: the slot is free, or its producer did not write the tag yet */
	uint64_t ticket; /* of what is READY or READING, else 0 */
	uint64_t word;   /* the same in two looks: nobody has touched the slot between them */
	uint64_t pid;    /* whose it is while it is WRITING or READING, as numbered in its own pid namespace; else 0 */
	uint32_t target; /* of what has a tag, else RB_ANY */
	enum rb_state state;
};

/* What somebody waits for. */
enum rb_wish {
	RB_TO_TAKE = 0,  /* a message */
	RB_TO_CLAIM = 1, /* a free slot */
};

struct rb_lost {
	uint64_t tag;   /* RB_TAG_UNKNOWN when its producer died before writing it */
	uint64_t pid;   /* the producer, as numbered in its own pid namespace */
};

/* A participant, as a survey found it. */
struct rb_peer {
	uint64_t pid;        /* as numbered in its own pid namespace */
	int64_t joined_ns;   /* CLOCK_REALTIME */
	uint64_t published;  /* messages committed; this and what follows: by it, and by those who had its row before */
	uint64_t consumed;   /* messages released */
	uint64_t waits;      /* times that a call went to sleep */
	uint64_t wait_ns;    /* nanoseconds asleep */
	uint32_t row;        /* its place in the table */
	uint32_t writing;    /* slots that it has claimed */
	uint32_t reading;    /* slots that it has taken (queue mode) */
	uint32_t owed;       /* messages that it has not released (broadcast) */
	bool alive;          /* false: it died, and nobody has returned what it holds */
};

/* A ring as somebody sees it who is not of it. What follows `readable` holds only where that is true. */
struct rb_survey {
	int problem;         /* 0, or why rb_attach() would be refused: -EACCES, -EPROTO, -EBADMSG */
	int alive;           /* 1: somebody is attached; 0: all are dead; -1: another user's, not to be told from here */
	uint32_t uid;        /* whose file it is */
	uint32_t version;    /* of the layout; 0: it is no ring, or may not be read */
	uint64_t file_bytes; /* size of the file */
	int64_t changed_ns;  /* when the file last changed, but for what was written through mappings; CLOCK_REALTIME */
	bool readable;
	uint64_t id[2];      /* tells two rings of one name apart */
	int64_t created_ns;  /* CLOCK_REALTIME */
	uint64_t message_bytes; /* of the latest message of each slot, on average; 0: there was none */
	struct rb_info info;
	struct rb_stats stats;
	const struct rb_peer *peers; /* stats.participants of them */
	const struct rb_view *slots; /* info.slots of them */
};

/* ---- life of a ring ---------------------------------------------------------------------------- */

/* Bytes that a ring with these options occupies. Makes no system call but for the page size.
 * -EINVAL: an option is out of range. -EOVERFLOW: the sizes do not fit 63 bits. */
int rb_segment_bytes(const struct rb_options *options, uint64_t *bytes);

/* Make a ring and attach to it. Every page is reserved before the call returns (but see `unsecured`), so that no later
 * access can fault for want of memory. A named ring appears under its name complete, mode 0600; the leftover
 * of processes that all died is replaced.
 * -EINVAL     an option or the name is out of range; nothing was asked of the system
 * -EEXIST     the name is in use by a living process     -EACCES   the name is another user's
 * -ENOSPC     shared memory (named: of /dev/shm) or its quota does not suffice
 * -ENOMEM     more than the machine's available memory and swap
 * -EFBIG, -EMFILE, -ENFILE as from the system. Nothing is left behind on failure.
 * A control group's memory limit is not looked at: reserving beyond it makes the kernel kill in that group. */
int rb_create(const struct rb_options *options, rb_ring **out);

/* Attach to a named ring, or to the ring behind a descriptor from rb_fd() (which stays the caller's).
 * A failed attach removes nothing, and writes nothing, but that before -EUSERS it returns the slots of dead processes.
 * -ENOENT     no such ring       -EACCES  another user's, or its mode is wider than 0600
 * -EPROTO     made by another layout version, byte order or kind of waiting; refused unread
 * -EBADMSG    not a ring, truncated, under another name than its own, or its header does not agree with itself
 * -EUSERS     the table of participants is full
 * -ENOLCK, -EINVAL, -EMFILE and others as from the system: it gives no locks, no descriptors */
int rb_attach(const char *name, rb_ring **out);
int rb_attach_fd(int fd, rb_ring **out);

/* The same, for the participants of a ring whose supervisor wants to see what a dead one had in hand, by rb_look(), before
 * that changes hands: through this handle only rb_recover() looks for the dead. Every participant has to attach like this; the
 * creator has an option for it. */
int rb_attach_fd_supervised(int fd, rb_ring **out);
/* Say of a handle from rb_attach_fd() that its ring was made `unsecured`: rb_claim() then leaves a slot's pages alone. To be
 * said before the first claim. */
void rb_is_unsecured(rb_ring *ring);

/* The layout version of the segment behind a descriptor, even where attaching is refused with -EPROTO;
 * RB_LAYOUT_VERSION is this library's. */
#define RB_LAYOUT_VERSION 1
int rb_peek_version(int fd, uint32_t *version);

/* Leave the ring and unmap it. Slots still claimed are aborted, slots still taken are treated as a dead
 * consumer's. The last one out removes a named ring's name. Payload pointers die here. */
void rb_detach(rb_ring *ring);

/* Remove a name whose processes are all dead. -EBUSY: somebody is attached. -ENOENT, -EACCES. Others as from the system;
 * the name is there still. */
int rb_unlink(const char *name);

/* A descriptor of the segment, to hand to another process (inheritance, SCM_RIGHTS). It stays the
 * handle's: duplicate it to keep it. */
int rb_fd(const rb_ring *ring);

void rb_get_info(const rb_ring *ring, struct rb_info *out);

/* ---- producers --------------------------------------------------------------------------------- */

/* Take a free slot for writing. It is the caller's for as long as it likes, until rb_commit() or
 * rb_abort(); if the process dies first the slot comes back and the message counts as lost under `tag`.
 * -EAGAIN     none free, and the deadline was RB_NOW      -ETIMEDOUT  none free until the deadline
 * -EPIPE      the ring is finished                        -EINTR      the pause hook said so */
int rb_claim(rb_ring *ring, uint64_t tag, uint32_t target, int64_t deadline_ns, struct rb_slot *out);

/* For a claimed slot of a ring that was made `unsecured`: reserve its pages, if nobody did so before, and map them. To be called
 * before anything behind the first page is written to; where it is done, it costs next to nothing to ask again.
 * -ENOMEM, -ENOSPC, -EFBIG as rb_create(); the slot stays claimed.
 * -ESTALE     claimed through another handle, or inherited through fork() */
int rb_secure(rb_ring *ring, const struct rb_slot *slot);

/* Publish the first `bytes` of the slot. Release: what was written before is seen by who takes it.
 * -EMSGSIZE   more than the slot holds; it stays claimed.
 * -ESTALE     not this handle's slot: handed back already, or inherited through fork() */
int rb_commit(rb_ring *ring, const struct rb_slot *slot, uint64_t bytes);

/* Publish several slots, in order, the first `bytes[i]` of slots[i]; whoever waits is woken once, after the last: takers that
 * come for one each do not keep the producer from the others'. Returns 0, or the error of the first that cannot be
 * published, as rb_commit(); that one and those behind it stay claimed. */
int rb_commit_all(rb_ring *ring, const struct rb_slot *slots, const uint64_t *bytes, uint32_t n);

/* memcpy for payloads larger than the caches: past them, where the machine can. Complete in the order of a commit
 * that follows. For payloads that fit the cache memcpy is better: their consumer finds them there. */
void rb_copy_streaming(void *to, const void *from, uint64_t bytes);

/* Give the slot back unpublished. -ESTALE as above. */
int rb_abort(rb_ring *ring, const struct rb_slot *slot);

/* No message may be claimed from now on; slots claimed before may still be committed. Consumers drain
 * what there is, then get -EPIPE. An overwriting claim that meets the end half-way has dropped the message that it
 * took the place of. Returns 0, also when already finished. */
int rb_finish(rb_ring *ring);

/* ---- consumers --------------------------------------------------------------------------------- */

/* Take the oldest message that the filter accepts (NULL: any). Acquire: its payload is as committed, or
 * as a consumer left it that died with it in hand.
 * In queue mode it is the caller's alone; in broadcast mode the caller must not write to it, and the
 * first take subscribes the handle.
 * Messages committed one after another are taken in that order; of messages committed at the same
 * moment either may come first. A redelivered message keeps its old place.
 * -EAGAIN, -ETIMEDOUT, -EINTR as rb_claim.
 * -EPIPE      finished, and nothing is left that the filter accepts. What another consumer holds at that moment is
 *             redelivered if it dies later, to whoever is still there.
 * -EUSERS     broadcast: RB_READERS_MAX readers are subscribed already
 * -EBADMSG    somebody scribbled on the slot's record: the message is gone, the slot is free, others go on */
int rb_take(rb_ring *ring, const struct rb_filter *filter, int64_t deadline_ns, struct rb_slot *out);

/* Hand a taken slot back; its payload must not be touched any more. -ESTALE as rb_commit. */
int rb_release(rb_ring *ring, const struct rb_slot *slot);

/* Broadcast: be a reader from now on: every message committed after this returns will be delivered.
 * Idempotent. -EUSERS as rb_take, -EINVAL in queue mode. */
int rb_subscribe(rb_ring *ring);

/* Broadcast: be a reader no more; what was not yet taken is given up, what was taken stays valid until it is
 * released. Idempotent; does nothing in queue mode. Not while another thread takes through this handle. A take that comes
 * later subscribes anew, or is refused with -EBUSY while slots from before are out. */
int rb_unsubscribe(rb_ring *ring);

/* ---- waiting in another thread's place ------------------------------------------------------------ */

/* For callers that must not block, such as an event loop, and leave that to one thread for all of their waits:
 *
 *     the loop                                          the thread
 *     seen = rb_watch(ring, wish)
 *     look: rb_can_take(), rb_can_claim()
 *     nothing there: hand `seen` to the thread   --->   while (rb_await(ring, wish, seen, RB_FOREVER) < 0) ;
 *     look again                                 <---   tell the loop
 *
 * What comes after rb_watch() ends an rb_await() on what that returned, in whatever thread and however much later. */
uint32_t rb_watch(rb_ring *ring, enum rb_wish wish);

/* Sleep until something has changed since rb_watch() returned `seen`, 100 ms at most; also rb_wake() is a change.
 * 0           look again; perhaps for nothing
 * -EAGAIN     100 ms, or the deadline, have passed; the dead were looked for, and there is nothing that a filter could accept */
int rb_await(rb_ring *ring, enum rb_wish wish, uint32_t seen, int64_t deadline_ns);

/* Would rb_take() with RB_NOW, or rb_claim(), do anything but say -EAGAIN? 1: it would, also if an error; 0: not now. Takes
 * nothing. In broadcast it may say 1 of a message that the take then finds not to be for this reader. Errors as rb_take(). */
int rb_can_take(rb_ring *ring, const struct rb_filter *filter);
int rb_can_claim(rb_ring *ring);

/* How many slots are taken, claimed or wait to be taken under a tag from `first` to `last`. */
int rb_count_tags(const rb_ring *ring, uint64_t first, uint64_t last);

/* The payload of slot `index` in this process's mapping, for who writes there by leave of the one whose slot it is; how the two
 * agree on the end of that is theirs to know. NULL: no such slot. */
void *rb_payload_of(const rb_ring *ring, uint32_t index);

/* ---- looking after it -------------------------------------------------------------------------- */

/* Return the slots of dead processes now; waiting calls do this by themselves within 100 ms.
 * Returns the number of slots that came back. */
int rb_recover(rb_ring *ring);

/* Messages waiting to be taken (in broadcast: by this handle). */
int rb_ready(rb_ring *ring);

/* Look at slot `index` without touching it. What a process has in hand that is dead, and not reaped yet, is shown exactly; of
 * living ones it is a picture, old when the call returns. -EINVAL: no such slot. -EAGAIN: it changes hands too fast to be seen. */
int rb_look(const rb_ring *ring, uint32_t index, struct rb_view *out);

void rb_get_stats(rb_ring *ring, struct rb_stats *out);

/* Look at a named ring, or at the ring behind a descriptor, from outside: nothing is written, joined or locked, and a process that is
 * stopped or hangs is as good to look at as any. A ring that cannot be attached to is a result too, with as much as can be known of it.
 * What is seen is a copy, made while others went on: slots may differ from the counts by what happened meanwhile, and a slot that
 * changes hands at that moment may show the tag of the message before.
 * *out is to be given to rb_survey_free().
 * -ENOENT: no such name. -EINVAL: not a ring's name. -ENOMEM, -EMFILE, -ENOLCK and others as from the system. */
int rb_survey(const char *name, struct rb_survey **out);
int rb_survey_fd(int fd, struct rb_survey **out);
void rb_survey_free(struct rb_survey *survey);

/* The most recent losses, newest first; returns how many of `most` were filled in (at most 64). */
int rb_get_lost(rb_ring *ring, struct rb_lost *out, uint32_t most);

/* Make everybody who waits on this ring look again. */
void rb_wake(rb_ring *ring);

/* Called from inside a waiting call whenever a signal arrived, or 100 ms passed, without a result.
 * A negative value ends the wait and is what the call returns. Set it before other threads use the handle. */
void rb_on_pause(rb_ring *ring, int (*pause)(void *arg), void *arg);

/* CLOCK_MONOTONIC in nanoseconds: the clock of every deadline. */
int64_t rb_now_ns(void);

#ifdef __cplusplus
}
#endif
#endif
