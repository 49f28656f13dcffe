"""One contract, two loaders: every test runs over torch's DataLoader first and over ringbuf.torch.RingLoader second.

torch is the judge: where its loader fails a test, the test is wrong. Where the two differ on purpose, the test says
what each one does, and why ours does not follow (`either()` in expect.py).
"""
