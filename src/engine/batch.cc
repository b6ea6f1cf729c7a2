#include "engine/batch.h"

#include <algorithm>

namespace espalier {

Batch::Batch(Engine::Impl& engine, const SpeculationMode& mode)
    : engine_(engine), mode_(mode), speculation_(*engine.drafting, mode), drafts_(mode.kind != SpeculationMode::Kind::off),
      decoder_(*engine.model, &engine.calls, drafts_ ? &speculation_ : nullptr) {}

Status Batch::add(size_t key, const PreparedRequest& request, const std::atomic<bool>& cancelled, const Callbacks& callbacks) {
  Job& job = jobs_.emplace_back();
  const auto open = [&]() -> Status {
    job.key = key;
    ESPALIER_ASSIGN(job.state, engine_.model->make_state());
    ESPALIER_ASSIGN(job.drafter, make_drafter_state(engine_, mode_));
    job.held.state = job.state.get();
    job.held.drafter = job.drafter.get();
    ESPALIER_ASSIGN(job.generation, Generation::open(engine_, request, job.held, cancelled, callbacks, decoder_, drafts_ ? &speculation_ : nullptr));
    return {};
  };
  Status opened = open();
  if (!opened.ok()) jobs_.pop_back();
  return opened;
}

void Batch::finish_complete(const Done& done) {
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    if (job->generation->before_step()) {
      ++job;
      continue;
    }
    Answer answer = job->generation->finish();
    const size_t key = job->key;
    job = jobs_.erase(job);
    done(key, std::move(answer));
  }
}

void Batch::step(const Done& done) {
  finish_complete(done);
  if (jobs_.empty()) return;
  auto report = decoder_.step(engine_.pace.rows());
  if (!report.ok()) {
    step_each(done);
  } else {
    if (report->prompt_rows > 0) engine_.pace.record(report->call.rows, report->call.t1_ns - report->call.t0_ns);
    for (Job& job : jobs_) job.generation->after_step();
  }
  finish_complete(done);
}

void Batch::step_each(const Done& done) {
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    auto report = decoder_.step(engine_.pace.rows(), 0, job->generation->id());
    if (report.ok()) {
      job->generation->after_step();
      ++job;
      continue;
    }
    const size_t key = job->key;
    job = jobs_.erase(job);
    done(key, std::move(report).status());
  }
}

void run_together(Engine::Impl& engine, std::span<Request::Impl* const> requests, int32_t sequences, const Batch::Done& done) {
  const Callbacks none;
  for (size_t next = 0; next < requests.size();) {
    const std::string mode = requests[next]->prepared.speculate.text();
    Batch batch(engine, requests[next]->prepared.speculate);
    const auto may_add = [&] {
      return next < requests.size() && batch.size() < static_cast<size_t>(std::max(sequences, 1)) && requests[next]->prepared.speculate.text() == mode;
    };
    do {
      for (; may_add(); ++next) {
        Request::Impl& request = *requests[next];
        Status added = request.used ? invalid("this request has run already; make another") : Status();
        request.used = true;
        if (added.ok()) added = batch.add(next, request.prepared, request.cancelled, none);
        if (!added.ok()) done(next, std::move(added));
      }
      batch.step(done);
    } while (batch.size() > 0 || may_add());
  }
}

}  // namespace espalier
