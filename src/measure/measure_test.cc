#include <gtest/gtest.h>

#include "../../tests/foundation/tiny_models.h"
#include "base/json.h"
#include "measure/bench.h"
#include "measure/machine.h"
#include "units/cpu/cpu_unit.h"
#include "units/reference/reference.h"

namespace espalier {
namespace {

TEST(MachineProbe, every_available_instruction_set_has_a_peak) {
  for (Isa isa : available_isas()) {
    MachineProbe probe(isa, 1, 1 << 20);
    const Ceilings c = probe.measure();
    EXPECT_GT(c.read_gbps, 0) << isa_name(isa);
    EXPECT_GT(c.int8_gops, 0) << isa_name(isa);
  }
}

TEST(Bench, states_times_ceilings_and_shares_for_both_units) {
  const test::TinyModel tiny = test::load_tiny("lfm2-f32");
  std::unique_ptr<Unit> cpu = std::move(CpuUnit::make({1, KvType::f16, {}})).value();
  for (Unit* unit : {cpu.get(), make_reference_unit().release()}) {
    std::unique_ptr<Model> model = std::move(unit->compile(tiny.plan.program, tiny.weights)).value();
    BenchOptions o;
    o.rows = {1, 3};
    o.prefill = 9;
    o.decode = 2;
    o.depth = 5;
    o.rounds = 2;
    o.threads = 1;
    o.probe_bytes = 1 << 20;
    Result<Value> r = bench_model(*model, o);
    ASSERT_TRUE(r.ok()) << r.status().message();
    ASSERT_EQ(r->find("calls")->as_array().size(), 2u);
    for (const Value& c : r->find("calls")->as_array())
      for (const char* key : {"ms", "read_gbps", "int8_gops", "floor_ms", "share"}) EXPECT_GT(c.find(key)->as_double(), 0) << key;
    EXPECT_GT(r->find("macs_per_row")->as_int(), 0);
    EXPECT_GT(r->find_path("decode.tokens_per_second")->as_double(), 0);
    EXPECT_NE(bench_text(*r).find("rows"), std::string::npos);
    o.rows = {0};
    EXPECT_FALSE(bench_model(*model, o).ok());
    model.reset();
    if (unit != cpu.get()) delete unit;
  }
}

}  // namespace
}  // namespace espalier
