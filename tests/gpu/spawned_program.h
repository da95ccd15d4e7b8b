// A program started beside this one, with some variables of its own.
#pragma once

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

extern char** environ;

namespace tilewire {

// A new one for temporary files, with this word in its name. Throws std::runtime_error.
inline std::filesystem::path make_folder(const std::string& word) {
  std::string name = (std::filesystem::temp_directory_path() / ("tilewire-" + word + "-XXXXXX")).string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no folder for " + word);
  return name;
}

class SpawnedProgram {
 public:
  // `variables`: NAME=value, in place of those of this process. `input`, `output`: what it reads and writes, -1 for those
  // of this process.
  SpawnedProgram(std::vector<std::string> words, std::vector<std::string> variables, int input = -1, int output = -1) {
    std::vector<char*> args, env;
    for (std::string& word : words) args.push_back(word.data());
    args.push_back(nullptr);
    for (char** e = environ; *e != nullptr; ++e) {
      bool is_replaced = false;
      for (const std::string& v : variables) {
        is_replaced = is_replaced || std::strncmp(*e, v.c_str(), v.find('=') + 1) == 0;
      }
      if (!is_replaced) env.push_back(*e);
    }
    for (std::string& v : variables) env.push_back(v.data());
    env.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (input >= 0) posix_spawn_file_actions_adddup2(&actions, input, 0);
    if (output >= 0) posix_spawn_file_actions_adddup2(&actions, output, 1);
    const int result = posix_spawn(&pid_, args[0], &actions, nullptr, args.data(), env.data());
    posix_spawn_file_actions_destroy(&actions);
    if (result != 0) throw std::runtime_error(words[0] + ": " + std::strerror(result));
  }
  ~SpawnedProgram() {
    if (pid_ > 0) wait(std::chrono::seconds(0));
  }
  SpawnedProgram(SpawnedProgram&& other) noexcept : pid_(other.pid_) { other.pid_ = -1; }
  SpawnedProgram& operator=(SpawnedProgram&&) = delete;

  pid_t pid() const { return pid_; }
  // The exit status, or minus the signal. What runs longer than `limit` is killed.
  int wait(std::chrono::milliseconds limit) {
    const auto end = std::chrono::steady_clock::now() + limit;
    int status = 0;
    for (;;) {
      const pid_t got = waitpid(pid_, &status, WNOHANG);
      if (got == pid_) break;
      if (got < 0 && errno != EINTR) throw std::runtime_error(std::strerror(errno));
      if (std::chrono::steady_clock::now() >= end) {
        kill(pid_, SIGKILL);
        waitpid(pid_, &status, 0);
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  pid_t pid_ = -1;
};

}  // namespace tilewire
