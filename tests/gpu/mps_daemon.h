// A private MPS daemon, so that kernels of several processes run on one GPU at once. Its folders go with it.
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "spawned_program.h"

namespace tilewire {

// "" where there is none.
inline std::string find_mps_control() {
  std::string folders = std::getenv("PATH") != nullptr ? std::getenv("PATH") : "";
  folders += ":/usr/local/nvidia/bin:/usr/bin";
  for (size_t begin = 0; begin < folders.size();) {
    const size_t end = std::min(folders.find(':', begin), folders.size());
    const std::string path = folders.substr(begin, end - begin) + "/nvidia-cuda-mps-control";
    if (access(path.c_str(), X_OK) == 0) return path;
    begin = end + 1;
  }
  return "";
}

class MpsDaemon {
 public:
  // Throws std::runtime_error when it does not start.
  explicit MpsDaemon(const std::string& control) : control_(control), folder_(make_folder("mps")) {
    if (SpawnedProgram({control_, "-d"}, environment()).wait(std::chrono::seconds(20)) != 0) {
      std::filesystem::remove_all(folder_);
      throw std::runtime_error("the MPS daemon does not start");
    }
  }
  ~MpsDaemon() {
    tell("quit -t 5\n");
    for (int i = 0; i < 200 && std::filesystem::exists(folder_ / "nvidia-cuda-mps-control.pid"); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  MpsDaemon(const MpsDaemon&) = delete;
  MpsDaemon& operator=(const MpsDaemon&) = delete;

  // For programs that shall be its clients.
  std::vector<std::string> environment() const {
    return {"CUDA_MPS_PIPE_DIRECTORY=" + folder_.string(), "CUDA_MPS_LOG_DIRECTORY=" + folder_.string()};
  }

 private:
  void tell(const std::string& command) const {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return;
    {
      SpawnedProgram control({control_}, environment(), ends[0]);
      close(ends[0]);
      const bool is_written = write(ends[1], command.data(), command.size()) == static_cast<ssize_t>(command.size());
      close(ends[1]);
      if (is_written) control.wait(std::chrono::seconds(20));
    }
  }

  std::string control_;
  std::filesystem::path folder_;
};

}  // namespace tilewire
