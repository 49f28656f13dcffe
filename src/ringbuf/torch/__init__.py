"""ringbuf for torch: `from ringbuf.torch import RingLoader as DataLoader`."""

from importlib.util import find_spec

if find_spec("torch") is None:
    raise ImportError("ringbuf.torch is the RingLoader for tensors, and torch is not here: pip install torch")

from ringbuf.torch.loader import RingLoader

__all__ = ["RingLoader"]

RingLoader.__module__ = __name__
