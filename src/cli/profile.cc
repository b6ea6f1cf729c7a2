// profile: what calls take on this machine, measured and kept for `auto`.
#include "measure/profile.h"

#include "base/json.h"
#include "cli/commands.h"
#include "cli/terminal.h"
#include "engine/engine_impl.h"

namespace espalier::cli {

int profile_command(const Arguments& args) {
  ProfileOptions options;
  const int64_t rounds = args.integer("rounds").value_or(options.rounds);
  if (rounds < 1 || rounds > 1000) return fail(args, invalid("rounds: expected 1 to 1000, found " + std::to_string(rounds), "rounds"));
  options.rounds = static_cast<int32_t>(rounds);
  auto engine = open_with_progress(args, args.positionals[0]);
  if (!engine.ok()) return fail(args, engine.status());
  const bool quiet = args.flag("quiet");
  auto profile = measure_profile(*engine->impl(), options, [&](const std::string& what) {
    if (!quiet) err(err_is_terminal() ? "\r\x1b[K" + what : what + "\n");
    return !interrupted();
  });
  if (!quiet && err_is_terminal()) err("\r\x1b[K");
  if (!profile.ok()) return fail(args, profile.status());
  auto path = profile_path(profile->key);
  if (!path.ok()) return fail(args, path.status());
  if (const Status stored = store_profile(*profile); !stored.ok()) return fail(args, stored);
  if (args.flag("json")) return print_json(profile_json(*profile, *path));
  out(profile_text(*profile, *path));
  return finish_output(kExitOk);
}

}  // namespace espalier::cli
