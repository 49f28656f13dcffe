/* ringbuf_frame.h for ctypes: the static library's symbols are hidden in what is linked with it. */
#include <ringbuf_frame.h>

int lay_out(void *buffer, uint64_t capacity, struct rb_array *arrays, uint32_t count, uint64_t *bytes)
{
	return rb_frame_lay_out(buffer, capacity, arrays, count, bytes);
}

int find(const void *frame, uint64_t bytes, const char *path, struct rb_array *out)
{
	return rb_frame_find(frame, bytes, path, out);
}
