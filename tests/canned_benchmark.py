"""A result as `python -m benchmarks.py` writes it, made up: the same figures each time, and nobody measured them."""

from benchmarks.py import plan
from benchmarks.py.channels import NAMES as CHANNELS
from benchmarks.py.peers import NAMES

MACHINE = {"cpu": "Example", "cores": 2, "memory_bytes": 2**34, "kernel": "6.1", "python": "3.11.7", "load": 0.25}
RUNS = 3


def run(workload, batches, speed):
    """`speed` is how many times as fast as the slowest."""
    total_s = 8 / speed * batches / workload.batches
    steady_s = total_s * (1 - workload.unsteady / workload.batches)
    epoch = {"total_s": total_s, "first_s": 0.2 / speed, "steady_s": steady_s, "cpu_s": total_s / 4}
    return {
        "batches": batches,
        "epochs": [epoch | {"total_s": total_s + 0.1}, epoch],
        "workers_cpu_s": 2 * total_s,
        "faults": 1000,
        "workers_faults": 5000,
        "memory_before_bytes": 100e6,
    }


def cell(of):
    workload = of.workload
    described = workload.plain() | {"batch_bytes": workload.batch_bytes, "unsteady": workload.unsteady}
    peers = {}
    for place, name in enumerate(of.peers):
        fewer = NAMES[name].fewer.get(workload.name)
        batches = workload.shortened(fewer).batches if fewer else workload.batches
        speed = 1 + (len(of.peers) - place)
        label = NAMES[name].label or NAMES[name].module
        peers[name] = {"label": label, "runs": [run(workload, batches, speed * (1 + n / 10)) for n in range(RUNS)]}
        if of.watched:
            peers[name]["memory"] = {"memory_before_bytes": 100e6, "peak_bytes": 1e9 / speed}
    return {"workload": described, "peers": peers}


def messages():
    peers = {}
    for place, name in enumerate(CHANNELS, 1):
        runs = [{"1p1c": 1e6 / place + n, "2p1c": 9e5 / place, "p50_s": 1e-5, "p99_s": 9e-5} for n in range(RUNS)]
        peers[name] = {"label": name, "runs": runs}
    return {"peers": peers, "skipped": {}, "failures": {}, "versions": {}}


def scaling():
    powers = [2**n for n in range(3, 13)]
    curves = {
        "batches": [{"batches": 2000 * n, "us": 30 + n % 3} for n in range(1, 51)],
        "workers": [{"workers": 2**n, "batches_per_s": 400 - n, "first_s": 0.1 * n} for n in range(7)],
        "slots": [{"slots": n, "empty_ns": 900, "full_ns": 950 + n / 100} for n in powers],
    }
    return {"curves": curves, "failures": {}}


def result():
    return {
        "date": "2000-01-01",
        "size": "quick",
        "runs": RUNS,
        "minutes": 9,
        "machine": MACHINE,
        "load_afterwards": 2.0,
        "loaders": {
            "cells": {of.key: cell(of) for of in plan.quick()},
            "skipped": {"grain": "No module named 'grain'"},
            "failures": {"img/nothing/4, pyzmq": "exit code 1: ValueError: batch 0 does not begin"},
            "versions": {"numpy": "2.0.0", "torch": "2.13.0"},
        },
        "messages": messages(),
        "scaling": scaling(),
        "c": {
            "peers": {"ringbuf": {"label": "ringbuf"}},
            "tables": {
                "throughput": {
                    "title": "Million messages/s",
                    "columns": ["1p1c", "2p2c"],
                    "rows": {"ringbuf": {"1p1c": {"median": 4.1, "min": 4.0, "max": 4.2}}},
                }
            },
            "recovery": {"a claim that polls": {"median": 1.5, "min": 1.0, "max": 2.0}},
            "failures": [],
        },
    }
