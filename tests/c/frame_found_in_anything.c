/* Whatever the bytes are: an array that is found in a frame lies inside of it, and nothing outside is read (the frame ends where
 * its memory does, for a sanitizer to see). */
#include "t.h"

#include "include/ringbuf_frame.h"

static const char *const schemas[] = {
	"[[\"dict\",[\"image\",\"a/b~\"],\"a\",\"a\"],[[\"|u1\",[2,3],64],[\"<f8\",[4],128]]]",
	"[[\"tuple\",\"i\",[\"named\",\"m\",\"Point\",[\"x\",\"y\"],\"a\",\"s\"],[\"T\",\"float32\",0],[\"T\",\"float32\",1,1,0]],"
	"[[\"<i4\",[],64],[\"<f4\",[2,2],128],[\"<f4\",[2,2],192]]]",
	"[[\"list\",[\"p\",2],[\"list*\",\"i\",3],[\"x\",\"<f4\",\"\"],[\"ordered\",[[\"i\",\"0x1\"],\"k\\\"\",\"z\"],\"n\",\"a\",\"a\"]],"
	"[[\"|S5\",[1],64],[\"|V3\",[2],70],[\"<c16\",[1],128],[[\"struct\",4,0],[1],192]]]",
	"[[\"list\",\"a\",\"a\",\"a\"],[[\"<f8\",[1],68],[\"|u1\",[257],64],[\"<c16\",[1],72]]]",
	"[[\"dict\",[\"q\",\"r\",\"s\"],[\"list\",\"a\",[\"p\",1]],[\"data\",\"m\",\"C\",[\"x\"],\"a\"],\"a\"],"
	"[[\"|u1\",[1],64],[\"|u1\",[1],65],[\"|u1\",[1],66],[\"|u1\",[1],67]]]",
	"[[\"list\",[\"p\",18446744073709551615],[\"p\",1],\"a\"],[[\"|u1\",[1],64]]]",
	"[[\"list\",\"a\",\"a\",\"a\",\"a\"],[[\"|u1\",[1099511627776,1099511627776],64],"
	"[\"|u1\",[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],64],[\"|u1\",[18446744073709551616],64],[\"|u1\",[99999999999999999999999],64]]]",
};
static const char *const paths[] = {"",   "/image", "/a~1b~0", "/a~1b", "/a~", "/0",  "/1/x",   "/1/y",  "/2",   "/3",
				    "/4", "/0/0",   "/1/z",    "/3/k",  "/3/z", "/00", "/image/0", "/1/x/", "/imag", "/3/1"};

static unsigned found, refused;

static void put64(char *at, uint64_t number)
{
	memcpy(at, &number, sizeof(number));
}

/* A frame with room for 256 bytes of arrays, at the end of a block of its own. */
static char *make(const char *schema, size_t *bytes)
{
	size_t length = strlen(schema);
	char *frame = calloc(1, *bytes = 64 + 256 + length);

	t_check(frame);
	memcpy(frame, "rb-frame", 8);
	put64(frame + 8, 1);
	put64(frame + 16, *bytes);
	put64(frame + 24, 64 + 256);
	put64(frame + 40, length);
	memcpy(frame + 64 + 256, schema, length);
	return frame;
}

static void look(const char *frame, size_t bytes)
{
	for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
		struct rb_array array = {.name = "mine"};
		int rc = rb_frame_find(frame, bytes, paths[i], &array);

		t_check(rc == 0 || rc == -ENOENT || rc == -ENOTSUP || rc == -EBADMSG);
		found += rc == 0;
		refused += rc == -EBADMSG;
		if (rc)
			continue;
		const char *data = array.data;
		t_check(data >= frame && array.bytes <= bytes && data + array.bytes <= frame + bytes);
		t_check(array.ndim <= RB_NDIM_MAX && memchr(array.dtype, 0, RB_DTYPE_MAX));
		t_equal(strcmp(array.name, "mine"), 0);
	}
}

static void expect(unsigned schema, const char *path, int want, uint64_t want_bytes, long want_offset)
{
	size_t bytes;
	char *frame = make(schemas[schema], &bytes);
	struct rb_array array = {0};

	snprintf(t_context, sizeof(t_context), "schema %u, path '%s': ", schema, path);
	t_equal(rb_frame_find(frame, bytes, path, &array), want);
	if (want == 0) {
		t_equal(array.bytes, want_bytes);
		t_equal((char *)array.data - frame, want_offset);
	}
	t_context[0] = 0;
	free(frame);
}

