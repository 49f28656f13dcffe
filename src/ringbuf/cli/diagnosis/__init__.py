"""What `ringbuf doctor` knows.

    measures, processes      what was measured: two looks at a loader's page, and what processors its workers had
    forecast                 how many workers would do
    shares, causes, verdict  in words where time goes, from measures alone
    facts, machine           what the machine and its limits are, and which of it is in the way
    attached, trial          a loader that runs elsewhere, and one that is run here
"""
