#include "speculation_drafts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "kernels/isa.h"
#include "units/cpu/cpu_unit.h"
#include "units/reference/reference.h"

namespace espalier::test {
namespace {

class TreeMaker {
 public:
  TreeMaker(std::span<const int32_t> truth, int32_t vocabulary, int32_t depth_max, Random& random)
      : truth_(truth), vocabulary_(vocabulary), depth_max_(depth_max), random_(random) {}

  int32_t size() const { return static_cast<int32_t>(tree_.nodes.size()); }
  DraftTree take() { return std::move(tree_); }

  // Adds nothing if the parent has that child already, or stands too deep.
  bool add(int32_t parent, int32_t token) {
    const auto same = [&](const DraftNode& n) { return n.parent == parent && n.token == token; };
    if (std::any_of(tree_.nodes.begin(), tree_.nodes.end(), same)) return false;
    const int32_t depth = parent == kRoot ? 1 : tree_.nodes[static_cast<size_t>(parent)].depth + 1;
    if (depth > depth_max_) return false;
    tree_.nodes.push_back({token, parent, depth, 1.0f, 1u});
    return true;
  }
  // The next right token below the path of right ones.
  bool extend() {
    if (right_ >= static_cast<int32_t>(truth_.size()) || !add(tip_, truth_[static_cast<size_t>(right_)])) return false;
    tip_ = size() - 1;
    ++right_;
    return true;
  }
  int32_t right() const { return right_; }
  int32_t tip() const { return tip_; }
  // Below `parent`: a token that is not what the text has at that depth, so that no path of right tokens grows by it.
  void wrong(int32_t parent) {
    const size_t depth = parent == kRoot ? 0 : static_cast<size_t>(tree_.nodes[static_cast<size_t>(parent)].depth);
    for (int tries = 0; tries < 16; ++tries) {
      const int32_t token = random_.below(vocabulary_);
      if (depth < truth_.size() && token == truth_[depth]) continue;
      if (add(parent, token)) return;
    }
  }
  int32_t any_place() { return random_.below(size() + 1) - 1; }
  Random& random() { return random_; }

