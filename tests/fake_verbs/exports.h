// The library's functions have C names, of which nothing else says the types: those of transport/verbs/table.h.
#pragma once

#define EXPORT extern "C" __attribute__((visibility("default")))
