/* rb_copy_streaming() is public; this is for its test. */
#ifndef RB_COPY_H
#define RB_COPY_H

#include "include/ringbuf.h"
#include "platform.h"

/* rb_copy_streaming() without what only some processors have. */
RB_PRIVATE void rb_copy_portably(void *to, const void *from, uint64_t bytes);

#endif
