// Runs the program and keeps its exit code, stdout and stderr.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"

namespace espalier::test {

const std::string kModels = std::string(ESPALIER_SOURCE_DIR) + "/tests/fixtures/models/";
const std::string kModel = kModels + "lfm2-f32";

struct Ran {
  int code = -1;
  std::string out, err;
};

// One for the whole test program; the cache is inside.
std::string temporary_folder();
// `interrupt_at`: SIGINT once stdout has as many bytes.
Ran run(std::vector<std::string> words, const std::string& input = {}, size_t interrupt_at = 0);
Value json(const Ran& ran);
// In the temporary folder; returns the path.
std::string write_file(const std::string& name, const std::string& text);
bool has(const std::string& text, const std::string& part);

}  // namespace espalier::test
