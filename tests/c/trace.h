/* Leading a child through a call, one instruction at a time: it is traced (ptrace), so that it stands still after each instruction
 * and system call, and can be killed there as by anybody. Long calls are led from one system call to the next at full
 * speed and by instructions from there. After t.h. */
#ifndef TRACE_H
#define TRACE_H

#include <elf.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>

/* Where the child is, as it says itself in memory that we share: reading it costs no system call. */
enum trace_place { TRACE_BEFORE, TRACE_INSIDE, TRACE_AFTER };

static volatile int *trace_place;

/* ---- the child's side ------------------------------------------------------------------------------------ */

/* Once. */
static inline void trace_me(void)
{
	t_equal(ptrace(PTRACE_TRACEME, 0, NULL, NULL), 0);
}

/* Stand still until the tracer says go on. */
static inline void trace_stand(void)
{
	syscall(SYS_kill, getpid(), SIGSTOP);
}

/* What is led. */
static inline void trace_call(void (*call)(void))
{
	trace_stand();
	*trace_place = TRACE_INSIDE;
	call();
	*trace_place = TRACE_AFTER;
	trace_stand();
}

/* ---- the tracer's side ----------------------------------------------------------------------------------- */

/* Let it run until it stands; returns the signal it stands with. */
static inline int trace_go(pid_t pid, int how)
{
	int status;

	t_check(pid > 1);
	t_equal(ptrace(how, pid, NULL, NULL), 0);
	t_equal(waitpid(pid, &status, __WALL), pid);
	if (!WIFSTOPPED(status))
		t_die(__FILE__, __LINE__, "the traced process ended by itself, status 0x%x", status);
	return WSTOPSIG(status);
}

/* Let it run to its next trace_stand(). */
static inline void trace_run(pid_t pid)
{
	t_equal(trace_go(pid, PTRACE_CONT), SIGSTOP);
}

/* After a fork: wait for its first trace_stand(). */
static inline void trace_meet(pid_t pid)
{
	int status;

	t_equal(waitpid(pid, &status, __WALL), pid);
	t_check(WIFSTOPPED(status));
	t_equal(ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)(PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL)), 0);
}

/* One instruction. Returns false when the call is over. */
static inline bool trace_step(pid_t pid)
{
	if (trace_go(pid, PTRACE_SINGLESTEP) != SIGTRAP)
		t_die(__FILE__, __LINE__, "a step ended otherwise than in a trap");
	return *trace_place != TRACE_AFTER;
}

/* From trace_stand() to the first instruction of the call. */
static inline void trace_enter(pid_t pid)
{
	while (*trace_place == TRACE_BEFORE)
		trace_step(pid);
}

/* At full speed to the next end of a system call. Returns false when the call is over. */
static inline bool trace_system_call(pid_t pid)
{
	for (int i = 0; i < 2; i++) /* it stands as it enters and as it leaves the kernel */
		if (trace_go(pid, PTRACE_SYSCALL) != (SIGTRAP | 0x80) || *trace_place == TRACE_AFTER)
			return false;
	return true;
}

static inline void trace_kill(pid_t pid)
{
	t_check(pid > 1);
	kill(pid, SIGKILL);
	t_equal(t_wait(pid), SIGKILL);
}

/* Is the next instruction a system call? The child is a fork of ours: its code is ours, at the same place. */
static inline bool trace_is_system_call(pid_t pid)
{
	struct user_regs_struct registers;
	struct iovec io = { &registers, sizeof(registers) };

	t_equal(ptrace(PTRACE_GETREGSET, pid, (void *)NT_PRSTATUS, &io), 0);
#if defined(__x86_64__)
	return memcmp((void *)registers.rip, "\x0f\x05", 2) == 0;
#elif defined(__aarch64__)
	return memcmp((void *)registers.pc, "\x01\x00\x00\xd4", 4) == 0;
#else
	return false;
#endif
}

/* Once, before the first child. */
static inline void trace_prepare(void)
{
#if !defined(__x86_64__) && !defined(__aarch64__)
	t_skip("how a system call looks is written down for x86-64 and aarch64");
#endif
	if (T_SANITIZED)
		t_skip("what a sanitizer adds to each instruction makes this take hours");
	trace_place = t_shared(sizeof(*trace_place));
	pid_t pid = fork();
	t_check(pid >= 0);
	if (pid == 0)
		_exit(ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0 ? 0 : 1);
	if (t_wait(pid) != 0)
		t_skip("tracing a child is not permitted here (ptrace)");
}

/* ---- a call's instructions -------------------------------------------------------------------------------- */

/* The way to one of them: so many system calls, then so many instructions. */
struct trace_stop {
	int calls, steps;
	bool notable; /* after it, the kernel or shared memory may be another than before it */
};

struct trace_way {
	struct trace_stop *stops; /* [n] */
	int n, room;
};

static inline void trace_note(struct trace_way *way, struct trace_stop stop)
{
	if (way->n == way->room) {
		way->room = way->room ? 2 * way->room : 1024;
		way->stops = realloc(way->stops, (size_t)way->room * sizeof(*way->stops));
		t_check(way->stops);
	}
	way->stops[way->n++] = stop;
}

/* Lead it through the whole call once, to see what there is. `changed` says whether shared memory has changed since it was last
 * asked. */
static inline void trace_explore(pid_t pid, struct trace_way *way, bool (*changed)(void))
{
	struct trace_stop stop = { .notable = true };

	way->n = 0;
	trace_enter(pid);
	changed();
	trace_note(way, stop);
	for (;;) {
		bool call = trace_is_system_call(pid);

		if (!trace_step(pid))
			break;
		stop.calls += call;
		stop.steps = call ? 0 : stop.steps + 1;
		stop.notable = changed() || call;
		trace_note(way, stop);
	}
	stop.steps++; /* the one that brought it out: whatever it was, the call is over */
	stop.notable = true;
	trace_note(way, stop);
}

/* Lead another one to such a stop. What the kernel says differs from time to time, so a way may be a little shorter. */
static inline void trace_lead(pid_t pid, struct trace_stop stop)
{
	trace_enter(pid);
	for (int i = 0; i < stop.calls; i++)
		if (!trace_system_call(pid))
			return;
	for (int i = 0; i < stop.steps; i++)
		if (!trace_step(pid))
			return;
}

#endif
