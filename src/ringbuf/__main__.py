"""`python -m ringbuf` is `ringbuf`."""

import sys

from ringbuf.cli import main

if __name__ == "__main__":  # and not where a spawned worker reads it again
    sys.exit(main())
