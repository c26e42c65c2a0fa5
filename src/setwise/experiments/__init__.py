"""Many trainings at once, recorded so that every published number can be traced and repeated."""