static void check_intact(void)
{
	expect(0, "/image", 0, 6, 64);
	expect(0, "/a~1b~0", 0, 32, 128);
	expect(0, "/a~1b", -ENOENT, 0, 0);
	expect(0, "/image/0", -ENOENT, 0, 0);
	expect(0, "", -ENOTSUP, 0, 0);
	expect(0, "image", -EINVAL, 0, 0);
	expect(1, "/0", -ENOTSUP, 0, 0);
	expect(1, "/1/x", 0, 4, 64);
	expect(1, "/1/y", -ENOTSUP, 0, 0);
	expect(1, "/2", 0, 16, 128);
	expect(1, "/3", -ENOTSUP, 0, 0); /* its dimensions lie in another order */
	expect(1, "/02", -ENOENT, 0, 0);
	expect(2, "/0", -ENOTSUP, 0, 0);
	expect(2, "/1", -ENOTSUP, 0, 0);
	expect(2, "/3/k\"", -ENOENT, 0, 0); /* an escape in the key */
	expect(2, "/3/z", -ENOTSUP, 0, 0); /* a structured dtype */
	expect(3, "/0", -EBADMSG, 0, 0);   /* not aligned */
	expect(3, "/1", -EBADMSG, 0, 0);   /* ends behind the tail */
	expect(3, "/2", 0, 16, 72);        /* a complex number is aligned as its halves are */
	expect(4, "/r/x", 0, 1, 66);
	expect(4, "/s", 0, 1, 67);
	expect(5, "/2", -EBADMSG, 0, 0); /* more arrays than can be counted */
	expect(6, "/0", -EBADMSG, 0, 0); /* more bytes than can be counted */
	expect(6, "/1", -ENOTSUP, 0, 0); /* 17 dimensions */
	expect(6, "/2", -EBADMSG, 0, 0);
	expect(6, "/3", -EBADMSG, 0, 0);
}

static void check_nested(unsigned depth, int want)
{
	char schema[1000], *at = schema;
	struct rb_array array = {0};
	size_t bytes;

	at += sprintf(at, "[");
	for (unsigned i = 0; i < depth; i++)
		at += sprintf(at, "[\"list\",");
	at += sprintf(at, "\"a\"");
	for (unsigned i = 0; i < depth; i++)
		at += sprintf(at, "]");
	sprintf(at, ",[[\"|u1\",[1],64]]]");
	char *frame = make(schema, &bytes);
	t_equal(rb_frame_find(frame, bytes, "/x", &array), want);
	free(frame);
}

/* Each word of the header, with sizes that contradict the others or overflow with them. */
static void check_headers(void)
{
	size_t bytes;
	char *frame = make(schemas[0], &bytes);

	for (size_t word = 0; word < 8; word++) {
		const uint64_t others[] = {0, 1, 63, 64, bytes - 1, bytes + 1, UINT64_C(1) << 20, UINT64_C(1) << 63, UINT64_MAX};
		uint64_t was;

		memcpy(&was, frame + 8 * word, sizeof(was));
		for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++) {
			put64(frame + 8 * word, others[i]);
			look(frame, bytes);
		}
		put64(frame + 8 * word, was);
	}
	free(frame);
}

int main(void)
{
	check_intact();
	check_nested(64, -ENOENT);
	check_nested(65, -EBADMSG);
	check_headers();
	for (size_t i = 0; i < sizeof(schemas) / sizeof(*schemas); i++) {
		size_t bytes;
		char *frame = make(schemas[i], &bytes);

		for (size_t end = 0; end < bytes; end++) { /* cut short; with and without a header that knows */
			char *cut = malloc(end ? end : 1);

			t_check(cut);
			memcpy(cut, frame, end);
			look(cut, end);
			if (end >= 64 + 256) {
				put64(cut + 16, end);
				put64(cut + 40, end - 64 - 256);
				look(cut, end);
			}
			free(cut);
		}
		for (size_t at = 0; at < bytes; at++) {
			const char *others = "\"[],\\0\x7f\xff/~aT1";

			for (; *others; others++) {
				char was = frame[at];

				frame[at] = *others;
				look(frame, bytes);
				frame[at] = was;
			}
			if (at == 64)
				at = 64 + 255; /* what is in arrays is not looked at */
		}
		free(frame);
	}
	t_check(found > 1000 && refused > 1000);
	return 0;
}
