// A tiny LFM2 on the CPU unit without any library: prints one hash for each weights form and K/V type, of all logits and
// states of a prefill, trees with accepted paths, two sequences and forced threads. The same line on every processor.
//
// usage: model_selfcheck        (ESPALIER_ISA forces the variants)
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "program/builder.h"
#include "units/cpu/cpu_unit.h"

namespace {

using namespace espalier;

constexpr int32_t kHidden = 128, kFfn = 224, kVocabulary = 1100, kHeads = 4, kKvHeads = 2, kHeadDim = 32, kTaps = 3;

uint64_t splitmix(uint64_t& s) {
  uint64_t z = (s += 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

Program tiny_lfm2() {
  ProgramBuilder b("selfcheck", 4, kHidden, kVocabulary);
  b.function(Role::step);
  const int32_t rope = b.rope({1e6, kHeadDim});
  const WeightId table = b.matrix("embed", kVocabulary, kHidden);
  ValueId h = b.embed(table);
  for (int32_t i = 0; i < 4; ++i) {
    b.layer(i);
    const std::string l = "layer." + std::to_string(i) + ".";
    const ValueId a = b.rms_norm(h, b.vector(l + "norm", kHidden), 1e-5f);
    ValueId y;
    if (i % 2 == 0) {
      const ValueId p = b.linear(a, b.matrix(l + "in", 3 * kHidden, kHidden));
      const WeightId taps = b.taps(l + "taps", kHidden, kTaps);  // weights are declared one by one: arguments have no order
      const ValueId conv = b.short_conv(p, taps, kNone, b.frames_state(i, kTaps - 1, kHidden), kTaps, false);
      y = b.linear(conv, b.matrix(l + "out", kHidden, kHidden));
    } else {
      const ValueId q = b.linear(a, b.matrix(l + "q", kHeads * kHeadDim, kHidden)), k = b.linear(a, b.matrix(l + "k", kKvHeads * kHeadDim, kHidden)),
                    v = b.linear(a, b.matrix(l + "v", kKvHeads * kHeadDim, kHidden));
      const WeightId q_norm = b.vector(l + "q_norm", kHeadDim), k_norm = b.vector(l + "k_norm", kHeadDim);
      const auto qk = b.qk_norm_rope({q, k}, q_norm, k_norm, {kHeads, kKvHeads, kHeadDim, 1e-5f, 0.17677669f, rope});
      y = b.linear(b.attention(qk, v, b.kv_state(i, kKvHeads, kHeadDim), {kHeads, kKvHeads, kHeadDim, MaskKind::ancestors, true}), b.matrix(l + "o", kHidden, kHeads * kHeadDim));
    }
    h = b.add(h, y);
    const ValueId n = b.rms_norm(h, b.vector(l + "ffn_norm", kHidden), 1e-5f);
    const ValueId g = b.linear(n, b.matrix(l + "gate", kFfn, kHidden)), u = b.linear(n, b.matrix(l + "up", kFfn, kHidden));
    h = b.add(h, b.linear(b.swiglu(g, u), b.matrix(l + "down", kHidden, kFfn)));
  }
  b.layer(kNone);
  b.head(b.rms_norm(h, b.vector("norm", kHidden), 1e-5f), table);
  return std::move(b).finish().value();
}

// Weights from integers only, so that they are the same everywhere.
WeightSet weights_of(const Program& program) {
  WeightSet set;
  set.entries.resize(program.weights.size());
  uint64_t s = 42;
  for (size_t i = 0; i < program.weights.size(); ++i) {
    const WeightDecl& d = program.weights[i];
    auto values = std::make_shared<std::vector<float>>(static_cast<size_t>(d.rows) * static_cast<size_t>(d.cols));
    const bool norm = d.kind == WeightDecl::Kind::vector;
    for (float& v : *values) {
      const float r = static_cast<float>(static_cast<int64_t>(splitmix(s) >> 40) - (1 << 23)) * 0x1p-23f;  // [-1, 1)
      v = norm ? 1.0f + 0.25f * r : (d.kind == WeightDecl::Kind::taps ? 0.5f : 0.125f) * r;
    }
    if (d.kind != WeightDecl::Kind::matrix) {
      set.entries[i].vector = *values;
      continue;
    }
    TensorView view{d.name, StorageType::f32, {static_cast<uint64_t>(d.rows), static_cast<uint64_t>(d.cols)}, std::as_bytes(std::span<const float>(*values))};
    set.entries[i].matrix = SourceMatrix::make(view, view.shape[0], view.shape[1]).value();
    set.owners.push_back(std::move(values));
  }
  return set;
}

struct Hash {
  uint64_t h = 0xcbf29ce484222325ull;
  void add(const void* p, size_t n) {
    for (size_t i = 0; i < n; ++i) h = (h ^ static_cast<const unsigned char*>(p)[i]) * 0x100000001b3ull;
  }
};

bool run(Model& model, const std::vector<Row>& rows, std::vector<State*> states, Hash& hash) {
  Outputs out;
  Call call;
  call.rows = rows;
  call.states = states;
  call.top_k = 7;
  call.out = &out;
  const Result<CallStats> stats = model.run(call);
  if (!stats.ok()) {
    std::fprintf(stderr, "model_selfcheck: %s\n", stats.status().message().c_str());
    return false;
  }
  hash.add(out.logits.data(), out.logits.size() * sizeof(float));
  hash.add(out.argmax.data(), out.argmax.size() * sizeof(int32_t));
  hash.add(out.lse.data(), out.lse.size() * sizeof(float));
  for (const TopEntry& t : out.top) hash.add(&t.id, sizeof t.id);
  return true;
}

constexpr uint32_t kAll = kWantLogits | kWantArgmax | kWantTopK | kWantLse;

bool scenario(Model& model, Hash& hash) {
  uint64_t s = 7;
  const auto token = [&] { return static_cast<int32_t>(splitmix(s) % kVocabulary); };
  std::unique_ptr<State> a = model.make_state().value(), b = model.make_state().value();
  for (const int32_t chunk : {130, 1, 17}) {
    std::vector<Row> rows;
    std::vector<int32_t> path;
    for (int32_t i = 0; i < chunk; ++i) {
      rows.push_back({token(), 0, a->length() + i, i - 1, i + 3 > chunk ? kAll : 0});
      path.push_back(i);
    }
    if (!run(model, rows, {a.get()}, hash) || !a->commit(path).ok()) return false;
  }
  for (int step = 0; step < 3; ++step) {  // a tree on `a`, a row on `b`
    std::vector<Row> rows;
    for (int32_t i = 0; i < 20; ++i) {
      const int32_t parent = i == 0 ? kState : static_cast<int32_t>(splitmix(s) % static_cast<uint64_t>(i));
      rows.push_back({token(), 0, parent == kState ? a->length() : rows[static_cast<size_t>(parent)].position + 1, parent, kAll});
    }
    rows.push_back({token(), 1, b->length(), kState, kAll});
    if (!run(model, rows, {a.get(), b.get()}, hash)) return false;
    std::vector<int32_t> path;
    for (int32_t r = 19; r != kState; r = rows[static_cast<size_t>(r)].parent) path.insert(path.begin(), r);
    const int32_t last[] = {20};
    if (!a->commit(path).ok() || !b->commit(last).ok()) return false;
  }
  for (const State* state : {a.get(), b.get()}) {
    const std::vector<std::byte> bytes = serialize(state->export_neutral());
    hash.add(bytes.data(), bytes.size());
  }
  return true;
}

}  // namespace

int main() {
  const Program program = tiny_lfm2();
  const WeightSet weights = weights_of(program);
  for (const WeightsForm form : {WeightsForm::int8, WeightsForm::int4})
    for (const KvType kv : {KvType::f16, KvType::i8})
      for (const uint32_t threads : {1u, 2u}) {
        Result<std::unique_ptr<CpuUnit>> unit = CpuUnit::make({threads, kv, {form}});
        if (!unit.ok()) {
          std::fprintf(stderr, "model_selfcheck: %s\n", unit.status().message().c_str());
          return 1;
        }
        Result<std::unique_ptr<Model>> model = (*unit)->compile(program, weights);
        Hash hash;
        if (!model.ok() || !scenario(**model, hash)) return 1;
        // Threads are no part of the line: both must print the same.
        std::printf("%s %s %s %016llx\n", isa_name((*unit)->isa()), form == WeightsForm::int8 ? "int8" : "int4", kv == KvType::f16 ? "fp16" : "int8-kv",
                    static_cast<unsigned long long>(hash.h));
      }
  return 0;
}
