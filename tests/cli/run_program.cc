#include "run_program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace espalier::test {

std::string temporary_folder() {
  static const std::string folder = [] {
    std::string name = std::filesystem::temp_directory_path() / "espalier-cli-XXXXXX";
    return std::string(mkdtemp(name.data()));
  }();
  return folder;
}

Ran run(std::vector<std::string> words, const std::string& input, size_t interrupt_at) {
  int in[2], out[2], err[2];
  EXPECT_EQ(pipe(in) | pipe(out) | pipe(err), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(in[0], 0);
    dup2(out[1], 1);
    dup2(err[1], 2);
    for (const int fd : {in[0], in[1], out[0], out[1], err[0], err[1]}) close(fd);
    setenv("ESPALIER_CACHE", (temporary_folder() + "/cache").c_str(), 1);
    words.insert(words.begin(), ESPALIER_PROGRAM);
    std::vector<char*> argv;
    for (std::string& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    execv(ESPALIER_PROGRAM, argv.data());
    _exit(99);
  }
  for (const int fd : {in[0], out[1], err[1]}) close(fd);
  signal(SIGPIPE, SIG_IGN);
  fcntl(in[1], F_SETFL, O_NONBLOCK);
  Ran ran;
  size_t written = 0;
  bool open_out = true, open_err = true, open_in = true, sent = false;
  while (open_out || open_err) {
    pollfd fds[3] = {{open_out ? out[0] : -1, POLLIN, 0}, {open_err ? err[0] : -1, POLLIN, 0}, {open_in ? in[1] : -1, POLLOUT, 0}};
    poll(fds, 3, 20000);
    char buffer[65536];
    const auto take = [&](pollfd& fd, std::string& text, bool& open) {
      if (fd.fd < 0 || fd.revents == 0) return;
      const ssize_t n = read(fd.fd, buffer, sizeof buffer);
      if (n > 0) text.append(buffer, static_cast<size_t>(n));
      else open = false;
    };
    take(fds[0], ran.out, open_out);
    take(fds[1], ran.err, open_err);
    if (fds[2].fd >= 0 && fds[2].revents != 0) {
      const ssize_t n = write(in[1], input.data() + written, input.size() - written);
      if (n > 0) written += static_cast<size_t>(n);
      if (n < 0 || written == input.size()) {
        close(in[1]);
        open_in = false;
      }
    }
    if (interrupt_at > 0 && !sent && ran.out.size() >= interrupt_at) {
      kill(child, SIGINT);
      sent = true;
    }
  }
  if (open_in) close(in[1]);
  close(out[0]);
  close(err[0]);
  int status = 0;
  waitpid(child, &status, 0);
  ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ran;
}

Value json(const Ran& ran) {
  auto value = parse_json(ran.out);
  EXPECT_TRUE(value.ok()) << ran.out << ran.err;
  return value.ok() ? *value : Value();
}

std::string write_file(const std::string& name, const std::string& text) {
  const std::string path = temporary_folder() + "/" + name;
  std::ofstream(path) << text;
  return path;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace espalier::test
