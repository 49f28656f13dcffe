/* What frame_lay_out.c and frame_find.c share: the fixed parts of a frame, as src/ringbuf/frame.py draws it.
 *
 *   | header: eight words | array | pad | array | pad ... | values | schema: [tree, [[dtype, shape, offset], ...]] |
 *                         each at a multiple of 64        tail                                      frame_bytes */
#ifndef RB_FRAME_H
#define RB_FRAME_H

#include "include/ringbuf_frame.h"
#include "platform.h"

#define RB_FRAME_MAGIC "rb-frame" /* without the zero */
#define RB_FRAME_VERSION 1
#define RB_FRAME_SCHEMA_MAX (UINT64_C(1) << 20)

struct rb_frame_header {
	char magic[8];
	uint64_t version, frame_bytes, tail, values_bytes, schema_bytes, spare, spare2;
};
_Static_assert(sizeof(struct rb_frame_header) == 64, "frame.py: _HEADER");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "frames are little endian, and so is what is written here");

/* Set the bytes of an array from its dtype and shape. As numpy does, take a dimension of 0 for one when looking for an overflow.
 * -EINVAL: a dtype that is not among those of ringbuf_frame.h, or too many dimensions. -EOVERFLOW: more than 62 bits. */
RB_PRIVATE int rb_size_array(struct rb_array *array, uint64_t *alignment);

#endif
