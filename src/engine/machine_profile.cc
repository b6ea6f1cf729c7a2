#include "engine/machine_profile.h"

#include <cinttypes>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "base/file_map.h"
#include "base/json.h"
#include "convert/cache.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;
constexpr int64_t kVersion = 1;
constexpr size_t kSamplesMax = 4096;

std::string hex(uint64_t n) {
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, n);
  return text;
}

uint64_t fnv(std::string_view text) {
  uint64_t h = 0xcbf29ce484222325ull;
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3ull;
  return h;
}

Value machine_of(const ProfileKey& k) {
  Value v = Value::object();
  v.set("cpu", k.cpu);
  v.set("cores", int64_t{k.cores});
  v.set("kernels", k.kernels);
  v.set("threads", int64_t{k.threads});
  return v;
}

Value model_of(const ProfileKey& k) {
  Value v = Value::object();
  v.set("program", hex(k.program));
  v.set("weights", k.weights);
  v.set("kv", k.kv);
  return v;
}

Value list_of(const std::vector<CostSample>& samples) {
  Value list = Value::array();
  for (const CostSample& s : samples) {
    Value v = Value::object();
    v.set("rows", int64_t{s.rows});
    v.set("context", s.context);
    v.set("ms", s.ms);
    list.push(std::move(v));
  }
  return list;
}

Result<double> number(const Value& from, const char* key, double least, double most) {
  const Value* v = from.find(key);
  if (v == nullptr || !v->is_number() || !(v->as_double() >= least && v->as_double() <= most))
    return corrupt(std::string(key) + ": expected a number from " + std::to_string(least) + " to " + std::to_string(most));
  return v->as_double();
}

Result<std::vector<CostSample>> samples_of(const Value* list, double rows_max) {
  if (list == nullptr || !list->is_array() || list->as_array().size() > kSamplesMax) return corrupt("times: expected a list");
  std::vector<CostSample> out;
  for (const Value& v : list->as_array()) {
    CostSample s;
    ESPALIER_ASSIGN(const double rows, number(v, "rows", 1, rows_max));
    ESPALIER_ASSIGN(s.context, number(v, "context", 0, 1e9));
    ESPALIER_ASSIGN(s.ms, number(v, "ms", 1e-6, 1e9));
    s.rows = static_cast<int32_t>(rows);
    out.push_back(s);
  }
  return out;
}

Result<MachineProfile> read(std::span<const std::byte> bytes, const ProfileKey& key) {
  ESPALIER_ASSIGN(const Value v, parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
  const Value* version = v.find("version");
  if (version == nullptr || !version->is_int() || version->as_int() != kVersion) return corrupt("it has another version");
  const Value *machine = v.find("machine"), *model = v.find("model");
  if (machine == nullptr || model == nullptr || !(*machine == machine_of(key)) || !(*model == model_of(key)))
    return corrupt("it was measured on another machine, or with another model");
  MachineProfile out{key, {}, {}};
  ESPALIER_ASSIGN(out.samples, samples_of(v.find("target"), kDraftRowsMax));
  if (out.samples.empty()) return corrupt("it holds no times");
  const Value* drafter = v.find("drafter");
  if (drafter == nullptr || !drafter->is_array() || drafter->as_array().size() > kSamplesMax) return corrupt("drafter: expected a list");
  for (const Value& d : drafter->as_array()) {
    DrafterTimes t;
    ESPALIER_ASSIGN(t.context, number(d, "context", 0, 1e9));
    ESPALIER_ASSIGN(t.block_ms, number(d, "block_ms", 1e-6, 1e9));
    ESPALIER_ASSIGN(t.context_ms, samples_of(d.find("reads"), 1e6));
    out.drafter.push_back(std::move(t));
  }
  return out;
}

Status write(const std::string& path, const std::string& text) {
  std::error_code error;
  fs::create_directories(fs::path(path).parent_path(), error);
  const std::string fresh = path + ".new";
  {
    std::ofstream file(fresh, std::ios::binary | std::ios::trunc);
    file << text;
    file.close();
    if (!file) return {Code::io, fresh + ": cannot be written"};
  }
  fs::rename(fresh, path, error);
  if (error) return {Code::io, path + ": " + error.message()};
  return {};
}

}  // namespace

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name") && !line.starts_with("CPU part")) continue;
    const size_t colon = line.find(':');
    if (colon != std::string::npos && line.size() > colon + 2) return line.substr(colon + 2);
  }
  return "unknown";
}

Result<std::string> profile_path(const ProfileKey& key) {
  ESPALIER_ASSIGN(const std::string root, cache_root());
  return (fs::path(root) / "profile" / (hex(fnv(to_json(machine_of(key)))) + "-" + hex(fnv(to_json(model_of(key)))) + ".json")).string();
}

Result<MachineProfile> load_profile(const ProfileKey& key) {
  ESPALIER_ASSIGN(const std::string path, profile_path(key));
  ESPALIER_ASSIGN(const FileMap map, FileMap::open(path));
  auto out = read(map.bytes(), key);
  if (!out.ok()) return corrupt(path + " is not used: " + out.status().message() + "; `espalier profile` measures again");
  return out;
}

Status store_profile(const MachineProfile& profile) {
  ESPALIER_ASSIGN(const std::string path, profile_path(profile.key));
  Value v = Value::object();
  v.set("version", kVersion);
  v.set("machine", machine_of(profile.key));
  v.set("model", model_of(profile.key));
  v.set("target", list_of(profile.samples));
  Value drafter = Value::array();
  for (const DrafterTimes& t : profile.drafter) {
    Value d = Value::object();
    d.set("context", t.context);
    d.set("block_ms", t.block_ms);
    d.set("reads", list_of(t.context_ms));
    drafter.push(std::move(d));
  }
  v.set("drafter", std::move(drafter));
  return write(path, to_json(v, 1) + "\n");
}

}  // namespace espalier
