/* Copying into a slot that is larger than the caches.
 *
 * An ordinary store first reads the line it is about to overwrite; for a batch of tens of megabytes that is memory
 * traffic for nothing, and it throws the samples that come next out of the cache. Non-temporal stores write
 * whole lines past the cache: about twice the throughput of memcpy when two cores fill slots at once. They are the
 * wrong choice for a batch that fits the cache, which its consumer would then have to fetch from memory. */
#include "include/ringbuf.h"

#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>

#define LINE 64u

static void copy_lines(unsigned char *to, const unsigned char *from, uint64_t bytes)
{
	for (uint64_t i = 0; i < bytes; i += LINE) {
		const __m128i *line = (const __m128i *)(const void *)(from + i);
		__m128i *dest = (__m128i *)(void *)(to + i);

		_mm_prefetch((const char *)(from + i + 8 * LINE), _MM_HINT_NTA);
		__m128i a = _mm_loadu_si128(line), b = _mm_loadu_si128(line + 1);
		__m128i c = _mm_loadu_si128(line + 2), d = _mm_loadu_si128(line + 3);
		_mm_stream_si128(dest, a);
		_mm_stream_si128(dest + 1, b);
		_mm_stream_si128(dest + 2, c);
		_mm_stream_si128(dest + 3, d);
	}
	/* Non-temporal stores are not ordered by a later release store: fence them before anybody can commit. */
	_mm_sfence();
}

void rb_copy_streaming(void *to, const void *from, uint64_t bytes)
{
	uint64_t head = -(uintptr_t)to % LINE;

	if (bytes < 4 * LINE) {
		memcpy(to, from, bytes);
		return;
	}
	uint64_t body = (bytes - head) / LINE * LINE;
	memcpy(to, from, head);
	copy_lines((unsigned char *)to + head, (const unsigned char *)from + head, body);
	memcpy((unsigned char *)to + head + body, (const unsigned char *)from + head + body, bytes - head - body);
}

#else

void rb_copy_streaming(void *to, const void *from, uint64_t bytes)
{
	memcpy(to, from, bytes); /* other machines' memcpy knows better than we do */
}

#endif
