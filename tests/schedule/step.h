/* The shared accesses of the library, as calls: step_atomics.h makes them, scheduler.c serves them. */
#ifndef STEP_H
#define STEP_H

#include <stdbool.h>
#include <stdint.h>

enum step_change { STEP_ADD, STEP_SUB, STEP_OR, STEP_AND };

uint64_t step_load(const volatile void *at, unsigned bytes, const char *where);
void step_store(volatile void *at, unsigned bytes, uint64_t value, const char *where);
bool step_exchange(volatile void *at, unsigned bytes, void *expected, uint64_t desired, bool weak, const char *where);
uint64_t step_change(volatile void *at, unsigned bytes, enum step_change change, uint64_t by, const char *where);

#endif
