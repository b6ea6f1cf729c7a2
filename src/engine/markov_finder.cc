#include "engine/markov_finder.h"

#include <memory>

namespace espalier {
namespace {

constexpr uint32_t kSpare = 16;           // the unit's order is not quite the exact one

}  // namespace

MarkovHead::Finder markov_finder(Model& drafter, std::mutex& turns, int64_t scanned) {
  const Program& program = drafter.program();
  const Function* f = program.find(Role::markov);
  if (f == nullptr || f->inputs.empty()) return {};
  const int32_t rank = f->values[static_cast<size_t>(f->inputs[0].value)].width;
  if (int64_t{rank} * program.vocabulary <= scanned) return {};
  Result<std::unique_ptr<State>> made = drafter.make_state();
  if (!made.ok()) return {};
  const std::shared_ptr<State> state = std::move(made).value();  // stays empty
  return [&drafter, &turns, state, rank](std::span<const MarkovHead::Lead> leads) {
    std::vector<float> directions;
    std::vector<Row> rows;
    for (const MarkovHead::Lead& lead : leads) {
      directions.insert(directions.end(), lead.direction.begin(), lead.direction.end());
      rows.push_back({kNoToken, 0, 0, kState, kWantTopK});
    }
    const NamedTensor inputs[] = {{"direction", directions.data(), rank}};
    State* const states[] = {state.get()};
    Outputs out;
    std::vector<std::vector<int32_t>> found(leads.size());
    const std::lock_guard<std::mutex> turn(turns);
    const Result<CallStats> ran = drafter.run({{Role::markov, kNone}, rows, states, inputs, MarkovHead::kTop + kSpare, &out});
    if (!ran.ok()) return found;  // a scan then, which leaves out what is damaged
    const size_t each = out.top.size() / leads.size();
    for (size_t i = 0; i < out.top.size(); ++i) found[i / each].push_back(out.top[i].id);
    return found;
  };
}

}  // namespace espalier
