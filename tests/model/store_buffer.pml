/* Why prepare:B and notify:A are fences: the event count's first and last steps on a machine with store buffers.
 *
 * A store goes into its process's buffer and reaches memory at any later moment; the process itself reads its buffer first. A
 * fence waits until the buffer is empty. A waiter sets the flag, then looks; a notifier makes the thing, then
 * looks at the flag. (On x86 the compare-and-swaps before are fences themselves; on ARM they are not, see notify:A.)
 *
 * Shown: one of the two sees the other: wait.h's key invariant. Left out: every other order that a weaker machine may
 * change (sleep.cpp). Mutants: NO_FENCE_BEFORE_THE_LOOK, NO_FENCE_BEFORE_THE_FLAG. */

bool flag, thing;
bool flag_buffered, thing_buffered;
bool waiter_sees, notifier_sees;
byte through;
hidden byte one_sees_the_other;

active proctype waiter()
{
	flag_buffered = true;                                                   /* prepare:C */
#ifndef NO_FENCE_BEFORE_THE_LOOK
	(!flag_buffered);                                                       /* prepare:B */
#endif
	waiter_sees = thing;
	through++
}

active proctype notifier()
{
	thing_buffered = true;                                                  /* the change */
#ifndef NO_FENCE_BEFORE_THE_FLAG
	(!thing_buffered);                                                      /* notify:A */
#endif
	notifier_sees = flag;                                                   /* notify:B */
	through++
}

active proctype memory()
{
	do
	:: d_step { flag_buffered -> flag = true; flag_buffered = false }
	:: d_step { thing_buffered -> thing = true; thing_buffered = false }
	:: through == 2 && !flag_buffered && !thing_buffered -> break
	od;
	one_sees_the_other = waiter_sees || notifier_sees;
	assert(one_sees_the_other)
}
