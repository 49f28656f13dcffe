"""Python peers: one file each in `peers`, one fresh process for each run."""
