"""The pairwise engine: reductions over scores that are never stored when large.

Users call the losses; nothing here checks its arguments.
"""
