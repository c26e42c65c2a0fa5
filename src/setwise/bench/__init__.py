"""Benchmarks: side-by-side measurements in one run, written as records that docs are made from."""