 private:
  std::span<const int32_t> truth_;
  int32_t vocabulary_, depth_max_;
  Random& random_;
  DraftTree tree_;
  int32_t right_ = 0, tip_ = kRoot;
};

// A path of `right` right tokens among wrong ones, in any order that has parents first.
void grow_mixed(TreeMaker& maker, const DraftShape& shape, int32_t right) {
  if (shape.chain) {
    while (maker.right() < right && maker.extend()) {
    }
    for (int32_t at = maker.tip(); maker.size() < shape.width; at = maker.size() - 1) {
      const int32_t before = maker.size();
      maker.wrong(at);
      if (maker.size() == before) return;
    }
    return;
  }
  for (int tries = 0; maker.size() < shape.width && tries < 4 * shape.width; ++tries) {
    const int32_t missing = right - maker.right(), left = shape.width - maker.size();
    if (missing > 0 && (missing >= left || maker.random().below(2) == 0)) {
      if (!maker.extend()) right = maker.right();
    } else {
      maker.wrong(maker.any_place());
    }
  }
}

// True tokens where they do not belong: a step early, a step late, below wrong parents, and the root's own over and over.
void grow_adversarial(TreeMaker& maker, const DraftShape& shape, std::span<const int32_t> truth) {
  maker.wrong(kRoot);
  for (int tries = 0; maker.size() < shape.width && tries < 4 * shape.width; ++tries) {
    const int32_t place = maker.random().below(3) == 0 ? maker.tip() : maker.any_place();
    switch (maker.random().below(4)) {
      case 0: maker.extend(); break;
      case 1: maker.wrong(place); break;
      default:
        if (!truth.empty()) maker.add(place, truth[static_cast<size_t>(maker.random().below(static_cast<int32_t>(truth.size())))]);
    }
  }
}

void break_tree(DraftTree& tree, Random& random) {
  if (tree.nodes.empty()) return;
  DraftNode& n = tree.nodes.back();
  switch (random.below(6)) {
    case 0: n.parent = static_cast<int32_t>(tree.nodes.size()); break;
    case 1: n.depth += 7; break;
    case 2: n.token = 1 << 28; break;
    case 3: n.token = -5; break;
    case 4: n.parent = -9; break;
    default: tree.nodes.push_back(tree.nodes.front());
  }
}

}  // namespace

const char* draft_kind_name(DraftKind kind) {
  constexpr const char* kNames[kDraftKinds] = {"right", "partly", "wrong", "empty", "one_token", "adversarial", "random"};
  return kNames[static_cast<int>(kind)];
}

DraftTree scripted_tree(const DraftShape& shape, std::span<const int32_t> truth, int32_t vocabulary, int32_t depth_max, Random& random) {
  TreeMaker maker(truth, vocabulary, depth_max, random);
  const int32_t known = static_cast<int32_t>(truth.size());
  switch (shape.kind) {
    case DraftKind::right: grow_mixed(maker, shape, std::min(known, shape.chain ? shape.width : (shape.width + 1) / 2)); break;
    case DraftKind::partly: grow_mixed(maker, shape, std::min({known, shape.accept, shape.width})); break;
    case DraftKind::wrong: grow_mixed(maker, shape, 0); break;
    case DraftKind::empty: break;
    case DraftKind::one_token:
      if (random.below(2) == 0 || !maker.extend()) maker.wrong(kRoot);
      break;
    case DraftKind::adversarial: grow_adversarial(maker, shape, truth); break;
    case DraftKind::random:
      for (int32_t i = 0; i < shape.width; ++i) maker.add(shape.chain ? maker.size() - 1 : maker.any_place(), random.below(vocabulary));
      break;
  }
  DraftTree tree = maker.take();
  if (shape.kind == DraftKind::adversarial && random.below(8) == 0) break_tree(tree, random);
  return tree;
}

std::vector<std::byte> PlainText::state_bytes(size_t answer_tokens_held) const { return serialize(states.at(answer_tokens_held)->export_neutral()); }

PlainText decode_plainly(Model& model, std::vector<int32_t> prompt, const Sampling& rules, size_t tokens) {
  PlainText out;
  out.prompt = prompt.size();
  out.text = std::move(prompt);
  Sampler sampler(rules);
  History history;
  history.add_prompt(out.text);
  const std::unique_ptr<State> state = std::move(model.make_state()).value();
  const size_t vocabulary = static_cast<size_t>(model.program().vocabulary);
  std::vector<float> all = run_chain(model, *state, out.text);
  for (;;) {
    out.states.push_back(state->fork());
    if (out.states.size() > tokens) return out;
    const std::span<const float> logits = std::span<const float>(all).last(vocabulary);
    const int32_t id = sampler.choose(logits, history, static_cast<int32_t>(out.text.size()));
    out.text.push_back(id);
    history.push(id);
    all = run_chain(model, *state, std::span(&id, 1));
  }
}

void ScriptedDrafting::draft(std::span<const DraftAsk> asked, int32_t, std::span<DraftTree> trees) {
  for (size_t i = 0; i < asked.size(); ++i) {
    const std::span<const int32_t> whole = texts_.at(asked[i].sequence);
    const size_t at = asked[i].text.size();
    ASSERT_LE(at, whole.size());
    ASSERT_TRUE(std::equal(asked[i].text.begin(), asked[i].text.end(), whole.begin())) << "the text has parted from plain decoding";
    // Half of the trees keep to the depth that was asked for; the others must be refused where they are too deep.
    const int32_t depth_max = random_.below(2) == 0 ? asked[i].depth_max : INT32_MAX;
    trees[i] = scripted_tree(next_(cycles++), whole.subspan(at), vocabulary_, depth_max, random_);
  }
}

void ScriptedDrafting::settle(SequenceId, const DraftTree& tree, const Acceptance& kept) {
  drafted += static_cast<int64_t>(tree.nodes.size());
  accepted += static_cast<int64_t>(kept.path.size());
  longest = std::max(longest, static_cast<int>(kept.path.size()));
}

void ScriptedDrafting::keep(std::span<const KeptRows> rows) {
  for (const KeptRows& k : rows) {
    Context& c = contexts[k.sequence];
    if (c.tokens.empty()) c.first = k.position;
    EXPECT_EQ(k.position, c.first + static_cast<int32_t>(c.tokens.size())) << "rows were left out, or came twice";
    c.tokens.insert(c.tokens.end(), k.tokens.begin(), k.tokens.end());
    if (k.features != nullptr) c.features.insert(c.features.end(), k.features, k.features + k.tokens.size() * feature_width);
  }
}

Result<Ticket> Poisoned::submit(const Call& call) {
  failing_ = std::any_of(call.rows.begin(), call.rows.end(), [&](const Row& r) { return r.token == token_; });
  return inner_.submit(call);
}

Result<CallStats> Poisoned::wait(Ticket ticket) {
  auto stats = inner_.wait(ticket);
  if (!failing_) return stats;
  ++failed;
  return Status(Code::internal, "position 7: the logit of token 3 is not finite; the weights or the state are damaged");
}

std::vector<std::string> unit_variants() {
  std::vector<std::string> out = {"reference"};
  for (const Isa isa : available_isas()) {
    out.push_back(std::string("cpu-") + isa_name(isa));
    out.push_back(out.back() + "-i8");
  }
  return out;
}

std::unique_ptr<Unit> open_variant(const std::string& name, uint32_t threads) {
  if (name == "reference") return make_reference_unit(static_cast<int>(threads));
  CpuOptions options;
  options.threads = threads;
  const bool i8 = name.ends_with("-i8");
  options.kv = i8 ? KvType::i8 : KvType::f16;
  const std::string isa = name.substr(4, name.size() - 4 - (i8 ? 3 : 0));
  const char* before = std::getenv("ESPALIER_ISA");
  const std::string kept = before == nullptr ? "" : before;
  setenv("ESPALIER_ISA", isa.c_str(), 1);
  auto unit = CpuUnit::make(options);
  before == nullptr ? unsetenv("ESPALIER_ISA") : setenv("ESPALIER_ISA", kept.c_str(), 1);
  if (!unit.ok()) ADD_FAILURE() << unit.status().message();
  return unit.ok() ? std::move(unit).value() : nullptr;
}

std::vector<DrawRules> draw_rules() {
  std::vector<DrawRules> out(6);
  out[0] = {"greedy", {}, -1};
  out[0].rules.temperature = 0;
  out[1] = {"greedy_with_penalties", {}, -1};
  out[1].rules.temperature = 0;
  out[1].rules.repetition_penalty = 1.3f;
  out[1].rules.frequency_penalty = 0.4f;
  out[1].rules.logit_bias = {{5, 1.5f}, {17, -2.0f}};
  out[2] = {"sampled_with_penalties", {}, -1};
  out[2].rules.temperature = 0.8f;
  out[2].rules.top_p = 0.95f;
  out[2].rules.repetition_penalty = 1.1f;
  out[2].rules.presence_penalty = 0.5f;
  out[2].rules.frequency_penalty = 0.3f;
  out[2].rules.seed = 77;
  out[3] = {"top_k", {}, -1};
  out[3].rules.temperature = 1;
  out[3].rules.top_k = 20;
  out[3].rules.seed = 78;
  out[4] = {"min_p_with_logprobs", {}, 3};
  out[4].rules.temperature = 0.9f;
  out[4].rules.min_p = 0.05f;
  out[4].rules.seed = 79;
  out[5] = {"greedy_with_logprobs", {}, 0};
  out[5].rules.temperature = 0;
  return out;
}

}  // namespace espalier::test
