/* What differs between machines, in one place. */
#ifndef RB_PLATFORM_H
#define RB_PLATFORM_H

#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

#if ATOMIC_LLONG_LOCK_FREE != 2 || UINTPTR_MAX != UINT64_MAX
#error "ringbuf needs lock-free 64-bit atomics and 64-bit addresses"
#endif

#define RB_LINE 128 /* two cache lines: the adjacent one is prefetched along, and would be shared falsely */

#define RB_PRIVATE __attribute__((visibility("hidden")))

static inline int64_t rb_clock_ns(clockid_t clock)
{
	struct timespec now;
	clock_gettime(clock, &now);
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* To be called in a loop that waits for another processor: leaves more of this one to its other half. */
static inline void rb_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

#endif
