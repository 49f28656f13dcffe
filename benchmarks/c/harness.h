/* What the workloads share: participants that are threads or processes, one policy of waiting, the clock, options. */
#ifndef HARNESS_H
#define HARNESS_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "queue.h"

#define PRODUCERS_MAX 32
#define CONSUMERS_MAX 32
#define BATCH_MAX 64
#define LINE 128 /* two cache lines, for the processor fetches pairs */
#define SPINS 100

struct options {
	uint32_t processes; /* 1: participants are processes, 0: threads */
	uint32_t producers, consumers;
	uint32_t batch, capacity;
	uint32_t fill;      /* uncontended: batches that are in the queue all the time */
	uint32_t ms;        /* how long to measure */
	const char *spoil;  /* do this to one message, to show that the checks find it; NULL: to none */
};

int64_t now_ns(void);
void nap_ns(int64_t ns);

/* How all wait whose calls only try: spin for some microseconds, then let others run. `failures` counts those in a row. */
static inline void wait_a_bit(uint32_t *failures)
{
	if (++*failures < SPINS) {
#if defined(__x86_64__)
		__builtin_ia32_pause();
#elif defined(__aarch64__)
		__asm__ volatile("isb");
#endif
	} else {
		sched_yield();
	}
}

/* Participants, numbered from 0. While there are no more of them than processors, each gets one to itself. */
struct crew;

struct crew *crew_start(const struct options *options, uint32_t count, void (*run)(void *arg, uint32_t who), void *arg);

/* Wait until participants first ... last-1 have ended; one that failed ends the program. */
void crew_join(struct crew *crew, uint32_t first, uint32_t last);

/* Processor time of this process and all whom it has waited for. */
int64_t cpu_ns(void);

/* Percentile of values that it sorts. */
int64_t percentile(int64_t *values, uint64_t count, double percent);

/* Each does one measurement and prints it as one line of JSON. */
void throughput(const struct options *options);
void pingpong(const struct options *options);
void wake(const struct options *options);
void uncontended(const struct options *options);

#endif
