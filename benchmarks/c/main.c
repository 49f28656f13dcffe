/* PEER info                       what the peer is, as one line of JSON
 * PEER WORKLOAD [NAME=VALUE ...]   one measurement, as one line of JSON; exits 1 and says why when a message was lost or changed */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness.h"

#define GRACE_S 30 /* a queue that loses messages may wait for ever */

static const struct {
	const char *name;
	void (*measure)(const struct options *options);
} workloads[] = {
	{ "throughput", throughput },
	{ "pingpong", pingpong },
	{ "wake", wake },
	{ "uncontended", uncontended },
};

static void info(void)
{
	printf("{\"label\": \"%s\", \"version\": \"%s\", \"batch\": \"%s\", \"compiler\": \"%s\", ", queue_peer.label,
	       queue_peer.version, queue_peer.batch, __VERSION__);
	printf("\"sleeps\": %s, \"carries\": %s, ", queue_peer.waits == QUEUE_SLEEPS ? "true" : "false",
	       queue_peer.carries ? "true" : "false");
	printf(queue_peer.threads_only ? "\"threads_only\": \"%s\"}\n" : "\"threads_only\": null}\n", queue_peer.threads_only);
}

static void set(struct options *options, const char *argument)
{
	const struct {
		const char *name;
		uint32_t *value, least, most;
	} numbers[] = {
		{ "processes", &options->processes, 0, 1 },
		{ "producers", &options->producers, 1, PRODUCERS_MAX },
		{ "consumers", &options->consumers, 1, CONSUMERS_MAX },
		{ "batch", &options->batch, 1, BATCH_MAX },
		{ "capacity", &options->capacity, 1, 65536 },
		{ "fill", &options->fill, 0, 65536 },
		{ "ms", &options->ms, 1, 100000 },
	};
	const char *value = strchr(argument, '=');

	if (!value)
		die("%s: arguments are NAME=VALUE", argument);
	size_t length = (size_t)(value++ - argument);
	if (!strncmp(argument, "spoil=", length + 1)) {
		options->spoil = value;
		return;
	}
	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++) {
		if (strlen(numbers[i].name) != length || strncmp(argument, numbers[i].name, length))
			continue;
		char *end;
		unsigned long number = strtoul(value, &end, 10);
		if (*value == 0 || *end != 0 || number < numbers[i].least || number > numbers[i].most)
			die("%s: it takes %u to %u", argument, numbers[i].least, numbers[i].most);
		*numbers[i].value = (uint32_t)number;
		return;
	}
	die("%s: there is no such argument", argument);
}

int main(int argc, char **argv)
{
	struct options options = { .producers = 1, .consumers = 1, .batch = 1, .capacity = 64, .ms = 300 };

	if (argc == 2 && !strcmp(argv[1], "info")) {
		info();
		return 0;
	}
	for (int i = 2; i < argc; i++)
		set(&options, argv[i]);
	if (options.processes && queue_peer.threads_only)
		die("threads only: %s", queue_peer.threads_only);
	if (options.fill >= options.capacity)
		die("fill=%u leaves no room in capacity=%u", options.fill, options.capacity);
	for (size_t i = 0; argc > 1 && i < sizeof(workloads) / sizeof(*workloads); i++) {
		if (strcmp(argv[1], workloads[i].name))
			continue;
		alarm(options.ms / 1000 + GRACE_S);
		workloads[i].measure(&options);
		return 0;
	}
	die("usage: %s info | throughput | pingpong | wake | uncontended [NAME=VALUE ...]", argv[0]);
}
