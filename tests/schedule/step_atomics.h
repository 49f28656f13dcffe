/* Put before everything else of a library source (-include), this makes each of its atomic accesses, file locks and futex
 * calls a step of the scheduler: the source itself stays as it is. One step at a time: what the orders (acquire, release,
 * ...) would let a machine do beyond that is not shown here. */
#ifndef STEP_ATOMICS_H
#define STEP_ATOMICS_H

#define _GNU_SOURCE
#include <stdatomic.h>

#include "step.h"

#define STEP_TEXT_(line) #line
#define STEP_TEXT(line) STEP_TEXT_(line)
#define STEP_HERE __FILE__ ":" STEP_TEXT(__LINE__)
#define STEP_VALUE(object) __typeof__((void)0, *(object)) /* without its _Atomic */
#define STEP_CHANGE(object, change, by) \
	__extension__({ /* whose value may go unused without a warning */ \
		STEP_VALUE(object) step_was = (STEP_VALUE(object))step_change((object), sizeof(*(object)), (change), \
									     (uint64_t)(by), STEP_HERE); \
		step_was; \
	})

#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_compare_exchange_strong_explicit
#undef atomic_compare_exchange_weak_explicit
#undef atomic_fetch_add_explicit
#undef atomic_fetch_sub_explicit
#undef atomic_fetch_or_explicit
#undef atomic_fetch_and_explicit
#undef atomic_thread_fence
#define atomic_load_explicit(object, order) ((STEP_VALUE(object))step_load((object), sizeof(*(object)), STEP_HERE))
#define atomic_store_explicit(object, value, order) \
	step_store((object), sizeof(*(object)), (uint64_t)(STEP_VALUE(object))(value), STEP_HERE)
#define atomic_compare_exchange_strong_explicit(object, expected, desired, order, failure) \
	step_exchange((object), sizeof(*(object)), (expected), (uint64_t)(desired), false, STEP_HERE)
#define atomic_compare_exchange_weak_explicit(object, expected, desired, order, failure) \
	step_exchange((object), sizeof(*(object)), (expected), (uint64_t)(desired), true, STEP_HERE)
#define atomic_fetch_add_explicit(object, by, order) STEP_CHANGE(object, STEP_ADD, by)
#define atomic_fetch_sub_explicit(object, by, order) STEP_CHANGE(object, STEP_SUB, by)
#define atomic_fetch_or_explicit(object, by, order) STEP_CHANGE(object, STEP_OR, by)
#define atomic_fetch_and_explicit(object, by, order) STEP_CHANGE(object, STEP_AND, by)
#define atomic_thread_fence(order) ((void)(order)) /* steps are sequentially consistent without it */

/* What is not a step above would slip through: it shall not compile. */
#undef atomic_load
#undef atomic_store
#undef atomic_exchange
#undef atomic_exchange_explicit
#undef atomic_fetch_add
#undef atomic_fetch_sub
#undef atomic_fetch_or
#undef atomic_fetch_and
#undef atomic_fetch_xor
#undef atomic_fetch_xor_explicit
#undef atomic_compare_exchange_strong
#undef atomic_compare_exchange_weak
#undef atomic_flag_test_and_set
#undef atomic_flag_test_and_set_explicit
#define atomic_exchange_explicit(...) _Static_assert(0, "give step_atomics.h this access too")
#define atomic_fetch_xor_explicit atomic_exchange_explicit

/* Declared by the system's own headers, under these names: see world.c. */
#define fcntl step_fcntl
#define getpid step_getpid
#define clock_gettime step_clock_gettime
#define syscall step_syscall

#endif
