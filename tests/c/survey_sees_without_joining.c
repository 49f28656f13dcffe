/* A survey shows a ring as it is, who holds what and who is dead, and leaves not a byte of it changed and no lock taken. */
#include "t.h"

static rb_ring *ring;
static const char *name;
static _Atomic int *step;

static void take_one_claim_two(void *arg)
{
	rb_ring *own = NULL;
	struct rb_slot slot;

	(void)arg;
	t_equal(rb_attach(name, &own), 0);
	t_equal(t_take(own).tag, 1);
	t_claim(own, 7);
	t_equal(rb_claim(own, 8, 80, RB_NOW, &slot), 0);
	atomic_store(step, 1);
	t_hang();
}

static struct rb_survey *survey(void)
{
	struct rb_survey *found = NULL;

	t_equal(rb_survey(name, &found), 0);
	t_equal(found->problem, 0);
	t_check(found->readable);
	return found;
}

static const struct rb_peer *peer_of(const struct rb_survey *found, pid_t pid)
{
	for (uint32_t i = 0; i < found->stats.participants; i++)
		if (found->peers[i].pid == (uint64_t)pid)
			return &found->peers[i];
	t_check(!"is no participant");
	return NULL;
}

static void check(pid_t child, bool alive)
{
	struct rb_survey *found = survey();
	struct rb_info info;
	int seen = 0;

	rb_get_info(ring, &info);
	t_equal(strcmp(found->info.name, name), 0);
	t_equal(found->info.slots, 5);
	t_equal(found->info.slot_bytes, 64);
	t_equal(found->info.total_bytes, info.total_bytes);
	t_equal(found->file_bytes, info.total_bytes);
	t_equal(found->version, RB_LAYOUT_VERSION);
	t_equal(found->uid, geteuid());
	t_equal(found->alive, 1);
	t_equal(found->message_bytes, 16);
	t_check(found->created_ns > 0 && found->changed_ns > 0);
	t_equal(found->stats.published, 2);
	t_equal(found->stats.consumed, 0);
	t_equal(found->stats.writing, 2);
	t_equal(found->stats.ready, 1);
	t_equal(found->stats.reading, 1);
	t_equal(found->stats.free, 1);
	t_equal(found->stats.participants, 2);
	for (uint32_t i = 0; i < found->info.slots; i++)
		if (found->slots[i].pid != 0) {
			t_equal(found->slots[i].pid, child);
			t_check(found->slots[i].tag == 1 || found->slots[i].tag == 7 || found->slots[i].tag == 8);
			seen++;
		}
	t_equal(seen, 3);
	const struct rb_peer *peer = peer_of(found, child);
	t_equal(peer->writing, 2);
	t_equal(peer->reading, 1);
	t_equal(peer->owed, 0);
	t_equal(peer->alive, alive);
	t_equal(peer_of(found, getpid())->alive, true);
	t_equal(peer_of(found, getpid())->published, 2);
	t_check(peer->joined_ns >= peer_of(found, getpid())->joined_ns);
	rb_survey_free(found);
}

/* Nothing that others hold is in our way, and nothing of ours in theirs. */
static void leaves_all_as_it_was(void)
{
	struct rb_map map = t_map(ring);
	size_t bytes = map.header.total_bytes;
	unsigned char *before = malloc(bytes);

	t_check(before);
	memcpy(before, map.base, bytes);
	rb_survey_free(survey());
	t_equal(memcmp(before, map.base, bytes), 0);
	free(before);
	t_unmap(&map);
}

static void die_attached(void *arg)
{
	(void)arg;
	t_create(.name = name, .slots = 1, .slot_bytes = 64);
}

/* As after a kill of all: looked at, and then still to be removed. */
static void all_dead(void)
{
	t_ends_well(t_child(die_attached, NULL));
	struct rb_survey *found = survey();
	t_equal(found->alive, 0);
	t_equal(found->stats.participants, 1);
	t_equal(found->peers[0].alive, false);
	t_check(found->message_bytes == 0);
	rb_survey_free(found);
	t_equal(rb_unlink(name), 0);
}

static void by_descriptor(void)
{
	rb_ring *anonymous = t_queue(2);
	struct rb_survey *found = NULL;

	t_equal(rb_survey_fd(rb_fd(anonymous), &found), 0);
	t_equal(found->problem, 0);
	t_equal(found->alive, 1);
	t_check(found->info.name == NULL);
	t_equal(found->peers[0].pid, getpid());
	t_equal(found->stats.free, 2);
	rb_survey_free(found);
	rb_detach(anonymous);
	t_equal(rb_survey_fd(-1, &found), -EBADF);
}

int main(void)
{
	struct rb_survey *found = NULL;

	step = t_shared(sizeof(*step));
	name = t_name();
	t_equal(rb_survey(name, &found), -ENOENT);
	t_equal(rb_survey("a/b", &found), -EINVAL);
	t_check(found == NULL);
	ring = t_create(.name = name, .slots = 5, .slot_bytes = 64, .redeliver = true);
	t_put(ring, 1);
	t_put(ring, 2);
	pid_t child = t_child(take_one_claim_two, NULL);
	t_await(step, 1);
	check(child, true);
	leaves_all_as_it_was();
	t_kill(child);
	check(child, false);
	t_equal(rb_recover(ring), 3);
	rb_detach(ring);
	t_check(!t_name_exists(name));
	all_dead();
	by_descriptor();
	return 0;
}
