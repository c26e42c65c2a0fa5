"""The pairwise engine on CUDA: tiles of scores are computed, reduced and discarded.

`points` serves elements of a few features with plain multiply-adds, `matmul` all others with matrix
products; `engine` chooses between them, and `plans` fit the grid to the device.
"""
