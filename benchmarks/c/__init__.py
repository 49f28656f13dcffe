"""C peers: one program for each, built by CMake; `python -m benchmarks.c` builds and runs them in turn."""
