/* Finding an array in a frame: a walk over the tree of its schema with one cursor, that counts the arrays on its way; the n-th
 * "a" is the n-th row of the table. tree.py has the words.
 *
 * The bytes may be anybody's and may change at any moment. So the compiler may not read one twice where the text reads it once
 * (volatile), what was read is checked as read, and a wrong turn ends at the end of the schema at the latest. */
#define _GNU_SOURCE
#include "frame.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define DEPTH_MAX 64u

struct cursor {
	const volatile char *at, *end;
};

static char next(struct cursor *in)
{
	return in->at < in->end ? *in->at++ : 0;
}

static bool eat(struct cursor *in, char c)
{
	if (in->at == in->end || *in->at != c)
		return false;
	in->at++;
	return true;
}

/* A string into `out`, cut short where it is longer; one with an escape in it is none of ours, and left empty. */
static bool read_word(struct cursor *in, char *out, size_t size)
{
	size_t length = 0;
	bool escapes = false;

	if (!eat(in, '"'))
		return false;
	for (char c; (c = next(in)) != '"';) {
		if (c == '\\') {
			escapes = true;
			c = next(in);
		}
		if (!c)
			return false;
		if (length + 1 < size)
			out[length++] = c;
	}
	out[escapes ? 0 : length] = 0;
	return true;
}

static bool read_number(struct cursor *in, uint64_t *number)
{
	const volatile char *start = in->at;
	char c;

	for (*number = 0; in->at < in->end && (c = *in->at) >= '0' && c <= '9'; in->at++)
		if (__builtin_mul_overflow(*number, 10u, number) || __builtin_add_overflow(*number, (uint64_t)(c - '0'), number))
			return false;
	return in->at != start;
}

/* Pass over a value, whatever it is: to where a bracket or a comma follows that is not inside of it. */
static bool skip(struct cursor *in)
{
	uint64_t depth = 0;

	do {
		char c = next(in);

		if (c == '"')
			while ((c = next(in)) && c != '"')
				if (c == '\\')
					next(in);
		if (!c)
			return false;
		depth += c == '[';
		depth -= c == ']'; /* of a bracket that closes nothing: no end is found */
	} while (depth || (in->at < in->end && *in->at != ',' && *in->at != ']'));
	return true;
}

/* The path behind its first step, if that step is this key; NULL if not. The key is a string, or something else, which no step is. */
static const char *behind_key(struct cursor *key, const char *path)
{
	bool same = path;

	path += same; /* a step begins with a / */
	if (!eat(key, '"')) {
		skip(key);
		return NULL;
	}
	for (char c; (c = next(key)) != '"' && c;) {
		if (c == '\\') {
			next(key);
			same = false;
		} else if (same) {
			char step = *path++;

			if (step == '~')
				step = *path == '0' ? '~' : *path == '1' ? '/' : 0, path += *path != 0;
			else if (step == '/')
				step = 0;
			same = step == c;
		}
	}
	return same && (!*path || *path == '/') ? path : NULL;
}

static const char *behind_index(uint64_t index, const char *path)
{
	char step[22];
	int length = snprintf(step, sizeof(step), "/%llu", (unsigned long long)index);

	return path && strncmp(path, step, (size_t)length) == 0 && (!path[length] || path[length] == '/') ? path + length : NULL;
}

/* Look at one node of the tree, whose place is behind `path` (NULL: not on the way). Returns 1 when it is the array that is looked
 * for, and *row its number; 0 when it is not, with all of it passed, and *row further by its arrays; or a negative errno. */
