#include "engine/free_memory.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <sstream>

namespace espalier {
namespace {

std::string read(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// The number behind `key` and blanks at the start of a line.
std::optional<uint64_t> number_after(std::string_view text, std::string_view key) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    at = end + 1;
    if (!line.starts_with(key)) continue;
    line.remove_prefix(key.size());
    while (!line.empty() && (line.front() == ' ' || line.front() == '\t')) line.remove_prefix(1);
    uint64_t value = 0;
    if (std::from_chars(line.data(), line.data() + line.size(), value).ec == std::errc()) return value;
  }
  return std::nullopt;
}

// The folder of this process in the unified hierarchy.
std::string cgroup_folder() {
  const std::string text = read("/proc/self/cgroup");
  const size_t at = text.find("0::");
  if (at == std::string::npos) return {};
  const size_t end = text.find('\n', at);
  return "/sys/fs/cgroup" + text.substr(at + 3, end == std::string::npos ? end : end - at - 3);
}

}  // namespace

std::optional<uint64_t> mem_available(std::string_view meminfo) {
  const auto kilobytes = number_after(meminfo, "MemAvailable:");
  if (!kilobytes || *kilobytes > UINT64_MAX / 1024) return std::nullopt;
  return *kilobytes * 1024;
}

std::optional<uint64_t> cgroup_left(std::string_view max, std::string_view current, std::string_view stat) {
  const auto limit = number_after(max, ""), used = number_after(current, "");
  if (!limit || !used) return std::nullopt;
  const uint64_t droppable = std::min(number_after(stat, "inactive_file").value_or(0), *used);
  const uint64_t held = *used - droppable;
  return *limit > held ? *limit - held : 0;
}

std::optional<uint64_t> free_memory() {
  std::optional<uint64_t> least = mem_available(read("/proc/meminfo"));
  const auto take = [&](const std::string& folder) {
    const auto left = cgroup_left(read(folder + "/memory.max"), read(folder + "/memory.current"), read(folder + "/memory.stat"));
    if (left) least = std::min(least.value_or(UINT64_MAX), *left);
  };
  // A limit may stand at any folder above the process.
  for (std::string folder = cgroup_folder(); folder.size() >= std::string("/sys/fs/cgroup").size();) {
    take(folder);
    const size_t cut = folder.rfind('/');
    if (folder == "/sys/fs/cgroup" || cut == std::string::npos) break;
    folder.resize(cut);
  }
  return least;
}

std::string gigabytes(uint64_t bytes) {
  char text[32];
  snprintf(text, sizeof text, "%.2f GB", static_cast<double>(bytes) / 1e9);
  return text;
}

}  // namespace espalier
