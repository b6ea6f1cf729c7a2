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

// One way in which a kernel tells of memory limits.
struct Hierarchy {
  std::string root;
  const char *max, *current, *inactive;  // the files, and the key of memory.stat that counts droppable pages
};

// The least that any folder from `path` up to the root of the hierarchy leaves.
std::optional<uint64_t> least_left(const Hierarchy& h, const std::string& path) {
  std::optional<uint64_t> least;
  for (std::string folder = h.root + path; folder.size() >= h.root.size(); folder.resize(folder.rfind('/'))) {
    const auto left = cgroup_left(read(folder + h.max), read(folder + h.current), read(folder + "/memory.stat"), h.inactive);
    if (left) least = std::min(least.value_or(UINT64_MAX), *left);
  }
  return least;
}

}  // namespace

std::optional<uint64_t> mem_available(std::string_view meminfo) {
  const auto kilobytes = number_after(meminfo, "MemAvailable:");
  if (!kilobytes || *kilobytes > UINT64_MAX / 1024) return std::nullopt;
  return *kilobytes * 1024;
}

std::optional<uint64_t> cgroup_left(std::string_view max, std::string_view current, std::string_view stat, std::string_view inactive) {
  const auto limit = number_after(max, ""), used = number_after(current, "");
  if (!limit || !used) return std::nullopt;
  const uint64_t droppable = std::min(number_after(stat, inactive).value_or(0), *used);
  const uint64_t held = *used - droppable;
  return *limit > held ? *limit - held : 0;
}

std::optional<std::string> memory_group(std::string_view groups, bool unified) {
  while (!groups.empty()) {
    const std::string_view line = groups.substr(0, groups.find('\n'));
    groups.remove_prefix(std::min(line.size() + 1, groups.size()));
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    const std::string controllers = "," + std::string(line.substr(first + 1, second - first - 1)) + ",";
    if (unified ? controllers == ",," : controllers.find(",memory,") != std::string::npos) return std::string(line.substr(second + 1));
  }
  return std::nullopt;
}

std::optional<uint64_t> free_memory() {
  const Hierarchy unified{"/sys/fs/cgroup", "/memory.max", "/memory.current", "inactive_file"};
  const Hierarchy legacy{"/sys/fs/cgroup/memory", "/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file"};
  std::optional<uint64_t> least = mem_available(read("/proc/meminfo"));
  const std::string groups = read("/proc/self/cgroup");
  for (const Hierarchy* h : {&unified, &legacy}) {
    const auto path = memory_group(groups, h == &unified);
    if (!path) continue;
    const auto left = least_left(*h, *path);
    if (left) least = std::min(least.value_or(UINT64_MAX), *left);
  }
  return least;
}

std::string gigabytes(uint64_t bytes) {
  char text[32];
  snprintf(text, sizeof text, "%.2f GB", static_cast<double>(bytes) / 1e9);
  return text;
}

}  // namespace espalier
