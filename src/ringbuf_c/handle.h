/* A process's handle on a ring: what it is made of, how it joins, survives a fork, and leaves.
 *
 * A handle belongs to the process that made it. fork() copies it: the child's copy keeps the mapping, for views that
 * were inherited, but closes the description that shows the parent alive and counts up `life`, so that slots
 * taken before the fork are refused. The child's first call joins as a participant of its own. */
#ifndef RB_HANDLE_H
#define RB_HANDLE_H

#include <pthread.h>

#include "participant.h"
#include "ring.h"

/* How a handle's waits for one thing went lately: see spin() in ringbuf.c. */
struct rb_patience {
	_Atomic uint32_t rest;            /* waits to come that go without a spin */
	_Atomic uint32_t pace;            /* how many they were after the last spin */
};

struct rb_ring {
	struct rb_self self;
	struct rb_map map;
	struct rb_member member;
	int fd;                           /* to hand out; carries no locks */
	_Atomic uint32_t joined;          /* 0 after a fork, until the child's first call */
	uint32_t life;                    /* forks survived */
	pthread_mutex_t joining;          /* one thread joins or subscribes; never held during a wait */
	_Atomic uint32_t reaping;         /* one thread reaps: see rb_member_seize */
	_Atomic int64_t reaped_ns;
	_Atomic int32_t taken;            /* slots out through this handle */
	_Atomic uint32_t withdrawn;       /* unsubscribed while slots are out: the entry stays until they are back */
	_Atomic uint32_t nudges;          /* rb_wake was called */
	int (*pause)(void *arg);
	void *pause_arg;
	int64_t spin_ns;                  /* how long to look before going to sleep; 0: the partner may need our processor */
	struct rb_patience claiming, taking;
	bool supervised;                  /* only rb_recover() looks for the dead */
	bool unsecured;                   /* claims leave a slot's pages to rb_secure() */
	_Atomic uint64_t *populated;      /* bit per slot: its pages are in this process's page tables */
	struct rb_ring *next, **back;     /* in `handles` */
};

/* First thing in every call that acts as a participant: join, if a fork lies behind us. Errors as rb_attach_fd(). */
RB_PRIVATE int rb_handle_enter(struct rb_ring *ring);

/* The same, and in broadcast be a reader. -EUSERS: there are enough; -EBUSY: see rb_unsubscribe(). */
RB_PRIVATE int rb_handle_enter_as_reader(struct rb_ring *ring);

/* Return what the dead hold and wake whoever waits for it; 0 at once while another thread of the handle does so. */
RB_PRIVATE int rb_handle_recover(struct rb_ring *ring);

/* The same for calls that were not asked to: of a supervised handle they leave the dead alone. */
RB_PRIVATE int rb_handle_reap(struct rb_ring *ring);

/* Slots taken through this handle and not handed back. */
RB_PRIVATE int32_t rb_handle_slots_out(const struct rb_ring *ring);

/* Broadcast, under ring->joining: be a reader no more; at once, or only if it has withdrawn and all slots are back. */
RB_PRIVATE void rb_handle_end_subscription(struct rb_ring *ring);
RB_PRIVATE void rb_handle_end_if_withdrawn(struct rb_ring *ring);

/* Make takers and claimers look again. */
RB_PRIVATE void rb_handle_notify(struct rb_ring *ring);

#endif
