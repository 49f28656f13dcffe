/* RB_CRASH_POINT(name): nothing at all, unless built with RINGBUF_CRASH_POINTS; then a call that a test
 * program defines, and in which it may kill, stop or delay the process. */
#ifndef RB_CRASH_POINTS_H
#define RB_CRASH_POINTS_H

enum rb_crash_point {
#define RB_POINT(name, state) RB_AT_##name,
#include "crash_points.def"
#undef RB_POINT
	RB_CRASH_POINT_COUNT
};

#ifdef RINGBUF_CRASH_POINTS
void rb_crash_point(enum rb_crash_point point);
#define RB_CRASH_POINT(name) rb_crash_point(RB_AT_##name)
#else
#define RB_CRASH_POINT(name) ((void)0)
#endif

#endif
