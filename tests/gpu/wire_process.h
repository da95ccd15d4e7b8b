// The wire process between the nodes of ranks that share a GPU, started beside them. It ends with the object, or with
// this process.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "spawned_program.h"

namespace tilewire {

class WireProcess {
 public:
  // `variables`: what the ranks get too, the secret and the MPS daemon's. Throws std::runtime_error when it does not say
  // that it is ready.
  WireProcess(const std::string& program, std::vector<std::string> variables) : folder_(make_folder("wire")) {
    variables.push_back(variable());
    Pipe input, output;
    program_ = std::make_unique<SpawnedProgram>(std::vector<std::string>{program}, variables, input.read.get(),
                                                output.write.get());
    keeps_it_ = std::move(input.write);
    output.write.reset();
    if (!says_ready(output.read.get())) {
      throw std::runtime_error("the wire process is not ready, it ended with " + std::to_string(end()));
    }
  }
  ~WireProcess() {
    end();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  WireProcess(const WireProcess&) = delete;
  WireProcess& operator=(const WireProcess&) = delete;

  // For the ranks.
  std::string variable() const { return "TILEWIRE_WIRE=" + (folder_ / "wire").string(); }
  pid_t pid() const { return program_->pid(); }
  // As its launcher ends it; the exit status, or minus the signal.
  int end() {
    keeps_it_.reset();
    if (program_) {
      status_ = program_->wait(std::chrono::seconds(20));
      program_.reset();
    }
    return status_;
  }

 private:
  struct Pipe {
    UniqueFd read, write;
    Pipe() {
      int ends[2];
      if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
      read.reset(ends[0]);
      write.reset(ends[1]);
    }
  };

  static bool says_ready(int fd) {
    std::string text;
    pollfd entry{fd, POLLIN, 0};
    while (text.find('\n') == std::string::npos && poll(&entry, 1, 30000) > 0) {
      char bytes[64];
      const ssize_t got = read(fd, bytes, sizeof(bytes));
      if (got <= 0) return false;
      text.append(bytes, static_cast<size_t>(got));
    }
    return text.starts_with("ready ");
  }

  std::filesystem::path folder_;
  UniqueFd keeps_it_;
  std::unique_ptr<SpawnedProgram> program_;
  int status_ = 0;
};

}  // namespace tilewire
