#include "weights/folder.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include "base/json.h"
#include "weights/config_reader.h"

namespace espalier {
namespace {

constexpr uint64_t kJsonMax = 512ull << 20;
constexpr int kSnapshotDepthMax = 4;

std::string parent(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos || slash == 0 ? "/" : path.substr(0, slash);
}
std::string last(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// The path without links, or empty.
std::string real(const std::string& path) {
  char* resolved = ::realpath(path.c_str(), nullptr);
  if (resolved == nullptr) return {};
  std::string text = resolved;
  std::free(resolved);
  return text;
}

}  // namespace

Status check_plain_name(const std::string& name) {
  const bool plain = !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
                     name.find('\\') == std::string::npos && name.find('\0') == std::string::npos;
  if (plain) return {};
  return corrupt("\"" + name + "\": expected the plain name of a file inside the model's folder", name);
}

Result<ModelFolder> ModelFolder::open(const std::string& path) {
  ModelFolder folder;
  folder.path_ = real(path);
  if (folder.path_.empty()) return Status(Code::not_found, path + ": cannot be opened: " + std::strerror(errno));
  struct stat st;
  if (::stat(folder.path_.c_str(), &st) != 0 || !S_ISDIR(st.st_mode)) return invalid(path + ": expected a folder");
  return folder;
}

bool ModelFolder::has(std::string_view name) const {
  struct stat st;
  return ::lstat((path_ + "/" + std::string(name)).c_str(), &st) == 0;
}

std::vector<std::string> ModelFolder::list() const {
  std::vector<std::string> names;
  DIR* dir = ::opendir(path_.c_str());
  if (dir == nullptr) return names;
  while (const dirent* entry = ::readdir(dir)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  ::closedir(dir);
  std::sort(names.begin(), names.end());
  return names;
}

Status ModelFolder::check_link(const std::string& name, const std::string& target) const {
  std::string at = path_;
  for (int depth = 0; depth < kSnapshotDepthMax && at != "/"; ++depth, at = parent(at)) {
    if (last(parent(at)) != "snapshots") continue;
    const std::string blobs = real(parent(parent(at)) + "/blobs");
    if (!blobs.empty() && !target.empty() && parent(target) == blobs) return {};
  }
  return invalid(path_ + "/" + name + ": a symbolic link that does not lead from a hub cache's snapshot into its blobs is "
                 "not followed; put the file itself there", name);
}

Result<std::string> ModelFolder::resolve(const std::string& name) const {
  ESPALIER_TRY(check_plain_name(name).with_context(path_));
  const std::string path = path_ + "/" + name;
  struct stat st;
  if (::lstat(path.c_str(), &st) != 0)
    return Status(errno == ENOENT ? Code::not_found : Code::io, path + ": cannot be opened: " + std::strerror(errno), name);
  if (!S_ISLNK(st.st_mode)) return path;
  const std::string target = real(path);
  ESPALIER_TRY(check_link(name, target));
  return target;
}

Result<ModelFolder> ModelFolder::inner(const std::string& name) const {
  ESPALIER_TRY(check_plain_name(name).with_context(path_));
  ModelFolder folder;
  folder.path_ = path_ + "/" + name;
  struct stat st;
  if (::lstat(folder.path_.c_str(), &st) != 0 || !S_ISDIR(st.st_mode))
    return Status(Code::not_found, folder.path_ + ": expected a folder");
  return folder;
}

Result<FileMap> ModelFolder::map(const std::string& name) const {
  ESPALIER_ASSIGN(const std::string path, resolve(name));
  return FileMap::open(path);
}

Result<std::string> ModelFolder::text(const std::string& name, uint64_t max) const {
  ESPALIER_ASSIGN(const FileMap file, map(name));
  if (file.size() > max) {
    return corrupt(path_ + "/" + name + ": expected at most " + std::to_string(max) + " bytes, found " +
                   std::to_string(file.size()), name);
  }
  return std::string(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
}

Result<Value> ModelFolder::json_object(const std::string& name) const {
  if (!has(name)) return Value();
  ESPALIER_ASSIGN(const std::string json, text(name, kJsonMax));
  Result<Value> value = parse_json(json);
  if (!value.ok()) return std::move(value).status().with_context(path_ + "/" + name);
  if (!value->is_object()) return corrupt(path_ + "/" + name + ": expected an object, found " + kind_of(*value), name);
  return value;
}

}  // namespace espalier
