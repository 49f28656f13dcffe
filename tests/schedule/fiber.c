/* See fiber.h. swapcontext() makes a system call for the signal mask each time, which would be most of a sweep's time; so
 * where we know the machine we do without. */
#include "fiber.h"

#include <stdint.h>
#include <string.h>

static struct fiber *running;

#if defined(__x86_64__) && !defined(FIBER_PORTABLE)

static unsigned char *outside;

/* Push what a call preserves, change stacks, pop the other's. */
void fiber_switch(unsigned char **from, unsigned char *to);
__asm__(".text\n"
	".globl fiber_switch\n"
	".hidden fiber_switch\n"
	".type fiber_switch, @function\n"
	"fiber_switch:\n"
	"	pushq %rbp\n"
	"	pushq %rbx\n"
	"	pushq %r12\n"
	"	pushq %r13\n"
	"	pushq %r14\n"
	"	pushq %r15\n"
	"	movq %rsp, (%rdi)\n"
	"	movq %rsi, %rsp\n"
	"	popq %r15\n"
	"	popq %r14\n"
	"	popq %r13\n"
	"	popq %r12\n"
	"	popq %rbx\n"
	"	popq %rbp\n"
	"	ret\n"
	".size fiber_switch, .-fiber_switch\n");

#define SAVED 6 /* registers */

void fiber_make(struct fiber *fiber, unsigned char *stack, void (*run)(void))
{
	uint64_t entry = (uint64_t)(uintptr_t)run;

	fiber->top = stack + FIBER_STACK_BYTES;
	/* As if called: the saved registers, where to go on, and the return address that nobody uses. */
	fiber->sp = fiber->top - (SAVED + 2) * sizeof(uint64_t);
	memset(fiber->sp, 0, (size_t)(fiber->top - fiber->sp));
	memcpy(fiber->sp + SAVED * sizeof(uint64_t), &entry, sizeof(entry));
}

void fiber_enter(struct fiber *fiber)
{
	running = fiber;
	fiber_switch(&outside, fiber->sp);
}

void fiber_leave(void)
{
	fiber_switch(&running->sp, outside);
}

#else

#include <ucontext.h>

#define BELOW 512 /* frames of swapcontext() itself */

static ucontext_t outside;

/* The context lies at the top of the fiber's own stack, so that it is copied along. */
static ucontext_t *context_of(const struct fiber *fiber)
{
	return (ucontext_t *)(void *)(fiber->top - (sizeof(ucontext_t) + 63) / 64 * 64);
}

void fiber_make(struct fiber *fiber, unsigned char *stack, void (*run)(void))
{
	fiber->top = stack + FIBER_STACK_BYTES;
	ucontext_t *context = context_of(fiber);
	getcontext(context);
	context->uc_stack.ss_sp = stack;
	context->uc_stack.ss_size = (size_t)((unsigned char *)context - stack);
	makecontext(context, run, 0);
	fiber->sp = (unsigned char *)context - BELOW;
}

void fiber_enter(struct fiber *fiber)
{
	running = fiber;
	swapcontext(&outside, context_of(fiber));
}

void fiber_leave(void)
{
	struct fiber *fiber = running;

	fiber->sp = (unsigned char *)__builtin_frame_address(0) - BELOW;
	swapcontext(context_of(fiber), &outside);
}

#endif