static int walk(struct cursor *in, const char *path, uint64_t *row, unsigned depth)
{
	const bool wanted = path && !*path, leaf = !eat(in, '[');
	struct cursor keys = {NULL, NULL};
	uint64_t arrays = 0;
	char word[8];

	if (depth > DEPTH_MAX || !read_word(in, word, sizeof(word)))
		return -EBADMSG;
	const bool named = strcmp(word, "named") == 0 || strcmp(word, "data") == 0;
	const bool mapping = !leaf && (named || strcmp(word, "dict") == 0 || strcmp(word, "ordered") == 0);
	const bool tensor = !leaf && strcmp(word, "T") == 0;

	if (mapping || (!leaf && (strcmp(word, "list") == 0 || strcmp(word, "tuple") == 0))) {
		if (wanted)
			return -ENOTSUP;
		if (named && !(eat(in, ',') && skip(in) && eat(in, ',') && skip(in)))
			return -EBADMSG;
		if (mapping) {
			bool there = eat(in, ',');

			keys = *in;
			if (!there || !eat(&keys, '[') || !skip(in))
				return -EBADMSG;
		}
		for (uint64_t i = 0; eat(in, ','); i++) {
			if (mapping && i && !eat(&keys, ','))
				return -EBADMSG;
			int rc = walk(in, mapping ? behind_key(&keys, path) : behind_index(i, path), row, depth + 1);
			if (rc)
				return rc;
		}
		return eat(in, ']') ? 0 : -EBADMSG;
	}
	if (leaf || tensor)
		arrays = leaf ? strcmp(word, "a") == 0 : 1;
	else if (strcmp(word, "p") == 0 && (!eat(in, ',') || !read_number(in, &arrays)))
		return -EBADMSG;
	unsigned details = 0;
	for (; !leaf && eat(in, ','); details++)
		if (!skip(in))
			return -EBADMSG;
	if (!leaf && !eat(in, ']'))
		return -EBADMSG;
	if (wanted) /* of a tensor, what follows its dtype and whether it requires a gradient is an order of dimensions */
		return arrays && (leaf || (tensor && details == 2)) ? 1 : -ENOTSUP;
	return __builtin_add_overflow(*row, arrays, row) ? -EBADMSG : 0;
}

/* One row of the table, [dtype, shape, offset]; the array has to end before the tail. */
static int read_row(struct cursor *in, const char *frame, uint64_t tail, struct rb_array *out)
{
	uint64_t offset, alignment;

	if (!eat(in, '['))
		return -EBADMSG;
	if (!read_word(in, out->dtype, sizeof(out->dtype)))
		return in->at < in->end && *in->at == '[' ? -ENOTSUP : -EBADMSG;
	if (!eat(in, ',') || !eat(in, '['))
		return -EBADMSG;
	for (out->ndim = 0; !eat(in, ']'); out->ndim++) {
		if (out->ndim == RB_NDIM_MAX)
			return -ENOTSUP;
		if ((out->ndim && !eat(in, ',')) || !read_number(in, &out->shape[out->ndim]))
			return -EBADMSG;
	}
	if (!eat(in, ',') || !read_number(in, &offset) || !eat(in, ']'))
		return -EBADMSG;
	int rc = rb_size_array(out, &alignment);
	if (rc)
		return rc == -EINVAL ? -ENOTSUP : -EBADMSG;
	if (offset % alignment || offset > tail || out->bytes > tail - offset)
		return -EBADMSG;
	out->data = (void *)(uintptr_t)(frame + offset);
	return 0;
}

int rb_frame_find(const void *frame, uint64_t bytes, const char *path, struct rb_array *out)
{
	struct rb_array found = {.name = out->name};
	struct rb_frame_header header;
	uint64_t row = 0;

	if (*path && *path != '/')
		return -EINVAL;
	if (bytes < sizeof(header))
		return -EBADMSG;
	for (size_t i = 0; i < sizeof(header); i++) /* a copy that nobody else can change */
		((char *)&header)[i] = ((const volatile char *)frame)[i];
	if (memcmp(header.magic, RB_FRAME_MAGIC, sizeof(header.magic)) != 0 || header.version != RB_FRAME_VERSION ||
	    header.spare || header.spare2 || header.tail < sizeof(header) || header.tail > header.frame_bytes || header.frame_bytes > bytes ||
	    header.schema_bytes > RB_FRAME_SCHEMA_MAX || header.schema_bytes > header.frame_bytes - header.tail ||
	    header.values_bytes != header.frame_bytes - header.tail - header.schema_bytes)
		return -EBADMSG;
	const char *end = (const char *)frame + header.frame_bytes;
	struct cursor tree = {end - header.schema_bytes, end};
	if (!eat(&tree, '['))
		return -EBADMSG;
	struct cursor table = tree;
	int rc = walk(&tree, path, &row, 0);
	if (rc < 1)
		return rc ? rc : -ENOENT;
	if (!skip(&table) || !eat(&table, ',') || !eat(&table, '['))
		return -EBADMSG;
	while (row--)
		if (!skip(&table) || !eat(&table, ','))
			return -EBADMSG;
	rc = read_row(&table, frame, header.tail, &found);
	if (rc == 0)
		*out = found;
	return rc;
}
