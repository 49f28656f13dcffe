/* rb_copy_streaming copies every byte and touches no other, at every length and alignment, and past no end of a page; by what this
 * processor has, and by what all have. */
#include "t.h"

#include "copy.h"

#define LINE 64
#define LONGEST (T_SANITIZED ? 600 : 1100)
#define GUARD 64

static void (*copy)(void *to, const void *from, uint64_t bytes);

static uint8_t pattern(uint64_t i)
{
	return (uint8_t)(i * 167 + (i >> 8) * 31 + 1);
}

/* Two pages to use, with forbidden ones on both sides. */
static unsigned char *fenced(size_t page)
{
	unsigned char *memory = mmap(NULL, 4 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	t_check(memory != MAP_FAILED);
	t_equal(mprotect(memory + page, 2 * page, PROT_READ | PROT_WRITE), 0);
	return memory + page;
}

static void copy_and_check(unsigned char *to, const unsigned char *from, size_t bytes)
{
	memset(to - GUARD, 0xee, bytes + 2 * GUARD);
	copy(to, from, bytes);
	for (int i = 1; i <= GUARD; i++)
		if (to[-i] != 0xee || to[bytes + (size_t)i - 1] != 0xee)
			t_die(__FILE__, __LINE__, "%zu bytes to %p: a byte outside was written", bytes, (void *)to);
	if (memcmp(to, from, bytes) != 0)
		t_die(__FILE__, __LINE__, "%zu bytes from %p to %p: not copied", bytes, (const void *)from, (void *)to);
}

static void at_every_alignment(void)
{
	static const size_t from_offsets[] = { 0, 1, 8, 15, 16, 33, 63 };
	static unsigned char from[4096], to[4096] __attribute__((aligned(LINE)));

	for (size_t i = 0; i < sizeof(from); i++)
		from[i] = pattern(i);
	for (size_t f = 0; f < sizeof(from_offsets) / sizeof(from_offsets[0]); f++)
		for (size_t t = 0; t < LINE; t++)
			for (size_t bytes = 0; bytes <= LONGEST; bytes += T_SANITIZED && bytes > 300 ? 7 : 1)
				copy_and_check(to + 2 * GUARD + t, from + from_offsets[f], bytes);
}

/* Sources and destinations that begin or end where a page does that must not be touched. */
static void at_the_edges(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE), room = 2 * page;
	unsigned char *from = fenced(page), *to = fenced(page);

	for (size_t i = 0; i < room; i++)
		from[i] = pattern(i);
	for (size_t bytes = 0; bytes <= LONGEST; bytes++) {
		copy(to, from + room - bytes, bytes);
		t_equal(memcmp(to, from + room - bytes, bytes), 0);
		copy(to + room - bytes, from, bytes);
		t_equal(memcmp(to + room - bytes, from, bytes), 0);
	}
	copy(to, from, room);
	t_equal(memcmp(to, from, room), 0);
}

static void at_size(size_t bytes)
{
	unsigned char *from = malloc(bytes + 8 * LINE), *to = malloc(bytes + 8 * LINE);

	t_check(from && to);
	for (size_t i = 0; i < bytes + 8 * LINE; i++)
		from[i] = pattern(i);
	copy_and_check(to + GUARD + 5, from + 3, bytes);
	copy_and_check(to + GUARD, from, bytes);
	free(from);
	free(to);
}

int main(void)
{
	copy = rb_copy_streaming;
	at_every_alignment();
	at_the_edges();
	at_size((24 << 20) + 13);
	copy = rb_copy_portably;
	at_every_alignment();
	at_the_edges();
	at_size((24 << 20) + 13);
	return 0;
}
