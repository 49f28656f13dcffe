/* What the programs share that kill at each instruction: which instructions, and the figures. After t.h. */
#ifndef INSTRUCTION_SWEEP_H
#define INSTRUCTION_SWEEP_H

#include "scene.h"
#include "trace.h"

static struct {
	int calls, instructions, kills; /* calls: of this kind in this state */
	bool thorough;
	int64_t said_ns, slowest_ns;
} sweep;

/* Killed after: every instruction that changed shared memory and every system call; and of the others, after which nobody can tell
 * that it went on, all of them in the thorough version, `dense`, and else every so manieth, differing from call to call. A
 * long way without a system call (a checksum, /proc/meminfo read line by line) costs as many steps as it is long, for
 * each death on it: such deaths become ever rarer. */
#define STRIDE 37
#define THOROUGH_STRIDE 7

static inline bool is_due(const struct trace_stop *stop, int n, bool dense)
{
	int every = dense ? 1 : sweep.thorough ? THOROUGH_STRIDE : STRIDE;

	if (stop->notable)
		return true;
	if (stop->steps < (dense ? 800 : sweep.thorough ? 400 : 120))
		return n % every == 0;
	if (stop->steps < 4000 && dense)
		return n % 41 == 0;
	return (stop->steps & (stop->steps - 1)) == 0;
}

static inline void sweep_calls(const char *call, const char *in, struct trace_way *way, bool dense,
			       void (*kill_at)(const struct trace_stop *stop, int n))
{
	static int offset;

	sweep.calls++;
	sweep.instructions += way->n;
	offset += 11;
	for (int n = 0; n < way->n; n++) {
		if (!is_due(&way->stops[n], n + offset, dense && sweep.thorough))
			continue;
		snprintf(t_context, sizeof(t_context), "%s, ring %s, killed at instruction %d of %d: ", call, in, n, way->n);
		kill_at(&way->stops[n], n);
		sweep.kills++;
		if (sweep.thorough && rb_now_ns() > sweep.said_ns + 3 * T_SECOND_NS) {
			sweep.said_ns = rb_now_ns();
			fprintf(stderr, "%s%d kills\n", t_context, sweep.kills);
		}
	}
	t_context[0] = '\0';
}

static inline void sweep_begin(int argc, char **argv)
{
	trace_prepare();
	sweep.thorough = t_thorough(argc, argv);
	ledger = t_shared(sizeof(*ledger));
}

static inline void sweep_end(void)
{
	t_figures("calls=%d instructions=%d kills=%d slowest_ms=%d", sweep.calls, sweep.instructions, sweep.kills,
		  (int)(sweep.slowest_ns / T_MS_NS));
}

#endif
