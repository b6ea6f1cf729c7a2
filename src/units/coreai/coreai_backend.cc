#include "units/coreai/coreai_backend.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "units/coreai/aimodel_script.h"
#include "units/coreai/mlir_text.h"
#include "units/static/child_process.h"
#include "units/static/process_backend.h"

namespace espalier {
namespace {

namespace fs = std::filesystem;

constexpr const char* kVariable = "ESPALIER_COREAI_PYTHON";

// A folder of its own, removed with what is in it.
class WorkFolder {
 public:
  static Result<std::unique_ptr<WorkFolder>> make() {
    std::error_code error;
    std::string path = (fs::temp_directory_path(error) / "espalier-coreai-XXXXXX").string();
    if (::mkdtemp(path.data()) == nullptr) return Status(Code::io, path + ": no folder can be made there: " + std::strerror(errno));
    return std::unique_ptr<WorkFolder>(new WorkFolder(std::move(path)));
  }
  ~WorkFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  explicit WorkFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

class CoreAiBackend : public StaticBackend {
 public:
  CoreAiBackend(std::unique_ptr<WorkFolder> folder, std::unique_ptr<StaticBackend> process) : folder_(std::move(folder)), process_(std::move(process)) {}
  Status run(int32_t function, std::span<const NamedValues> inputs, std::span<std::vector<float>> states, std::vector<NamedValues>& outputs) override {
    return process_->run(function, inputs, states, outputs);
  }

 private:
  std::unique_ptr<WorkFolder> folder_;  // outlives the process
  std::unique_ptr<StaticBackend> process_;
};

}  // namespace

Result<std::string> coreai_python() {
  const char* python = std::getenv(kVariable);
  if (python == nullptr || *python == 0)
    return unsupported(std::string("Core AI: ") + kVariable + " names no Python; install the package coreai-core into one and let it name that", kVariable);
  ESPALIER_ASSIGN(const std::unique_ptr<WorkFolder> folder, WorkFolder::make());
  ESPALIER_TRY(ChildProcess::finish("the check of Core AI", {python, "-c", coreai::kAimodelScript, "check"}, folder->path() + "/log").with_context("Core AI"));
  return std::string(python);
}

Status write_aimodel(const LoweredProgram& lowered, const Program& program, const WeightSet& weights, const std::string& out) {
  ESPALIER_ASSIGN(const std::string python, coreai_python());
  ESPALIER_ASSIGN(const std::unique_ptr<WorkFolder> folder, WorkFolder::make());
  ESPALIER_TRY(coreai::write_program(lowered, program, weights, folder->path()));
  return ChildProcess::finish("Core AI's packer", {python, "-c", coreai::kAimodelScript, "pack", folder->path(), out}, folder->path() + "/log").with_context(out);
}

MakeBackend coreai_backend(std::string python) {
  return [python = std::move(python)](const LoweredProgram& lowered, const Program& program, const WeightSet& weights) -> Result<std::unique_ptr<StaticBackend>> {
    ESPALIER_ASSIGN(std::unique_ptr<WorkFolder> folder, WorkFolder::make());
    ESPALIER_TRY(coreai::write_program(lowered, program, weights, folder->path()));
    const std::string& path = folder->path();
    const std::vector<std::string> command = {python, "-c", coreai::kAimodelScript, "serve", path, path + "/program.aimodel"};
    ESPALIER_ASSIGN(std::unique_ptr<StaticBackend> process, process_backend(lowered, "Core AI", command, path + "/log"));
    return std::unique_ptr<StaticBackend>(std::make_unique<CoreAiBackend>(std::move(folder), std::move(process)));
  };
}

}  // namespace espalier
