/* Failing one system call of another process, as strace's `inject` does, but with the errors that are plausible for the call,
 * and some thousand times a second.
 *
 *     victim                            tracer (its parent)
 *     fault_window_opens()              fault_trace(pid, &plan, &seen)
 *     ... the operation ...
 *     fault_window_closes()             lets go of it; its end is the caller's to wait for
 *
 * Between the two the tracer stops the victim's calling thread (no other thread, no child of it) at each entry into the kernel, and
 * counts the calls that can fail. The one that the plan names is not made and returns a negative errno; with `persistent` so
 * do all calls of that kind that follow. Which errors are plausible says the table below.
 *
 * Stands alone: also built as a library for tests in Python (tests/fault/library.c). */
#ifndef FAULT_H
#define FAULT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Which call to fail: the nth (from 1; 0: none) of those that can, with the pick-th error that is plausible for it, modulo their number. */
struct fault_plan {
	int nth, pick, persistent;
	int patience_ms; /* for the window; then the victim is killed and counts as hanging */
};

/* In memory shared with the victim, which thus knows what it got. */
struct fault_seen {
	int calls;       /* that can fail, up to the end of the window */
	int errors;      /* plausible for the nth */
	int error;       /* what it got; 0: there is no nth call */
	int injections;
	int status;      /* of a victim that ended inside the window, as of waitpid(); otherwise -1 */
	int hung;        /* it was killed */
	int broken;      /* an errno of the tracer's own; 0: all well */
	long number;     /* the nth call; without one: a call that the table does not know, or -1 */
	char name[32];
};

#define FAULT_MAGIC 0x66417554ul /* argument of the prctl() that closes a window */

#if defined(__x86_64__) || defined(__aarch64__)
#define FAULT_SUPPORTED 1
#else
#define FAULT_SUPPORTED 0
#endif

/* ---- which calls can fail, and how ------------------------------------------------------------------ */

/* What tells kinds of one call apart: an argument, seen through a mask. */
enum fault_when { FAULT_ALWAYS, FAULT_ARG0, FAULT_ARG1, FAULT_ARG2, FAULT_ARG3 };

struct fault_kind {
	long number;
	const char *name;
	enum fault_when when;
	uint64_t mask, value;
	int errors[8]; /* 0-terminated; none: it cannot fail in a way that the caller could answer */
};

#define FAULT_ANY FAULT_ALWAYS, 0, 0
#define FAULT_CANNOT { 0 }

/* The first kind that fits. Left out everywhere: errors of wrong use (EBADF, EFAULT, ENOTSOCK ...), and those of hardware.
 *   EINTR   only where the call sleeps, or where the kernel looks for signals in long work (fallocate)
 *   EAGAIN  only where a limit or another's lock is in the way
 *   ENOSYS, EINVAL, EOPNOTSUPP, EPERM  where kernels, file systems or sandboxes of today differ */
