// Files of a model folder, by the rules for names and symbolic links.
//
// A file is named by a plain name (no separator, not "." or ".."). A symbolic link is followed only inside a hub cache's
// own snapshot folder ("<cache>/snapshots/<revision>/...") and only to a file in "<cache>/blobs"; any other is refused.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/file_map.h"
#include "base/value.h"
#include "espalier/status.h"

namespace espalier {

class ModelFolder {
 public:
  // Resolves the folder itself (the user named it). Fails when it is not a folder.
  static Result<ModelFolder> open(const std::string& path);

  const std::string& path() const { return path_; }
  bool has(std::string_view name) const;  // anything of that name, links included
  std::vector<std::string> list() const;  // plain names, sorted
  // A folder inside this one, by the same rules (never a link).
  Result<ModelFolder> inner(const std::string& name) const;

  // The path to open for `name`, links resolved. not_found when there is none.
  Result<std::string> resolve(const std::string& name) const;
  Result<FileMap> map(const std::string& name) const;
  // The text of a file of at most `max` bytes; both sizes are named when it has more.
  Result<std::string> text(const std::string& name, uint64_t max) const;
  // The object in a JSON file; null when there is no such file.
  Result<Value> json_object(const std::string& name) const;

 private:
  Status check_link(const std::string& name, const std::string& target) const;
  std::string path_;
};

// "name": plain, as above. The status says what is wrong with it.
Status check_plain_name(const std::string& name);

}  // namespace espalier
