/* A fiber: a second stack in one thread. All that it is lies between `sp` and `top`, and may be copied away and back. */
#ifndef FIBER_H
#define FIBER_H

#define FIBER_STACK_BYTES 65536 /* only a failure's message needs so much */

struct fiber {
	unsigned char *sp; /* while it does not run */
	unsigned char *top;
};

/* A fiber that calls run() when it is first entered. run() does not return; the stack is aligned to 16. */
void fiber_make(struct fiber *fiber, unsigned char *stack, void (*run)(void));

/* Run it until it leaves. Not from within a fiber. */
void fiber_enter(struct fiber *fiber);

/* Go back to where the running fiber was entered. */
void fiber_leave(void);

#endif
