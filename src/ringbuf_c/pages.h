/* The pages of a segment: reserved all at once or slot by slot, in huge pages where that pays, mapped where it is cheap. */
#ifndef RB_PAGES_H
#define RB_PAGES_H

#include <stdbool.h>

#include "platform.h"

#define RB_HUGE_PAGE (UINT64_C(2) << 20)

/* Would so many bytes be too many? Asked before anything is touched, since the system's own answers are deadly:
 * a memfd has no size limit, so reserving more than there is goes on until the kernel kills somebody (-ENOMEM;
 * limits of control groups are not looked at), and a file above RLIMIT_FSIZE is announced by a signal (-EFBIG). */
RB_PRIVATE int rb_pages_afford(uint64_t bytes);

/* Map the first `bytes` of a file, shared. huge: at an address where the kernel can use huge pages.
 * Returns 0 with *base set, or a negative errno. */
RB_PRIVATE int rb_pages_map(int fd, uint64_t bytes, bool huge, unsigned char **base);

/* Make as much as goes well of [from, to) of a file, mapped at `base`, out of huge pages; both are multiples of one.
 * A wish: what is not made here is left to rb_pages_reserve(). */
RB_PRIVATE void rb_pages_make_huge(int fd, unsigned char *base, uint64_t from, uint64_t to);

/* Reserve pages of a file: a later touch of memory that is not there would be SIGBUS, not an error.
 * -ENOSPC, -ENOMEM ... as from the system. */
RB_PRIVATE int rb_pages_reserve(int fd, uint64_t from, uint64_t bytes);

/* Is there memory behind all of this part of a file, and not only a reservation that nobody has touched yet? */
RB_PRIVATE bool rb_pages_are_there(int fd, uint64_t from, uint64_t bytes);

/* Bring pages that exist into this process's page tables, writable, in one call. Best effort. */
RB_PRIVATE void rb_pages_populate(unsigned char *at, uint64_t bytes);

#endif
