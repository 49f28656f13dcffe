# ringbuf.h and ringbuf_frame.h for Cython, in the order of those files: `from ringbuf cimport rb_claim, ...`. Nothing is
# explained twice: read the headers. To be compiled with ringbuf.get_include() and linked with ringbuf.get_library().
from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef extern from "ringbuf.h" nogil:
    enum:
        RB_SLOTS_MAX
        RB_PARTICIPANTS_MAX
        RB_READERS_MAX
        RB_NAME_MAX
        RB_LAYOUT_VERSION
    const int64_t RB_NOW
    const int64_t RB_FOREVER
    const uint32_t RB_ANY
    const uint64_t RB_TAG_UNKNOWN

    ctypedef struct rb_ring:
        pass

    enum rb_mode:
        RB_QUEUE
        RB_BROADCAST

    enum rb_full:
        RB_BLOCK
        RB_OVERWRITE

    enum rb_hugepages:
        RB_HUGE_AUTO
        RB_HUGE_NEVER
        RB_HUGE_ALWAYS

    struct rb_options:
        const char *name
        uint64_t slot_bytes
        uint32_t slots
        uint32_t participants
        rb_mode mode
        rb_full full
        rb_hugepages hugepages
        bint redeliver
        bint supervised
        bint unsecured

    struct rb_slot:
        void *data
        uint64_t bytes
        uint64_t tag
        uint64_t ticket
        uint32_t target
        uint32_t index

    struct rb_filter:
        bint by_tag
        bint by_target
        uint32_t target
        uint64_t tag

    struct rb_info:
        uint64_t slot_bytes
        uint64_t slot_stride
        uint64_t total_bytes
        uint32_t slots
        uint32_t participants
        rb_mode mode
        rb_full full
        bint redeliver
        const char *name

    struct rb_stats:
        uint64_t published
        uint64_t consumed
        uint64_t dropped
        uint64_t lost
        uint64_t waits
        uint64_t wait_ns
        uint32_t free
        uint32_t writing
        uint32_t ready
        uint32_t reading
        uint32_t participants
        uint32_t readers
        bint finished

    enum rb_state:
        RB_FREE
        RB_WRITING
        RB_READY
        RB_READING

    struct rb_view:
        uint64_t tag
        uint64_t ticket
        uint64_t word
        uint64_t pid
        uint32_t target
        rb_state state

    enum rb_wish:
        RB_TO_TAKE
        RB_TO_CLAIM

    struct rb_lost:
        uint64_t tag
        uint64_t pid

    struct rb_peer:
        uint64_t pid
        int64_t joined_ns
        uint64_t published
        uint64_t consumed
        uint64_t waits
        uint64_t wait_ns
        uint32_t row
        uint32_t writing
        uint32_t reading
        uint32_t owed
        bint alive

    struct rb_survey_result "rb_survey":
        int problem
        int alive
        uint32_t uid
        uint32_t version
        uint64_t file_bytes
        int64_t changed_ns
        bint readable
        uint64_t id[2]
        int64_t created_ns
        uint64_t message_bytes
        rb_info info
        rb_stats stats
        const rb_peer *peers
        const rb_view *slots

    int rb_segment_bytes(const rb_options *options, uint64_t *bytes)
    int rb_create(const rb_options *options, rb_ring **out)
    int rb_attach(const char *name, rb_ring **out)
    int rb_attach_fd(int fd, rb_ring **out)
    int rb_attach_fd_supervised(int fd, rb_ring **out)
    void rb_is_unsecured(rb_ring *ring)
    int rb_peek_version(int fd, uint32_t *version)
    void rb_detach(rb_ring *ring)
    int rb_unlink(const char *name)
    int rb_fd(const rb_ring *ring)
    void rb_get_info(const rb_ring *ring, rb_info *out)

    int rb_claim(rb_ring *ring, uint64_t tag, uint32_t target, int64_t deadline_ns, rb_slot *out)
    int rb_secure(rb_ring *ring, const rb_slot *slot)
    int rb_commit(rb_ring *ring, const rb_slot *slot, uint64_t bytes)
    int rb_commit_all(rb_ring *ring, const rb_slot *slots, const uint64_t *bytes, uint32_t n)
    void rb_copy_streaming(void *to, const void *source, uint64_t bytes)
    int rb_abort(rb_ring *ring, const rb_slot *slot)
    int rb_finish(rb_ring *ring)

    int rb_take(rb_ring *ring, const rb_filter *filter, int64_t deadline_ns, rb_slot *out)
    int rb_release(rb_ring *ring, const rb_slot *slot)
    int rb_subscribe(rb_ring *ring)
    int rb_unsubscribe(rb_ring *ring)

    uint32_t rb_watch(rb_ring *ring, rb_wish wish)
    int rb_await(rb_ring *ring, rb_wish wish, uint32_t seen, int64_t deadline_ns)
    int rb_can_take(rb_ring *ring, const rb_filter *filter)
    int rb_can_claim(rb_ring *ring)
    int rb_count_tags(const rb_ring *ring, uint64_t first, uint64_t last)
    void *rb_payload_of(const rb_ring *ring, uint32_t index)

    int rb_recover(rb_ring *ring)
    int rb_ready(rb_ring *ring)
    int rb_look(const rb_ring *ring, uint32_t index, rb_view *out)
    void rb_get_stats(rb_ring *ring, rb_stats *out)
    int rb_survey(const char *name, rb_survey_result **out)
    void rb_survey_free(rb_survey_result *survey)
    int rb_get_lost(rb_ring *ring, rb_lost *out, uint32_t most)
    void rb_wake(rb_ring *ring)
    void rb_on_pause(rb_ring *ring, int (*pause)(void *arg) noexcept nogil, void *arg)
    int64_t rb_now_ns()


cdef extern from "ringbuf_frame.h" nogil:
    enum:
        RB_FRAME_ROOM
        RB_NDIM_MAX
        RB_DTYPE_MAX

    struct rb_array:
        const char *name
        char dtype[RB_DTYPE_MAX]
        uint32_t ndim
        uint64_t shape[RB_NDIM_MAX]
        void *data
        uint64_t bytes

    int rb_frame_lay_out(void *buffer, uint64_t capacity, rb_array *arrays, uint32_t count, uint64_t *bytes)
    int rb_frame_find(const void *frame, uint64_t bytes, const char *path, rb_array *out)