static const struct fault_kind fault_kinds[] = {
	/* descriptors */
	{ SYS_openat, "openat(O_TMPFILE)", FAULT_ARG2, O_TMPFILE, O_TMPFILE, { ENOSPC, ENOMEM, EMFILE, ENFILE, EACCES, EOPNOTSUPP, ENOENT } },
	{ SYS_openat, "openat", FAULT_ANY, { EMFILE, ENOMEM, EACCES, ENFILE, ENOENT } },
	{ SYS_memfd_create, "memfd_create", FAULT_ANY, { EMFILE, ENOMEM, ENOSYS, ENFILE, EACCES } },
	{ SYS_pipe2, "pipe2", FAULT_ANY, { EMFILE, ENFILE, ENOMEM } },
	{ SYS_socketpair, "socketpair", FAULT_ANY, { EMFILE, ENFILE, ENOMEM, EACCES } },
	{ SYS_pidfd_open, "pidfd_open", FAULT_ANY, { ENOSYS, EMFILE, ENOMEM, EPERM } },
	{ SYS_eventfd2, "eventfd2", FAULT_ANY, { EMFILE, ENOMEM } },
	{ SYS_dup, "dup", FAULT_ANY, { EMFILE } },
	{ SYS_fcntl, "fcntl(F_DUPFD_CLOEXEC)", FAULT_ARG1, ~0ul, F_DUPFD_CLOEXEC, { EMFILE, ENOMEM } },
	{ SYS_fcntl, "fcntl(F_ADD_SEALS)", FAULT_ARG1, ~0ul, F_ADD_SEALS, { EBUSY, EPERM, EINVAL } },
	{ SYS_fcntl, "fcntl(F_GET_SEALS)", FAULT_ARG1, ~0ul, F_GET_SEALS, { EINVAL } },
	{ SYS_fcntl, "fcntl(F_OFD_SETLK)", FAULT_ARG1, ~0ul, F_OFD_SETLK, { EAGAIN, EACCES, ENOLCK, EINVAL, ENOMEM } },
	{ SYS_fcntl, "fcntl(F_OFD_GETLK)", FAULT_ARG1, ~0ul, F_OFD_GETLK, { ENOLCK, EINVAL, ENOMEM } },
	{ SYS_fcntl, "fcntl(F_SETOWN)", FAULT_ARG1, ~0ul, F_SETOWN, { EPERM } },
	{ SYS_fcntl, "fcntl(F_SETSIG)", FAULT_ARG1, ~0ul, 10, { EPERM } },
	{ SYS_fcntl, "fcntl(F_SETFL)", FAULT_ARG1, ~0ul, F_SETFL, { ENOMEM } },
	{ SYS_fcntl, "fcntl", FAULT_ANY, FAULT_CANNOT }, /* F_GETFD, F_SETFD, F_GETFL: bits of the descriptor */
	/* files */
	{ SYS_ftruncate, "ftruncate", FAULT_ANY, { ENOSPC, EFBIG, ENOMEM, EPERM } },
	{ SYS_fallocate, "fallocate", FAULT_ANY, { ENOSPC, ENOMEM, EINTR, EOPNOTSUPP, ENOSYS, EFBIG } },
	{ SYS_fchmod, "fchmod", FAULT_ANY, { EPERM, EACCES } },
	{ SYS_newfstatat, "fstatat", FAULT_ANY, { ENOMEM, EACCES } },
#ifdef SYS_fstat
	{ SYS_fstat, "fstat", FAULT_ANY, { ENOMEM, EACCES } },
#endif
#ifdef SYS_lstat
	{ SYS_lstat, "lstat", FAULT_ANY, { ENOMEM, EACCES } },
	{ SYS_stat, "stat", FAULT_ANY, { ENOMEM, EACCES } },
	{ SYS_readlink, "readlink", FAULT_ANY, { ENOMEM, EACCES } },
	{ SYS_unlink, "unlink", FAULT_ANY, { EACCES, EPERM, ENOMEM } },
#endif
	{ SYS_unlinkat, "unlinkat", FAULT_ANY, { EACCES, EPERM, ENOMEM } },
	{ SYS_readlinkat, "readlinkat", FAULT_ANY, { ENOMEM, EACCES } },
	{ SYS_statfs, "statfs", FAULT_ANY, { ENOMEM, ENOSYS } },
	{ SYS_fstatfs, "fstatfs", FAULT_ANY, { ENOMEM, ENOSYS } },
	{ SYS_linkat, "linkat", FAULT_ANY, { EEXIST, ENOSPC, EACCES, EPERM, ENOENT, ENOMEM } },
	{ SYS_pread64, "pread", FAULT_ANY, { ENOMEM } },
	{ SYS_pwrite64, "pwrite", FAULT_ANY, { ENOSPC, ENOMEM } }, /* glibc's, where there is no fallocate */
	{ SYS_read, "read", FAULT_ANY, { EINTR, ENOMEM } }, /* pipes; /proc and control groups allocate */
	{ SYS_write, "write", FAULT_ANY, { ENOSPC, EINTR, ENOMEM } },
	{ SYS_getdents64, "getdents", FAULT_ANY, { ENOMEM } },
	/* memory */
	{ SYS_mmap, "mmap", FAULT_ANY, { ENOMEM, EAGAIN } },
	{ SYS_mprotect, "mprotect", FAULT_ANY, { ENOMEM } },
	{ SYS_mremap, "mremap", FAULT_ANY, { ENOMEM } },
	{ SYS_madvise, "madvise(MADV_POPULATE_READ)", FAULT_ARG2, ~0ul, 22, { EINVAL, ENOMEM, EAGAIN } },
	{ SYS_madvise, "madvise(MADV_COLLAPSE)", FAULT_ARG2, ~0ul, 25, { EINVAL, ENOMEM, EAGAIN, EBUSY } },
	{ SYS_madvise, "madvise", FAULT_ANY, { ENOMEM, EAGAIN } },
	/* sleeping and waking; what is PRIVATE, or all where the bells are semaphores, is glibc's, which aborts when the kernel has no futexes */
#ifndef RINGBUF_WAIT_SEMAPHORE
	{ SYS_futex, "futex(WAKE)", FAULT_ARG1, ~0ul, FUTEX_WAKE, { ENOSYS, ENOMEM } },
	{ SYS_futex, "futex(WAIT)", FAULT_ARG1, ~0ul, FUTEX_WAIT_BITSET, { EINTR, EAGAIN, ENOSYS, ENOMEM } },
#endif
	{ SYS_futex, "futex(WAKE)", FAULT_ARG1, FUTEX_CMD_MASK & 0x7f, FUTEX_WAKE, FAULT_CANNOT },
	{ SYS_futex, "futex(WAIT)", FAULT_ANY, { EINTR, EAGAIN } },
#ifdef SYS_poll
	{ SYS_poll, "poll", FAULT_ANY, { EINTR, ENOMEM } },
	{ SYS_select, "select", FAULT_ANY, { EINTR, ENOMEM } },
#endif
	{ SYS_ppoll, "ppoll", FAULT_ANY, { EINTR, ENOMEM } },
	{ SYS_pselect6, "pselect", FAULT_ANY, { EINTR, ENOMEM } },
	{ SYS_clock_nanosleep, "clock_nanosleep", FAULT_ANY, { EINTR } },
	{ SYS_wait4, "wait4", FAULT_ANY, { EINTR, ECHILD } }, /* ECHILD: the program ignores SIGCHLD */
	{ SYS_waitid, "waitid", FAULT_ANY, { EINTR, ECHILD } },
	/* processes and messages */
#ifdef SYS_fork
	{ SYS_fork, "fork", FAULT_ANY, { EAGAIN, ENOMEM } },
	{ SYS_vfork, "vfork", FAULT_ANY, { EAGAIN, ENOMEM } },
#endif
	{ SYS_clone, "clone", FAULT_ANY, { EAGAIN, ENOMEM } },
	{ SYS_clone3, "clone3", FAULT_ANY, { EAGAIN, ENOMEM } },
	{ SYS_sendmsg, "sendmsg", FAULT_ANY, { EAGAIN, ENOBUFS, ENOMEM, EPIPE, ECONNRESET, EINTR, ETOOMANYREFS } },
	{ SYS_recvmsg, "recvmsg", FAULT_ANY, { EAGAIN, EINTR, ENOMEM } },
	{ SYS_prctl, "prctl(PR_SET_PDEATHSIG)", FAULT_ARG0, ~0ul, PR_SET_PDEATHSIG, { EPERM } },
	/* the machine */
	{ SYS_getrandom, "getrandom", FAULT_ANY, { EINTR, ENOSYS, EPERM } },
	{ SYS_prlimit64, "prlimit", FAULT_ANY, { EPERM, ENOSYS } },
	{ SYS_sched_getaffinity, "sched_getaffinity", FAULT_ANY, { ENOMEM, ENOSYS } },
	{ SYS_uname, "uname", FAULT_ANY, FAULT_CANNOT },
	{ SYS_sysinfo, "sysinfo", FAULT_ANY, FAULT_CANNOT },
	/* These cannot fail: they only look, or set what is the process's own, or let something go, which is done also where an
	 * error is reported (close). munmap: of whole mappings. brk: says no by an address; see malloc_fails.c. ioctl, lseek,
	 * getsockname: Python asks what kind of file it has, whose answers the rest goes by; a failure would be a lie. */
	{ SYS_close, "close", FAULT_ANY, FAULT_CANNOT },
	{ SYS_munmap, "munmap", FAULT_ANY, FAULT_CANNOT },
	{ SYS_brk, "brk", FAULT_ANY, FAULT_CANNOT },
	{ SYS_ioctl, "ioctl", FAULT_ANY, FAULT_CANNOT },
	{ SYS_lseek, "lseek", FAULT_ANY, FAULT_CANNOT },
	{ SYS_getsockname, "getsockname", FAULT_ANY, FAULT_CANNOT },
	{ SYS_getpid, "getpid", FAULT_ANY, FAULT_CANNOT },
	{ SYS_getppid, "getppid", FAULT_ANY, FAULT_CANNOT },
	{ SYS_gettid, "gettid", FAULT_ANY, FAULT_CANNOT },
	{ SYS_getuid, "getuid", FAULT_ANY, FAULT_CANNOT },
	{ SYS_geteuid, "geteuid", FAULT_ANY, FAULT_CANNOT },
	{ SYS_clock_gettime, "clock_gettime", FAULT_ANY, FAULT_CANNOT },
	{ SYS_rt_sigprocmask, "rt_sigprocmask", FAULT_ANY, FAULT_CANNOT },
	{ SYS_rt_sigaction, "rt_sigaction", FAULT_ANY, FAULT_CANNOT },
	{ SYS_sigaltstack, "sigaltstack", FAULT_ANY, FAULT_CANNOT },
	{ SYS_set_robust_list, "set_robust_list", FAULT_ANY, FAULT_CANNOT },
	{ SYS_rseq, "rseq", FAULT_ANY, FAULT_CANNOT },
	{ SYS_sched_yield, "sched_yield", FAULT_ANY, FAULT_CANNOT },
	{ SYS_prctl, "prctl", FAULT_ANY, FAULT_CANNOT },
	{ SYS_kill, "kill", FAULT_ANY, FAULT_CANNOT },
	{ SYS_tgkill, "tgkill", FAULT_ANY, FAULT_CANNOT },
	{ SYS_restart_syscall, "restart_syscall", FAULT_ANY, FAULT_CANNOT },
	{ SYS_exit, "exit", FAULT_ANY, FAULT_CANNOT },
	{ SYS_exit_group, "exit_group", FAULT_ANY, FAULT_CANNOT },
};

