"""ringbuf for torch: `from ringbuf.torch import RingLoader as DataLoader`."""

from ringbuf.torch.loader import RingLoader

__all__ = ["RingLoader"]

RingLoader.__module__ = __name__
