"""Arrays in GPU memory, for communicators of GPU ranks. No library is imported for it: only those that the program has
imported are asked whether an array is theirs."""
