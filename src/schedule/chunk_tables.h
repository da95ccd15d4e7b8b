// Owner of the tables behind a ChunkMap. Host only.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/chunk_map.h"

namespace tilewire {

// So many things dealt out evenly: the first parts get one more where there is a rest.
std::vector<int64_t> dealt_evenly(int64_t total, int32_t parts);

class ChunkTables {
 public:
  ChunkTables() = default;
  // rows[s] >= 0 for each source. With `moves_data` false (rows of no bytes) there are no chunks at all.
  // Throws Error(invalid_argument) on negative counts or chunk_rows < 1.
  ChunkTables(const std::vector<int64_t>& rows, int64_t chunk_rows, bool moves_data = true);

  ChunkMap view() const;

 private:
  int64_t chunk_rows_ = 1;
  std::vector<int64_t> row_begin_{0};
  std::vector<int32_t> chunk_begin_{0};
};

}  // namespace tilewire
