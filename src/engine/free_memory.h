// How much memory this process may still take: of the machine and of its control group, the smaller.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace espalier {

// Bytes, or nothing where the system does not say.
std::optional<uint64_t> free_memory();

// "MemAvailable:   12345 kB" of /proc/meminfo's text, in bytes.
std::optional<uint64_t> mem_available(std::string_view meminfo);
// What is left under a cgroup limit: max - current, file pages that can be dropped (`inactive` of memory.stat) given back.
// Nothing for "max".
std::optional<uint64_t> cgroup_left(std::string_view max, std::string_view current, std::string_view stat,
                                    std::string_view inactive = "inactive_file");
// The path of the process's memory group in the text of /proc/self/cgroup: of the unified hierarchy (cgroup v2), or of v1's
// memory controller.
std::optional<std::string> memory_group(std::string_view groups, bool unified);

std::string gigabytes(uint64_t bytes);  // "2.71 GB"

}  // namespace espalier
