// Which process this is, for what is of no use in a child made by fork().
#pragma once

#include <cstdint>

namespace tilewire {

// Above 0; another one in each child, and again in its children. A read of memory where the kernel can wipe a page for
// the child: getpid() is a system call, and a call of a GPU rank would make many. Any thread.
uint64_t process_generation();

}  // namespace tilewire
