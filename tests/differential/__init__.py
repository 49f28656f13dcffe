"""torch's loader and ours with the same arguments and seeds, on datasets that hypothesis thinks up: no difference but the
documented ones."""
