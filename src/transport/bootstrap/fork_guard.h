// Keeps forked children from holding control sockets open: a child that outlives its parent (a data loader's worker,
// say) would hide the parent's death, because no end-of-file would reach the other ranks.
#pragma once

namespace tilewire {

// From now on a child made by fork() closes `fd` before it runs anything else, until remove_from_child_close(fd).
// Thread-safe. exec needs none of it: the descriptors are close-on-exec.
void close_in_child(int fd);
void remove_from_child_close(int fd);

}  // namespace tilewire