#define FAULT_KINDS (sizeof(fault_kinds) / sizeof(fault_kinds[0]))

/* Errors that a call does not give without end: signals stop coming, and what others do to a word, a lock or a
 * name while we look is done in the end. */
#define FAULT_STORM 50
static inline int fault_limit(const struct fault_plan *plan, int error)
{
	if (!plan->persistent)
		return 1;
	return error == EINTR || error == EAGAIN || error == EEXIST || error == ENOENT ? FAULT_STORM : INT32_MAX;
}

static inline const struct fault_kind *fault_kind_of(const struct __ptrace_syscall_info *info)
{
	for (size_t i = 0; i < FAULT_KINDS; i++) {
		const struct fault_kind *kind = &fault_kinds[i];
		if (kind->number != (long)info->entry.nr)
			continue;
		if (kind->when == FAULT_ALWAYS || (info->entry.args[kind->when - FAULT_ARG0] & kind->mask) == kind->value)
			return kind;
	}
	return NULL;
}

/* Unlocking needs memory only to split a range; it is nobody else's to refuse. */
static inline bool fault_unlocks(pid_t pid, const struct __ptrace_syscall_info *info)
{
	if (info->entry.nr != SYS_fcntl || info->entry.args[1] != F_OFD_SETLK)
		return false;
	return (short)ptrace(PTRACE_PEEKDATA, pid, (void *)info->entry.args[2], NULL) == F_UNLCK;
}

