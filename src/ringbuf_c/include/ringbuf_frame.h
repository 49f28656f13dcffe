/* ringbuf_frame: what a slot holds where Python is at the other end of the ring: arrays, each with a name, a dtype and a shape.
 *
 *   producer:  rb_claim -> rb_frame_lay_out -> fill arrays[i].data -> rb_commit      ring.get() gives {name: array, ...}
 *   consumer:  rb_take  -> rb_frame_find "/image" -> read its data -> rb_release     ring.put({"image": array, ...})
 *
 * Neither call allocates, keeps anything, or makes a system call. Both return 0 or a negative errno. */
#ifndef RINGBUF_FRAME_H
#define RINGBUF_FRAME_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RB_FRAME_ROOM 4096u /* what a slot takes beyond its arrays' bytes: who makes a ring adds it to slot_bytes, as Python does */
#define RB_NDIM_MAX 16u     /* dimensions of an array */
#define RB_DTYPE_MAX 16u    /* bytes of a dtype, with the zero that ends it */

struct rb_array {
	const char *name;            /* its key in Python's dict; printable ASCII without " and \ */
	char dtype[RB_DTYPE_MAX];    /* as numpy's dtype.str has it: "|b1", "|u1", "<i8", "<f4", "<c16", "|S16", "|V8" */
	uint32_t ndim;               /* 0: a single value */
	uint64_t shape[RB_NDIM_MAX]; /* C order: the last dimension is the one that lies together */
	void *data;                  /* where it lies in the slot, at a multiple of 64 if it was laid out here */
	uint64_t bytes;              /* how many */
};

/* Make a frame of `capacity` bytes at `buffer` (slot.data and slot.bytes of a claimed slot, page aligned), of arrays that the
 * caller has given names, dtypes and shapes; their `data` and `bytes` are set. What is in them is the caller's to write, before
 * or after. *bytes is what to hand to rb_commit(). Python reads a dict of the arrays, in this order.
 * -EINVAL     a name, dtype or number of dimensions is not as above, or a name comes twice
 * -EMSGSIZE   it does not fit; *bytes says how much it takes, and `buffer`, which may be NULL if `capacity` is 0, is as it was
 * -EOVERFLOW  the sizes do not fit 62 bits
 * -E2BIG      more arrays than readers accept: describing them takes more than 1 MiB */
int rb_frame_lay_out(void *buffer, uint64_t capacity, struct rb_array *arrays, uint32_t count, uint64_t *bytes);

/* Find an array in a frame of `bytes` bytes (slot.data and slot.bytes of a taken slot), whoever wrote it. Its name is left alone.
 * `path` is a JSON pointer: "" is all of the batch, "/image" its key "image", "/0/x" the attribute or key "x" of its first
 * element; ~1 stands for a / in a key, ~0 for a ~. Keys that are not text lead nowhere, nor do those with control characters,
 * " or \ in them. A torch tensor is found as the array it was sent as: one of bfloat16 has the dtype "<i2".
 * Nothing outside of the frame is read, and what is set is consistent, also if the bytes are not a frame or change meanwhile.
 * -ENOENT     the path leads nowhere
 * -ENOTSUP    what is there is no array (a number, text, dict ...), or one that struct rb_array cannot describe: with a structured
 *             dtype or one of another kind (U, M, m, ml_dtypes), more dimensions, or a tensor whose dimensions lie in another order
 * -EINVAL     a path that is not empty and does not begin with a /
 * -EBADMSG    not an intact frame of this version */
int rb_frame_find(const void *frame, uint64_t bytes, const char *path, struct rb_array *out);

#ifdef __cplusplus
}
#endif
#endif
