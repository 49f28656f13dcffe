/* Copy past the cache: for ideal_nt.py. */
#include <emmintrin.h>
#include <stddef.h>
#include <string.h>

/* `to` is aligned to 16 bytes; the stores are ordered before whatever the caller does next. */
void stream(char *to, const char *from, size_t bytes)
{
	size_t done = 0;

	for (; done + 64 <= bytes; done += 64) {
		__m128i a = _mm_loadu_si128((const __m128i *)(from + done));
		__m128i b = _mm_loadu_si128((const __m128i *)(from + done + 16));
		__m128i c = _mm_loadu_si128((const __m128i *)(from + done + 32));
		__m128i d = _mm_loadu_si128((const __m128i *)(from + done + 48));

		_mm_stream_si128((__m128i *)(to + done), a);
		_mm_stream_si128((__m128i *)(to + done + 16), b);
		_mm_stream_si128((__m128i *)(to + done + 32), c);
		_mm_stream_si128((__m128i *)(to + done + 48), d);
	}
	memcpy(to + done, from + done, bytes - done);
	_mm_sfence();
}
