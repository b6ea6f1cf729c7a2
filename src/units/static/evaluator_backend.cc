#include "units/static/backend.h"

namespace espalier {
namespace {

class EvaluatorBackend : public StaticBackend {
 public:
  EvaluatorBackend(const LoweredProgram& lowered, LoweredTensors tensors, const EvaluateOptions& options)
      : lowered_(lowered), tensors_(std::move(tensors)), evaluator_(lowered, tensors_, options) {}

  Status run(int32_t function, std::span<const NamedValues> inputs, std::span<std::vector<float>> states, std::vector<NamedValues>& outputs) override {
    return evaluator_.run(function, inputs, states, outputs);
  }

  std::string range_report() const override {
    std::string text;
    for (size_t f = 0; f < evaluator_.counts().size(); ++f) {
      const std::string lines = espalier::range_report(lowered_.functions[f], evaluator_.counts()[f]);
      if (!lines.empty()) text += function_name(lowered_.functions[f].spec) + "\n" + lines;
    }
    return text;
  }

 private:
  const LoweredProgram& lowered_;
  LoweredTensors tensors_;
  Evaluator evaluator_;
};

}  // namespace

MakeBackend evaluator_backend(const EvaluateOptions& options) {
  return [options](const LoweredProgram& lowered, const Program& program, const WeightSet& weights) -> Result<std::unique_ptr<StaticBackend>> {
    ESPALIER_ASSIGN(LoweredTensors tensors, bind_lowered(lowered, program, weights, options.arithmetic == Arithmetic::f32));
    return std::unique_ptr<StaticBackend>(std::make_unique<EvaluatorBackend>(lowered, std::move(tensors), options));
  };
}

}  // namespace espalier
