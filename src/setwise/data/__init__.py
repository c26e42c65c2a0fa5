"""Data: sets as tensors, and (in time) the data sets of the paper."""
