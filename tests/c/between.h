/* Included ahead of each of the library's files, when it is built for programs that define rb_between(): every access to an
 * atomic of shared memory calls that before it takes place. What a program does there happens between any two accesses. */
#ifndef BETWEEN_H
#define BETWEEN_H

#define _GNU_SOURCE /* as they do, before any header */
#include <stdatomic.h>

void rb_between(void);

#undef atomic_load_explicit
#undef atomic_store_explicit
#undef atomic_fetch_add_explicit
#undef atomic_fetch_sub_explicit
#undef atomic_fetch_and_explicit
#undef atomic_fetch_or_explicit
#undef atomic_compare_exchange_strong_explicit
#undef atomic_compare_exchange_weak_explicit

#ifdef __clang__
#define BETWEEN(name, ...) (rb_between(), __c11_atomic_##name(__VA_ARGS__))
#define BETWEEN_EXCHANGE(kind, weak, at, was, is, then, otherwise) \
	BETWEEN(compare_exchange_##kind, at, was, is, then, otherwise)
#define BETWEEN_LOAD(at, order) BETWEEN(load, at, order)
#define BETWEEN_STORE(at, value, order) BETWEEN(store, at, value, order)
#else
#define BETWEEN(name, ...) (rb_between(), __atomic_##name(__VA_ARGS__))
#define BETWEEN_EXCHANGE(kind, weak, at, was, is, then, otherwise) \
	BETWEEN(compare_exchange_n, at, was, is, weak, then, otherwise)
#define BETWEEN_LOAD(at, order) BETWEEN(load_n, at, order)
#define BETWEEN_STORE(at, value, order) BETWEEN(store_n, at, value, order)
#endif

#define atomic_load_explicit(at, order) BETWEEN_LOAD(at, order)
#define atomic_store_explicit(at, value, order) BETWEEN_STORE(at, value, order)
#define atomic_fetch_add_explicit(at, value, order) BETWEEN(fetch_add, at, value, order)
#define atomic_fetch_sub_explicit(at, value, order) BETWEEN(fetch_sub, at, value, order)
#define atomic_fetch_and_explicit(at, value, order) BETWEEN(fetch_and, at, value, order)
#define atomic_fetch_or_explicit(at, value, order) BETWEEN(fetch_or, at, value, order)
#define atomic_compare_exchange_strong_explicit(at, was, is, then, otherwise) \
	BETWEEN_EXCHANGE(strong, 0, at, was, is, then, otherwise)
#define atomic_compare_exchange_weak_explicit(at, was, is, then, otherwise) \
	BETWEEN_EXCHANGE(weak, 1, at, was, is, then, otherwise)

#endif
