"""What carries small messages between processes, by name. A channel is a module with

    LABEL               what the tables call it
    versions()          {"package": "1.2.3"} of what is being measured
    Channel()           made before the processes are forked
        sender()            called by each producer: a function that sends all of a list of messages, waiting for room
        receiver()          called by the consumer: a function that returns so many messages, waiting for them
        close()             called by the consumer, at the end

PRODUCERS says how many producers one Channel takes, where it is not any number.
"""

NAMES = {
    "ring": "ring",
    "ring_many": "ring_many",
    "faster_fifo": "faster_fifo_get",
    "faster_fifo_many": "faster_fifo_many",
    "pyzmq": "pyzmq",
    "os_pipe": "os_pipe",
    "mp_pipe": "mp_pipe",
    "mp_simple_queue": "mp_simple_queue",
    "mp_queue": "mp_queue",
}
"""In the order of the table."""
