"""The soak: rings and loaders for as long as you like, while their processes are killed and stopped at random.

python -m tests.soak --minutes 2 --seed 7

supervisor ---- several arenas at once, each a process of its own that lives as long as the run
  arena ------- rounds: make a ring or a loader, let actors use it, send faults, come to rest, check, clean up
    actors ---- producers, consumers, readers; or a loader's workers. These are killed.

plan.py         what a round does and which faults come when: from the seed alone
troupe.py       starts, kills, stops, buries processes; only those that it started
journal.py      what actors write down in shared memory, which survives their deaths
payload.py      messages that tell whether they are whole
actors.py       what producers, consumers and readers do
accounting.py   received and reported lost is what was sent, as sets
progress.py     nobody is blocked
census.py       processes, descriptors, memory; leak.py: their slopes
ring_arena.py, loader_arena.py, supervisor.py, report.py, sandbox.py
control.py      the same harness over other queues, which hang: it can see that
"""
