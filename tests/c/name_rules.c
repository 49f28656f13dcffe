/* Names are 1 to 200 letters, digits, '.', '_', '-', not beginning with a dot; all others are -EINVAL before anything is asked of the system. */
#include "t.h"

static const char *const illegal[] = {
	"", ".", "..", ".hidden", "a/b", "/a", "../a", "a b", "a\n", "a\tb", "a\\b", "a:b", "a*", "a\xc3\xa4", "\x7f", "a%s", "~a",
};

static void refuse(const char *name)
{
	struct rb_options options = { .name = name, .slots = 1, .slot_bytes = 1 };
	rb_ring *ring = NULL;
	uint64_t bytes;

	snprintf(t_context, sizeof(t_context), "'%.40s': ", name);
	t_equal(rb_segment_bytes(&options, &bytes), -EINVAL);
	t_equal(rb_create(&options, &ring), -EINVAL);
	t_equal(rb_attach(name, &ring), -EINVAL);
	t_equal(rb_unlink(name), -EINVAL);
	t_check(ring == NULL);
}

static void accept(const char *name)
{
	struct rb_info info;
	rb_ring *ring = t_create(.name = name, .slots = 1, .slot_bytes = 1), *other;

	snprintf(t_context, sizeof(t_context), "'%.40s': ", name);
	t_check(t_name_exists(name));
	t_equal(rb_attach(name, &other), 0);
	rb_get_info(other, &info);
	t_equal(strcmp(info.name, name), 0);
	rb_detach(other);
	rb_detach(ring);
	t_check(!t_name_exists(name));
}

int main(void)
{
	char longest[RB_NAME_MAX + 1], too_long[RB_NAME_MAX + 2];
	rb_ring *ring = NULL;

	for (size_t i = 0; i < sizeof(illegal) / sizeof(illegal[0]); i++)
		refuse(illegal[i]);
	memset(too_long, 'x', sizeof(too_long) - 1);
	too_long[sizeof(too_long) - 1] = '\0';
	refuse(too_long);

	accept(t_name());
	int used = snprintf(longest, sizeof(longest), "-_.AZaz09.%d.", (int)getpid());
	memset(longest + used, 'y', sizeof(longest) - 1 - (size_t)used);
	longest[sizeof(longest) - 1] = '\0';
	accept(longest);
	t_equal(rb_attach(longest, &ring), -ENOENT);
	t_equal(rb_unlink(longest), -ENOENT);
	return 0;
}
