/* The program's own malloc: counts what is allocated, and can fail the n-th time. Under a sanitizer, which has one too, and
 * with a libc that does not let us, it neither counts nor fails: ALLOCATIONS_COUNTED says so. After t.h. */
#ifndef ALLOCATIONS_H
#define ALLOCATIONS_H

#if defined(__GLIBC__) && !T_SANITIZED
#define ALLOCATIONS_COUNTED 1
#else
#define ALLOCATIONS_COUNTED 0
#endif

static struct {
	_Atomic long living; /* allocations not freed */
	_Atomic int calls;   /* since last set to 0 */
	int fail_at;         /* which of those calls fails; 0: none */
	bool for_good;       /* and all that follow */
} allocations;

#if ALLOCATIONS_COUNTED

#define ALLOCATIONS_OURS __attribute__((visibility("default"))) /* for libc too */

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *old, size_t bytes);
void __libc_free(void *memory);

static inline bool allocation_fails(void)
{
	int call = atomic_fetch_add(&allocations.calls, 1) + 1;

	if (allocations.fail_at == 0 || call < allocations.fail_at || (call > allocations.fail_at && !allocations.for_good))
		return false;
	errno = ENOMEM;
	return true;
}

static inline void *allocation_counted(void *memory)
{
	if (memory)
		atomic_fetch_add(&allocations.living, 1);
	return memory;
}

ALLOCATIONS_OURS void *malloc(size_t bytes)
{
	return allocation_fails() ? NULL : allocation_counted(__libc_malloc(bytes));
}

ALLOCATIONS_OURS void *calloc(size_t n, size_t bytes)
{
	return allocation_fails() ? NULL : allocation_counted(__libc_calloc(n, bytes));
}

ALLOCATIONS_OURS void *realloc(void *old, size_t bytes)
{
	if (allocation_fails())
		return NULL;
	void *memory = __libc_realloc(old, bytes);
	return old ? memory : allocation_counted(memory);
}

ALLOCATIONS_OURS void free(void *memory)
{
	if (memory)
		atomic_fetch_sub(&allocations.living, 1);
	__libc_free(memory);
}

#endif
#endif
