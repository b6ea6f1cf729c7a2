#include "units/unit.h"

namespace espalier {

Result<CallStats> Model::run(const Call& call) {
  ESPALIER_ASSIGN(const Ticket ticket, submit(call));
  return wait(ticket);
}

}  // namespace espalier
