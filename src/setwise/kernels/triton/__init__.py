"""The pairwise engine on CUDA: tiles of scores are computed, reduced and discarded.

`points` serves elements of a few features with plain multiply-adds, `products` all others with
matrix products; `engine` chooses between them and fits the grid to the device.
"""