static inline int fault_count(const struct fault_kind *kind)
{
	int n = 0;

	while (kind->errors[n])
		n++;
	return n;
}

/* ---- the victim ----------------------------------------------------------------------------------------- */

/* From the next system call on. Returns 0, or a negative errno where tracing is not permitted. */
static inline int fault_window_opens(void)
{
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
		return -errno;
	syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGSTOP);
	return 0;
}

static inline void fault_window_closes(void)
{
	int why = errno;

	syscall(SYS_prctl, FAULT_MAGIC, 0, 0, 0, 0);
	errno = why;
}

/* ---- the tracer ------------------------------------------------------------------------------------------ */

static inline int64_t fault_now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Wait for a change of a child, with SIGCHLD blocked. Returns false at the deadline. */
static inline bool fault_await(pid_t pid, int *status, int64_t deadline_ms)
{
	sigset_t child;

	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	while (waitpid(pid, status, WNOHANG | __WALL) != pid) {
		int64_t left = deadline_ms - fault_now_ms();
		if (left <= 0)
			return false;
		if (left > 100)
			left = 100; /* should its signal go to somebody else */
		sigtimedwait(&child, NULL, &(struct timespec){ .tv_nsec = left * 1000000 });
	}
	return true;
}

/* At the entry of a call: have the kernel make none. */
static inline int fault_skip_call(pid_t pid)
{
#if defined(__x86_64__)
	return ptrace(PTRACE_POKEUSER, pid, (void *)(15 * sizeof(long)), (void *)-1L) < 0 ? -errno : 0; /* orig_rax */
#elif defined(__aarch64__)
	int none = -1;
	struct iovec view = { &none, sizeof(none) };
	return ptrace(PTRACE_SETREGSET, pid, (void *)NT_ARM_SYSTEM_CALL, &view) < 0 ? -errno : 0;
#else
	(void)pid;
	return -ENOSYS;
#endif
}

