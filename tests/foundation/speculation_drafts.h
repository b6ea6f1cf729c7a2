// Drafts for tests: trees made from the known continuation of a text, right, wrong or malicious.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "decode/sampling.h"
#include "engine/decoder.h"
#include "tiny_models.h"
#include "units/unit.h"

namespace espalier::test {

enum class DraftKind { right, partly, wrong, empty, one_token, adversarial, random };
inline constexpr int kDraftKinds = 7;
const char* draft_kind_name(DraftKind kind);

struct DraftShape {
  DraftKind kind = DraftKind::right;
  bool chain = false;
  int32_t width = 1;
  int32_t accept = 0;  // partly: right tokens on the path before the wrong ones
};

// `truth`: how the text goes on behind the root. Well formed, except that an adversarial tree sometimes is not.
DraftTree scripted_tree(const DraftShape& shape, std::span<const int32_t> truth, int32_t vocabulary, int32_t depth_max, Random& random);

// Plain decoding, written once more without the decoder: one row a call, one token a row.
struct PlainText {
  std::vector<int32_t> text;
  size_t prompt = 0;
  std::vector<std::unique_ptr<State>> states;  // states[i]: after text[0, prompt + i), so that states[0] has read the prompt
  std::vector<std::byte> state_bytes(size_t answer_tokens_held) const;
};
PlainText decode_plainly(Model& model, std::vector<int32_t> prompt, const Sampling& rules, size_t tokens);

// Draws a tree for each sequence that it was told the text of; the shape changes from cycle to cycle where `next` says so.
class ScriptedDrafting : public Drafting {
 public:
  ScriptedDrafting(int32_t vocabulary, uint64_t seed, std::function<DraftShape(int cycle)> next)
      : vocabulary_(vocabulary), random_(seed), next_(std::move(next)) {}
  void follow(SequenceId id, std::span<const int32_t> whole_text) { texts_[id] = whole_text; }

  std::span<const std::string> taps() const override { return taps_; }
  bool follows(SequenceId id) const override { return texts_.count(id) > 0; }
  bool reads_taps(SequenceId id) const override { return follows(id); }
  void draft(std::span<const DraftAsk> asked, int32_t other_rows, std::span<DraftTree> trees) override;
  void settle(SequenceId id, const DraftTree& tree, const Acceptance& kept) override;
  void keep(std::span<const KeptRows> rows) override;
  void abandon() override {}
  void observe(const StepReport&) override {}

  // What came in, for the tests that look at it.
  std::vector<std::string> taps_;
  int64_t drafted = 0, accepted = 0;
  int cycles = 0;
  int longest = 0;  // accepted in one cycle
  struct Context {
    int32_t first = 0;
    std::vector<int32_t> tokens;
    std::vector<float> features;
  };
  std::map<SequenceId, Context> contexts;
  size_t feature_width = 0;  // all taps together

 private:
  int32_t vocabulary_;
  Random random_;
  std::function<DraftShape(int)> next_;
  std::map<SequenceId, std::span<const int32_t>> texts_;
};

// A model whose calls fail where a row holds the given token.
class Poisoned : public Model {
 public:
  Poisoned(Model& inner, int32_t token) : inner_(inner), token_(token) {}
  const Program& program() const override { return inner_.program(); }
  Result<std::unique_ptr<State>> make_state() override { return inner_.make_state(); }
  Result<Ticket> submit(const Call& call) override;
  Result<CallStats> wait(Ticket ticket) override;
  int failed = 0;

 private:
  Model& inner_;
  int32_t token_;
  bool failing_ = false;
};

// The units of this machine: "reference", "cpu-<isa>", "cpu-<isa>-i8".
std::vector<std::string> unit_variants();
std::unique_ptr<Unit> open_variant(const std::string& name, uint32_t threads);

// Ways of drawing that take each path of the decoder: argmax, all logits with history, top-k alone, log-probabilities.
struct DrawRules {
  const char* name;
  Sampling rules;
  int32_t logprobs;
};
std::vector<DrawRules> draw_rules();

}  // namespace espalier::test
