/* What is laid out is found again, aligned and without overlap; what cannot be laid out is refused with nothing written. */
#include "t.h"

#include "include/ringbuf_frame.h"

static char buffer[4096] __attribute__((aligned(64)));
static uint64_t bytes;

static int lay_out(struct rb_array *arrays, uint32_t count)
{
	return rb_frame_lay_out(buffer, sizeof(buffer), arrays, count, &bytes);
}

static void refused(struct rb_array array, int want)
{
	struct rb_array arrays[2] = {{.name = "first", .dtype = "|u1"}, array};

	memset(buffer, 0x55, sizeof(buffer));
	snprintf(t_context, sizeof(t_context), "name %s, dtype %.16s: ", array.name ? array.name : "NULL", array.dtype);
	t_equal(lay_out(arrays, 2), want);
	for (size_t i = 0; i < sizeof(buffer); i++)
		t_equal(buffer[i], 0x55);
	t_context[0] = 0;
}

static void check_found(void)
{
	struct rb_array arrays[] = {
		{.name = "image", .dtype = "|u1", .ndim = 3, .shape = {4, 5, 3}},
		{.name = "empty", .dtype = "<f8", .ndim = 2, .shape = {0, 7}},
		{.name = "a/b~c", .dtype = ">c16", .ndim = 1, .shape = {5}},
		{.name = "time", .dtype = "<i8"},
	};
	const char *paths[] = {"/image", "/empty", "/a~1b~0c", "/time"};
	const uint64_t sizes[] = {60, 0, 80, 8};

	t_equal(lay_out(arrays, 4), 0);
	for (int i = 0; i < 4; i++) {
		struct rb_array out = {0};

		t_equal(rb_frame_find(buffer, bytes, paths[i], &out), 0);
		t_equal((uintptr_t)out.data, (uintptr_t)arrays[i].data);
		t_equal((uintptr_t)out.data % 64, 0);
		t_equal(out.bytes, sizes[i]);
		t_equal(arrays[i].bytes, sizes[i]);
		t_equal(out.ndim, arrays[i].ndim);
		t_equal(memcmp(out.shape, arrays[i].shape, sizeof(out.shape)), 0);
		t_equal(strcmp(out.dtype, arrays[i].dtype), 0);
		t_check((char *)out.data + out.bytes <= buffer + bytes);
		t_check(i == 0 || (char *)out.data >= (char *)arrays[i - 1].data + arrays[i - 1].bytes);
	}
}

static void check_too_large(void)
{
	struct rb_array array = {.name = "x", .dtype = "|u1", .ndim = 1, .shape = {sizeof(buffer)}};
	uint64_t needed;

	t_equal(rb_frame_lay_out(NULL, 0, &array, 1, &needed), -EMSGSIZE);
	t_check(needed > sizeof(buffer) && needed <= sizeof(buffer) + RB_FRAME_ROOM);
	array.shape[0] = sizeof(buffer) / 2;
	t_equal(rb_frame_lay_out(NULL, 0, &array, 1, &needed), -EMSGSIZE);
	t_equal(rb_frame_lay_out(buffer, needed - 1, &array, 1, &needed), -EMSGSIZE);
	t_equal(rb_frame_lay_out(buffer, needed, &array, 1, &bytes), 0);
	t_equal(bytes, needed);
	t_equal(lay_out(NULL, 0), 0); /* an empty dict */

	static struct rb_array many[3000];
	static char names[3000][400];
	for (size_t i = 0; i < 3000; i++) {
		snprintf(names[i], sizeof(names[i]), "%0350zu", i);
		many[i] = (struct rb_array){.name = names[i], .dtype = "|u1"};
	}
	t_equal(rb_frame_lay_out(NULL, 0, many, 300, &needed), -EMSGSIZE);
	t_equal(rb_frame_lay_out(NULL, 0, many, 3000, &needed), -E2BIG);
}

int main(void)
{
	check_found();
	check_too_large();
	const char *dtypes[] = {"", "u1", "<", "<f", "<f3", "<x4", "<i16", "<c4", "|b2", "O", "|O8", "<U4", "<M8[ns]", "<f4 ", "<f-4",
				"|S0", "<f0", "|S9999999999", "<i9999999999999"};
	for (size_t i = 0; i < sizeof(dtypes) / sizeof(*dtypes); i++) {
		struct rb_array array = {.name = "x"};

		strcpy(array.dtype, dtypes[i]);
		refused(array, -EINVAL);
	}
	refused((struct rb_array){.name = "x", .dtype = {'<', 'f', '4', '4', '4', '4', '4', '4', '4', '4', '4', '4', '4', '4', '4', '4'}}, -EINVAL);
	const char *names[] = {NULL, "a\"b", "a\\b", "a\nb", "\x7f", "\xc3\xa9", "first"};
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		refused((struct rb_array){.name = names[i], .dtype = "|u1"}, -EINVAL);
	refused((struct rb_array){.name = "x", .dtype = "|u1", .ndim = RB_NDIM_MAX + 1}, -EINVAL);
	refused((struct rb_array){.name = "x", .dtype = "<f8", .ndim = 2, .shape = {UINT64_C(1) << 32, UINT64_C(1) << 32}}, -EOVERFLOW);
	refused((struct rb_array){.name = "x", .dtype = "<f8", .ndim = 2, .shape = {0, UINT64_MAX}}, -EOVERFLOW);
	refused((struct rb_array){.name = "x", .dtype = "|u1", .ndim = 1, .shape = {UINT64_C(1) << 62}}, -EOVERFLOW);
	refused((struct rb_array){.name = "x", .dtype = "|u1", .ndim = 1, .shape = {UINT64_MAX}}, -EOVERFLOW);
	refused((struct rb_array){.name = "x", .dtype = "|u1", .ndim = 1, .shape = {UINT64_C(1) << 40}}, -EMSGSIZE);
	return 0;
}