/* At its exit: what it returns. */
static inline int fault_set_result(pid_t pid, long result)
{
#if defined(__x86_64__)
	return ptrace(PTRACE_POKEUSER, pid, (void *)(10 * sizeof(long)), (void *)result) < 0 ? -errno : 0; /* rax */
#elif defined(__aarch64__)
	uint64_t registers[34]; /* x0 ... x30, sp, pc, pstate */
	struct iovec view = { registers, sizeof(registers) };
	if (ptrace(PTRACE_GETREGSET, pid, (void *)NT_PRSTATUS, &view) < 0)
		return -errno;
	registers[0] = (uint64_t)result;
	return ptrace(PTRACE_SETREGSET, pid, (void *)NT_PRSTATUS, &view) < 0 ? -errno : 0;
#else
	(void)pid;
	(void)result;
	return -ENOSYS;
#endif
}

/* One that stands at the entry of a call: shall it fail? Returns the errno, or 0. */
static inline int fault_decide(pid_t pid, const struct fault_plan *plan, struct fault_seen *seen,
			       const struct __ptrace_syscall_info *info, const struct fault_kind **failing)
{
	const struct fault_kind *kind = fault_kind_of(info);

	if (!kind) {
		seen->number = (long)info->entry.nr;
		seen->broken = ENOSYS;
		return 0;
	}
	int errors = fault_count(kind);
	if (errors == 0 || fault_unlocks(pid, info))
		return 0;
	seen->calls++;
	if (seen->calls == plan->nth) {
		*failing = kind;
		seen->number = kind->number;
		seen->errors = errors;
		seen->error = kind->errors[plan->pick % errors];
		strncpy(seen->name, kind->name, sizeof(seen->name) - 1);
	}
	if (*failing != kind || seen->injections >= fault_limit(plan, seen->error))
		return 0;
	seen->injections++;
	return seen->error;
}

static inline void fault_give_up(pid_t pid, struct fault_seen *seen)
{
	seen->hung = 1;
	kill(pid, SIGKILL);
	fault_await(pid, &seen->status, fault_now_ms() + 10000);
}

/* Let a tracee that stands still run on to its window's end, and fail what the plan says. */
static inline void fault_follow(pid_t pid, const struct fault_plan *plan, struct fault_seen *seen, int64_t deadline_ms)
{
	const struct fault_kind *failing = NULL;
	int status, failed = 0, deliver = 0;

	for (;;) {
		struct __ptrace_syscall_info info;

		if (ptrace(PTRACE_SYSCALL, pid, NULL, (void *)(long)deliver) < 0 && errno != ESRCH) {
			seen->broken = errno;
			return;
		}
		deliver = 0;
		if (!fault_await(pid, &status, deadline_ms)) {
			fault_give_up(pid, seen);
			return;
		}
		if (!WIFSTOPPED(status)) {
			seen->status = status;
			return;
		}
		if (WSTOPSIG(status) != (SIGTRAP | 0x80)) {
			if (status >> 16 == 0)
				deliver = WSTOPSIG(status);
			continue;
		}
		if (ptrace(PTRACE_GET_SYSCALL_INFO, pid, (void *)sizeof(info), &info) < 0)
			continue; /* it was killed just now */
		if (info.op == PTRACE_SYSCALL_INFO_EXIT) {
			if (failed)
				fault_set_result(pid, -(long)failed);
			failed = 0;
			continue;
		}
		if (info.entry.nr == SYS_prctl && info.entry.args[0] == FAULT_MAGIC) {
			ptrace(PTRACE_DETACH, pid, NULL, NULL);
			return;
		}
		failed = fault_decide(pid, plan, seen, &info, &failing);
		if (failed && fault_skip_call(pid) < 0)
			seen->broken = EIO;
	}
}

static inline void fault_begin_account(struct fault_seen *seen)
{
	memset(seen, 0, sizeof(*seen));
	seen->status = -1;
	seen->number = -1;
}

/* Block SIGCHLD for fault_await(); returns what to restore. */
static inline sigset_t fault_hold_sigchld(void)
{
	sigset_t child, held;

	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	pthread_sigmask(SIG_BLOCK, &child, &held);
	return held;
}

/* Follow a child that opens a window. */
static inline void fault_trace(pid_t pid, const struct fault_plan *plan, struct fault_seen *seen)
{
	int64_t deadline_ms = fault_now_ms() + plan->patience_ms;
	sigset_t held = fault_hold_sigchld();
	int status;

	fault_begin_account(seen);
	if (!fault_await(pid, &status, deadline_ms))
		fault_give_up(pid, seen);
	else if (!WIFSTOPPED(status))
		seen->status = status;
	else if (ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)(PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL)) < 0)
		seen->broken = errno;
	else
		fault_follow(pid, plan, seen, deadline_ms);
	pthread_sigmask(SIG_SETMASK, &held, NULL);
}

#endif
