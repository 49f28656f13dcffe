"""The door to pyzmq, which only servers and clients of other machines need."""

try:
    import zmq
    from zmq.utils import z85
except ImportError as error:
    raise ImportError("servers and clients of other machines need pyzmq: pip install 'ringloader[net]'") from error

__all__ = ["z85", "zmq"]
