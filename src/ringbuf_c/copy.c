/* Copying into a slot that is larger than the caches.
 *
 * An ordinary store first reads the line it is about to overwrite; for a batch of tens of megabytes that is memory
 * traffic for nothing, and it throws the samples that come next out of the cache. Non-temporal stores write
 * whole lines past the cache: up to half as fast again as memcpy, for one core and for several that fill slots at once,
 * also where the consumer reads all of the batch. They are the wrong choice for a batch that fits the cache, which its
 * consumer would then have to fetch from memory.
 *
 * A line by one store where the processor has such stores, else by four. Nothing is prefetched by hand: the processor sees
 * what comes next by itself, and prefetching past its caches (NTA) took away a third of the throughput. */
#define _GNU_SOURCE
#include "copy.h"

#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>

#define LINE 64u

typedef void copy_lines(unsigned char *to, const unsigned char *from, uint64_t bytes);

static void lines_by_four(unsigned char *to, const unsigned char *from, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i += LINE) {
		const __m128i *line = (const __m128i *)(const void *)(from + i);
		__m128i *dest = (__m128i *)(void *)(to + i);

		__m128i a = _mm_loadu_si128(line), b = _mm_loadu_si128(line + 1);
		__m128i c = _mm_loadu_si128(line + 2), d = _mm_loadu_si128(line + 3);
		_mm_stream_si128(dest, a);
		_mm_stream_si128(dest + 1, b);
		_mm_stream_si128(dest + 2, c);
		_mm_stream_si128(dest + 3, d);
	}
}

__attribute__((target("avx512f"))) static void lines_at_once(unsigned char *to, const unsigned char *from, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i += LINE)
		_mm512_stream_si512((void *)(to + i), _mm512_loadu_si512(from + i));
}

/* The lines that lie whole in `to` by `lines`, the rest by memcpy. */
static void copy(void *to, const void *from, uint64_t bytes, copy_lines *lines)
{
	uint64_t head = -(uintptr_t)to % LINE;

	if (bytes < 4 * LINE) {
		memcpy(to, from, bytes);
		return;
	}
	uint64_t body = (bytes - head) / LINE * LINE;
	memcpy(to, from, head);
	lines((unsigned char *)to + head, (const unsigned char *)from + head, body);
	/* Non-temporal stores are not ordered by a later release store: fence them before anybody can commit. */
	_mm_sfence();
	memcpy((unsigned char *)to + head + body, (const unsigned char *)from + head + body, bytes - head - body);
}

void rb_copy_portably(void *to, const void *from, uint64_t bytes)
{
	copy(to, from, bytes, lines_by_four);
}

void rb_copy_streaming(void *to, const void *from, uint64_t bytes)
{
	copy(to, from, bytes, __builtin_cpu_supports("avx512f") ? lines_at_once : lines_by_four);
}

#else

void rb_copy_portably(void *to, const void *from, uint64_t bytes)
{
	memcpy(to, from, bytes); /* other machines' memcpy knows better than we do */
}

void rb_copy_streaming(void *to, const void *from, uint64_t bytes)
{
	rb_copy_portably(to, from, bytes);
}

#endif
