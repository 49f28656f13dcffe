"""The peers by name. A peer is a module with

    LABEL                      what the table calls it
    versions()                 {"package": "1.2.3"} of what is being measured
    open(dataset, workload)    a context manager that yields an iterable of (images, labels), one for each batch

Importing it imports what it measures; ImportError means that this peer cannot be measured here.
"""

NAMES = {"ring": "ring_loader", "torch": "torch_loader", "ideal": "ideal"}
