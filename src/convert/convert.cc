#include "convert/convert.h"

#include <filesystem>
#include <fstream>

#include "base/json.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;

Status io_error(const fs::path& path, const std::string& what) { return {Code::io, path.string() + ": " + what}; }

Status write_text(const fs::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  return file ? Status() : io_error(path, "could not be written");
}

Status write_json(const fs::path& path, const Value& value) { return value.is_null() ? Status() : write_text(path, to_json(value, 2) + "\n"); }

Status write_small_files(const Checkpoint& c, const fs::path& folder) {
  ESPALIER_TRY(write_json(folder / "config.json", c.config()));
  ESPALIER_TRY(write_json(folder / "generation_config.json", c.generation_config()));
  const bool own_tokenizer = c.config().find("tokenizer.ggml.model") == nullptr;  // GGUF: inside config.json
  if (own_tokenizer) ESPALIER_TRY(write_json(folder / "tokenizer.json", c.tokenizer()));
  ESPALIER_TRY(write_json(folder / "tokenizer_config.json", c.tokenizer_config()));
  if (!c.chat_template().empty()) ESPALIER_TRY(write_text(folder / "chat_template.jinja", c.chat_template()));
  for (const std::string& file : c.attribution_files()) {
    std::error_code error;
    fs::copy_file(file, folder / fs::path(file).filename(), fs::copy_options::overwrite_existing, error);
    if (error) return io_error(file, error.message());
  }
  return {};
}

Status check_target(const fs::path& out) {
  std::error_code error;
  if (out.empty()) return invalid("the name of the new folder is empty", "OUT");
  if (!fs::exists(out, error)) return {};
  if (fs::is_directory(out, error) && fs::is_empty(out, error)) return {};
  return invalid(out.string() + " exists already: expected a new name or an empty folder", "OUT");
}

std::string full_identity(const Checkpoint& checkpoint) {
  Value v = Value::object();
  std::error_code error;
  v.set("path", fs::weakly_canonical(checkpoint.path(), error).string());
  v.set("files", source_identity(checkpoint));
  v.set("content", content_hashes(checkpoint));
  return to_json(v);
}

using WriteWeights = std::function<Status(const fs::path& folder, FileLock lock, const std::string& identity)>;

Status write_folder(const Checkpoint& checkpoint, const fs::path& folder, const WriteWeights& write) {
  ESPALIER_TRY(write_small_files(checkpoint, folder));
  const std::string identity = full_identity(checkpoint);
  ESPALIER_ASSIGN(FileLock lock, FileLock::acquire((folder / "model.espalier").string()));
  return write(folder, std::move(lock), identity);
}

Status make_folder(const Checkpoint& checkpoint, const ModelPlan& plan, const std::string& out, const WriteWeights& write) {
  if (is_converted(checkpoint.kind())) return invalid(checkpoint.path() + " is converted already: copy the folder");
  fs::path target(out);
  if (!target.has_filename()) target = target.parent_path();  // a trailing slash
  ESPALIER_TRY(check_target(target));
  const fs::path made(target.string() + ".tmp-" + std::to_string(program_hash(plan.program) & 0xffffff));
  std::error_code error;
  fs::remove_all(made, error);
  fs::create_directories(made, error);
  if (error) return io_error(target, "the folder cannot be made: " + error.message());
  Status status = write_folder(checkpoint, made, write);
  if (status.ok()) {
    fs::remove(target, error);  // an empty folder
    fs::rename(made, target, error);
    if (error) status = io_error(target, error.message());
  }
  if (!status.ok()) fs::remove_all(made, error);
  return status;
}

}  // namespace

Status convert_model(const Checkpoint& checkpoint, const ModelPlan& plan, WeightsForm form, const std::string& out, ThreadTeam& team, const PackProgress& progress) {
  return make_folder(checkpoint, plan, out, [&](const fs::path&, FileLock lock, const std::string& identity) -> Status {
    ESPALIER_ASSIGN(const WeightSet weights, bind_weights(plan, checkpoint));
    return write_packed(std::move(lock), plan.program, weights, form, identity, team, progress);
  });
}

Result<Value> convert_for_npu(const Checkpoint& checkpoint, const ModelPlan& plan, const CalibrationText* text, const std::string& out, uint32_t threads,
                              const CalibrationProgress& progress) {
  Value report;
  ESPALIER_TRY(make_folder(checkpoint, plan, out, [&](const fs::path& folder, FileLock lock, const std::string& identity) -> Status {
    ESPALIER_ASSIGN(const WeightSet weights, bind_weights(plan, checkpoint));
    std::optional<NpuScales> scales;
    if (text != nullptr) {
      ESPALIER_ASSIGN(scales, calibrate(plan, weights, *text, threads, progress));
      report = npu_report_json(plan.program, *scales);
      ESPALIER_TRY(write_json(folder / "npu-report.json", report));
    }
    return write_npu(std::move(lock), plan.program, weights, scales ? &*scales : nullptr, identity, progress);
  }));
  return report;
}

Result<std::vector<std::string>> verify_converted(const Checkpoint& checkpoint) {
  std::vector<std::string> out;
  for (const SourceFile& file : checkpoint.files()) {
    if (!file.name.ends_with(".espalier")) continue;
    ESPALIER_ASSIGN(const FileMap map, FileMap::open(file.path));
    Status s = verify_container(map.bytes());
    if (!s.ok()) return std::move(s).with_context(file.path);
    out.push_back(file.name + ": every checksum is right");
  }
  ESPALIER_ASSIGN(const Value source, parse_json(metadata_value(checkpoint.container_metadata(), "espalier.source")));
  const Value* path = source.find("path");
  std::error_code error;
  if (path == nullptr || !path->is_string() || !fs::exists(path->as_string(), error)) {
    out.push_back("the source is not there any more, so it was not compared");
    return out;
  }
  ESPALIER_ASSIGN(const Checkpoint original, Checkpoint::open(path->as_string()));
  const Value now = content_hashes(original);
  const Value* then = source.find("content");
  if (then == nullptr || now != *then) return corrupt(path->as_string() + " has changed since it was converted: convert it again");
  out.push_back(path->as_string() + ": the contents are those that were converted");
  return out;
}

}  // namespace espalier
