"""One file per table of the paper; each gives the configs of its runs."""
