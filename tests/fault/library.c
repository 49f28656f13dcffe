/* tests/c/fault.h for a harness in Python, which calls it through ctypes (harness.py). */
#include "fault.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT int fault_open(void);
EXPORT void fault_close(void);
EXPORT void fault_run(pid_t pid, const struct fault_plan *plan, struct fault_seen *seen);
EXPORT void fault_run_in_child(pid_t pid, int nth_child, const struct fault_plan *plan, struct fault_seen *seen);

int fault_open(void)
{
	return fault_window_opens();
}

void fault_close(void)
{
	fault_window_closes();
}

void fault_run(pid_t pid, const struct fault_plan *plan, struct fault_seen *seen)
{
	fault_trace(pid, plan, seen);
}

/* Let the victim run until it has forked for the nth time. Returns that child, stopped at its first instruction; 0: there was none. */
static pid_t nth_fork(pid_t pid, int nth_child, struct fault_seen *seen, int64_t deadline_ms)
{
	int status;

	for (int forks = 0;;) {
		int deliver = 0;
		if (!fault_await(pid, &status, deadline_ms)) {
			fault_give_up(pid, seen);
			return 0;
		}
		if (!WIFSTOPPED(status)) {
			seen->status = status;
			return 0;
		}
		if (status >> 8 == (SIGTRAP | PTRACE_EVENT_FORK << 8)) {
			unsigned long child = 0;
			ptrace(PTRACE_GETEVENTMSG, pid, NULL, &child);
			if (!fault_await((pid_t)child, &status, deadline_ms) || !WIFSTOPPED(status))
				return 0; /* killed already */
			if (++forks == nth_child) {
				ptrace(PTRACE_DETACH, pid, NULL, NULL);
				return (pid_t)child;
			}
			ptrace(PTRACE_DETACH, (pid_t)child, NULL, NULL);
		} else if (status >> 16 == 0 && WSTOPSIG(status) != SIGSTOP) {
			deliver = WSTOPSIG(status);
		}
		ptrace(PTRACE_CONT, pid, NULL, (void *)(long)deliver);
	}
}

/* Follow the nth child that the victim forks after it has opened a window, from its birth to the end of a window that it
 * closes itself. The victim runs free from then on. */
void fault_run_in_child(pid_t pid, int nth_child, const struct fault_plan *plan, struct fault_seen *seen)
{
	int64_t deadline_ms = fault_now_ms() + plan->patience_ms;
	sigset_t held = fault_hold_sigchld();
	int status;

	fault_begin_account(seen);
	if (!fault_await(pid, &status, deadline_ms)) {
		fault_give_up(pid, seen);
	} else if (!WIFSTOPPED(status)) {
		seen->status = status;
	} else {
		ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)(PTRACE_O_TRACEFORK | PTRACE_O_EXITKILL));
		ptrace(PTRACE_CONT, pid, NULL, NULL);
		pid_t child = nth_fork(pid, nth_child, seen, deadline_ms);
		if (child > 0) {
			ptrace(PTRACE_SETOPTIONS, child, NULL, (void *)(PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL));
			fault_follow(child, plan, seen, deadline_ms);
		}
	}
	pthread_sigmask(SIG_SETMASK, &held, NULL);
}
