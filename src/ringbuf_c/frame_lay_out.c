/* Laying out a frame. All arrays are known beforehand, so one call writes header and schema; a dict of arrays has no values. */
#define _GNU_SOURCE
#include "frame.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define ALIGNMENT 64u
#define SIZE_LIMIT (UINT64_C(1) << 62) /* of an array, and of all: sums of two do not overflow */

/* The bytes of one element and their alignment; 0 for what is not among the dtypes of ringbuf_frame.h. */
static uint64_t item_bytes(const char *dtype, uint64_t *alignment)
{
	static const struct {
		char kind;
		uint64_t sizes; /* those that there are, all powers of two */
	} kinds[] = {{'b', 1}, {'i', 1 | 2 | 4 | 8}, {'u', 1 | 2 | 4 | 8}, {'f', 2 | 4 | 8 | 16}, {'c', 8 | 16 | 32}};
	uint64_t bytes = 0;

	if (!dtype[0] || !strchr("<>|", dtype[0]) || !dtype[1] || !dtype[2])
		return 0;
	for (const char *digit = dtype + 2; *digit; digit++) {
		if (*digit < '0' || *digit > '9' || digit > dtype + 10)
			return 0;
		bytes = bytes * 10 + (uint64_t)(*digit - '0');
	}
	*alignment = 1;
	if (dtype[1] == 'S' || dtype[1] == 'V')
		return bytes;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (kinds[i].kind == dtype[1] && (bytes & (bytes - 1)) == 0 && (bytes & kinds[i].sizes)) {
			*alignment = dtype[1] == 'c' ? bytes / 2 : bytes;
			return bytes;
		}
	return 0;
}

int rb_size_array(struct rb_array *array, uint64_t *alignment)
{
	uint64_t bytes = item_bytes(array->dtype, alignment);
	bool empty = false;

	if (!bytes || array->ndim > RB_NDIM_MAX)
		return -EINVAL;
	for (uint32_t i = 0; i < array->ndim; i++) {
		if (__builtin_mul_overflow(bytes, array->shape[i] ? array->shape[i] : 1, &bytes) || bytes > SIZE_LIMIT)
			return -EOVERFLOW;
		empty |= array->shape[i] == 0;
	}
	array->bytes = empty ? 0 : bytes;
	return 0;
}

static uint64_t round_up(uint64_t bytes)
{
	return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static bool is_name(const char *name)
{
	for (; *name; name++)
		if (*name < ' ' || *name > '~' || *name == '"' || *name == '\\')
			return false;
	return true;
}

/* Check what the caller has set, and work out all sizes, of which *end is the sum. */
static int size_arrays(struct rb_array *arrays, uint32_t count, uint64_t *end)
{
	uint64_t alignment;

	for (uint32_t i = 0; i < count; i++) {
		if (!memchr(arrays[i].dtype, 0, RB_DTYPE_MAX) || !arrays[i].name || !is_name(arrays[i].name))
			return -EINVAL;
		for (uint32_t j = 0; j < i; j++)
			if (strcmp(arrays[i].name, arrays[j].name) == 0)
				return -EINVAL;
		int rc = rb_size_array(&arrays[i], &alignment);
		if (rc)
			return rc;
		*end += round_up(arrays[i].bytes);
		if (*end > SIZE_LIMIT)
			return -EOVERFLOW;
	}
	return 0;
}

/* Text that is counted, and written as far as there is a place for it. */
struct text {
	char *to; /* NULL: only counted */
	uint64_t length;
};

static void add(struct text *text, const char *part)
{
	size_t length = strlen(part);

	if (text->to)
		memcpy(text->to + text->length, part, length);
	text->length += length;
}

static void add_number(struct text *text, uint64_t number)
{
	char digits[21];

	snprintf(digits, sizeof(digits), "%llu", (unsigned long long)number);
	add(text, digits);
}

static uint64_t write_schema(char *to, const struct rb_array *arrays, uint32_t count)
{
	struct text text = {to, 0};
	uint64_t offset = sizeof(struct rb_frame_header);

	add(&text, "[[\"dict\",[");
	for (uint32_t i = 0; i < count; i++) {
		add(&text, i ? ",\"" : "\"");
		add(&text, arrays[i].name);
		add(&text, "\"");
	}
	add(&text, "]");
	for (uint32_t i = 0; i < count; i++)
		add(&text, ",\"a\"");
	add(&text, "],[");
	for (uint32_t i = 0; i < count; i++) {
		add(&text, i ? ",[\"" : "[\"");
		add(&text, arrays[i].dtype);
		add(&text, "\",[");
		for (uint32_t d = 0; d < arrays[i].ndim; d++) {
			add(&text, d ? "," : "");
			add_number(&text, arrays[i].shape[d]);
		}
		add(&text, "],");
		add_number(&text, offset);
		add(&text, "]");
		offset += round_up(arrays[i].bytes);
	}
	add(&text, "]]");
	return text.length;
}

int rb_frame_lay_out(void *buffer, uint64_t capacity, struct rb_array *arrays, uint32_t count, uint64_t *bytes)
{
	struct rb_frame_header header = {.version = RB_FRAME_VERSION, .tail = sizeof(struct rb_frame_header)};
	int rc = size_arrays(arrays, count, &header.tail);

	if (rc)
		return rc;
	header.schema_bytes = write_schema(NULL, arrays, count);
	if (header.schema_bytes > RB_FRAME_SCHEMA_MAX)
		return -E2BIG;
	*bytes = header.frame_bytes = header.tail + header.schema_bytes;
	if (*bytes > capacity)
		return -EMSGSIZE;
	write_schema((char *)buffer + header.tail, arrays, count);
	memcpy(header.magic, RB_FRAME_MAGIC, sizeof(header.magic));
	memcpy(buffer, &header, sizeof(header));
	char *data = (char *)buffer + sizeof(struct rb_frame_header);
	for (uint32_t i = 0; i < count; i++) {
		arrays[i].data = data;
		data += round_up(arrays[i].bytes);
	}
	return 0;
}
